"""The access table, which states the users who may use each operation of the REST API, and the
check of requests against the table.

Every operation has a rule in `TABLE`, by method and path template: the lowest role that may use the
operation, and the relation that the caller must have to the object in the path. `check` is a
dependency of the whole application, so it runs before every route; an operation without a rule is
refused. If the caller may not learn that an object exists, the answer is the same as for an object
that does not exist.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Depends, Path, Request
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool

from farrier.errors import ForbiddenError, PrivateError, UsageError
from farrier_farm.access.users import Role, Users
from farrier_farm.events.webhooks import no_webhook
from farrier_farm.farm import Farm
from farrier_farm.jobs.explorations import no_exploration
from farrier_farm.jobs.jobs import Job
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.storage.blobs import no_upload
from farrier_farm.storage.models import unknown
from farrier_server.authentication import Caller
from farrier_server.gate import CALLER
from farrier_server.viewer import Viewer, is_private

_BOOLEAN = TypeAdapter(bool)
_JOB_ID = r"^[\w.:-]+$"
_SHA256 = r"^[0-9a-f]{64}$"
_LONGEST_ID = 100
JobId = Annotated[
    str, Path(description="The id of the job.", max_length=_LONGEST_ID, pattern=_JOB_ID)
]


class Relation(enum.StrEnum):
    """The relation that a caller must have to the object in a request's path."""

    # Any caller: nobody owns the object, or the answer contains only what the caller may see.
    NONE = "none"
    SEES_JOB = "sees job"  # The caller may know that the job exists, and its state.
    READS_JOB = "reads job"  # its results
    STOPS_JOB = "stops job"
    CHANGES_JOB = "changes job"
    USES_MODEL = "uses model"
    OWNS_UPLOAD = "owns upload"
    OWNS_WEBHOOK = "owns webhook"
    READS_EXPLORATION = "reads exploration"
    CHANGES_EXPLORATION = "changes exploration"
    READS_RECORDS = "reads records"  # The shared records, or the private ones of the caller.
    CHANGES_RECORDS = "changes records"


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """The permission for an operation: `least` is the lowest role that may use it (None: no token
    is needed), and `relation` is the relation that the caller must have to the object in the
    request's path."""

    least: Role | None
    relation: Relation = Relation.NONE


_STRANGER = Rule(None)
_USER = Rule(Role.USER)
_OPERATOR = Rule(Role.OPERATOR)
_ADMIN = Rule(Role.ADMIN)
_SEES_JOB = Rule(Role.USER, Relation.SEES_JOB)
_READS_JOB = Rule(Role.USER, Relation.READS_JOB)
_STOPS_JOB = Rule(Role.USER, Relation.STOPS_JOB)
_CHANGES_JOB = Rule(Role.USER, Relation.CHANGES_JOB)
_USES_MODEL = Rule(Role.USER, Relation.USES_MODEL)
_OWNS_UPLOAD = Rule(Role.USER, Relation.OWNS_UPLOAD)
_OWNS_WEBHOOK = Rule(Role.USER, Relation.OWNS_WEBHOOK)
_READS_EXPLORATION = Rule(Role.USER, Relation.READS_EXPLORATION)
_CHANGES_EXPLORATION = Rule(Role.USER, Relation.CHANGES_EXPLORATION)
_READS_RECORDS = Rule(Role.USER, Relation.READS_RECORDS)
_CHANGES_RECORDS = Rule(Role.USER, Relation.CHANGES_RECORDS)

TABLE: Mapping[tuple[str, str], Rule] = {
    ("GET", "/healthz"): _STRANGER,
    ("GET", "/readyz"): _STRANGER,
    ("GET", "/metrics"): _OPERATOR,
    ("POST", "/v1/session"): _STRANGER,  # The token is in the body.
    ("GET", "/v1/session"): _USER,
    ("DELETE", "/v1/session"): _USER,
    ("GET", "/v1/overview"): _USER,
    ("GET", "/v1/events"): _USER,
    ("POST", "/v1/uploads"): _USER,
    ("GET", "/v1/uploads/{upload_id}"): _OWNS_UPLOAD,
    ("HEAD", "/v1/uploads/{upload_id}"): _OWNS_UPLOAD,
    ("PATCH", "/v1/uploads/{upload_id}"): _OWNS_UPLOAD,
    ("POST", "/v1/models"): _USER,
    ("GET", "/v1/models/{model_id}"): _USES_MODEL,
    ("GET", "/v1/models/{model_id}/inspection"): _USES_MODEL,
    ("POST", "/v1/models/{model_id}/inspection"): _USES_MODEL,
    ("POST", "/v1/jobs"): _USER,
    ("GET", "/v1/jobs"): _USER,
    ("GET", "/v1/jobs/{job_id}"): _SEES_JOB,
    ("DELETE", "/v1/jobs/{job_id}"): _CHANGES_JOB,
    ("POST", "/v1/jobs/{job_id}/cancel"): _STOPS_JOB,
    ("POST", "/v1/jobs/{job_id}/rollback"): _CHANGES_JOB,
    ("GET", "/v1/jobs/{job_id}/events"): _READS_JOB,
    ("GET", "/v1/jobs/{job_id}/log"): _READS_JOB,
    ("GET", "/v1/jobs/{job_id}/curve"): _READS_JOB,
    ("GET", "/v1/jobs/{job_id}/tasks"): _READS_JOB,
    ("GET", "/v1/jobs/{job_id}/tasks/{task}/choices"): _READS_JOB,
    ("GET", "/v1/jobs/{job_id}/trials"): _READS_JOB,
    ("GET", "/v1/jobs/{job_id}/records"): _READS_JOB,
    ("GET", "/v1/jobs/{job_id}/artifact"): _READS_JOB,
    ("HEAD", "/v1/jobs/{job_id}/artifact"): _READS_JOB,
    ("GET", "/v1/jobs/{job_id}/listing"): _READS_JOB,
    ("POST", "/v1/jobs/{job_id}/listing"): _READS_JOB,
    ("GET", "/v1/jobs/{job_id}/listing/kernels/{kernel}"): _READS_JOB,
    ("POST", "/v1/explorations"): _USER,
    ("GET", "/v1/explorations"): _USER,
    ("GET", "/v1/explorations/{exploration_id}"): _READS_EXPLORATION,
    ("DELETE", "/v1/explorations/{exploration_id}"): _CHANGES_EXPLORATION,
    ("PUT", "/v1/explorations/{exploration_id}/area"): _CHANGES_EXPLORATION,
    ("PUT", "/v1/explorations/{exploration_id}/result"): _CHANGES_EXPLORATION,
    ("GET", "/v1/explorations/{exploration_id}/chart"): _READS_EXPLORATION,
    ("GET", "/v1/explorations/{exploration_id}/description"): _READS_EXPLORATION,
    ("GET", "/v1/devices"): _USER,
    ("GET", "/v1/devices/{device_id}"): _USER,
    ("GET", "/v1/devices/{device_id}/history"): _USER,
    ("POST", "/v1/devices"): _OPERATOR,
    ("DELETE", "/v1/devices/{device_id}"): _OPERATOR,
    ("POST", "/v1/devices/{device_id}/revoke"): _OPERATOR,
    ("POST", "/v1/devices/{device_id}/drain"): _OPERATOR,
    ("POST", "/v1/devices/{device_id}/pause"): _OPERATOR,
    ("POST", "/v1/devices/{device_id}/resume"): _OPERATOR,
    ("PUT", "/v1/devices/{device_id}/tags"): _OPERATOR,
    ("POST", "/v1/devices/{device_id}/release"): _OPERATOR,
    ("POST", "/v1/devices/{device_id}/trust"): _OPERATOR,
    ("POST", "/v1/devices/{device_id}/untrust"): _OPERATOR,
    ("GET", "/v1/classes"): _USER,
    ("GET", "/v1/targets"): _USER,
    ("GET", "/v1/records"): _USER,
    ("GET", "/v1/records/fastest"): _READS_RECORDS,
    ("GET", "/v1/records/export"): _READS_RECORDS,
    ("POST", "/v1/records/import"): _CHANGES_RECORDS,
    ("POST", "/v1/records/drop"): _OPERATOR,
    ("POST", "/v1/records/prune"): _CHANGES_RECORDS,
    ("GET", "/v1/audit"): _OPERATOR,
    ("GET", "/v1/webhooks"): _USER,
    ("POST", "/v1/webhooks"): _USER,
    ("DELETE", "/v1/webhooks/{webhook_id}"): _OWNS_WEBHOOK,
    ("POST", "/v1/webhooks/{webhook_id}/ping"): _OWNS_WEBHOOK,
    ("GET", "/v1/cost-model"): _USER,
    ("POST", "/v1/cost-model/rollback"): _OPERATOR,
    ("GET", "/v1/account"): _USER,
    ("GET", "/v1/users"): _OPERATOR,
    ("POST", "/v1/users"): _ADMIN,
    ("POST", "/v1/users/{name}/rotate"): _ADMIN,
    ("DELETE", "/v1/users/{name}"): _ADMIN,
}


class Access:
    """The check of users' rights to see, read and change the objects of a farm."""

    def __init__(self, farm: Farm, users: Users) -> None:
        self._farm = farm
        self.users = users

    def viewer(self, request: Request) -> Viewer:
        """Return the user who sent the request, with the role that the user has now. Raises
        StorageError."""
        return Viewer.of(request.scope[CALLER], self.users, self._farm.settings)

    def now(self, viewer: Viewer) -> Viewer | None:
        """Return the same user with the role that the user has now, or None if the user's token is
        no longer valid. Long answers, such as event streams, call this repeatedly. Raises
        StorageError."""
        user = self.users.named(viewer.name)
        if user is None or user.has_expired:
            return None
        return Viewer.of(Caller.of(user), self.users, self._farm.settings)

    def check_relation(self, request: Request, relation: Relation) -> None:
        """Check that the caller has `relation` to the object in the path. Raises NotFoundError for
        an object whose existence the caller may not learn, ForbiddenError or PrivateError for an
        action that the caller may not take."""
        viewer = self.viewer(request)
        match relation:
            case Relation.NONE:
                return
            case Relation.READS_RECORDS | Relation.CHANGES_RECORDS:
                check_records(request, viewer, relation)
            case Relation.USES_MODEL:
                model = _well_formed(request, "model_id", _SHA256)
                self.check_model(viewer, model)
            case Relation.OWNS_UPLOAD:
                self._check_upload(viewer, request.path_params["upload_id"])
            case Relation.OWNS_WEBHOOK:
                self._check_webhook(viewer, request.path_params["webhook_id"])
            case Relation.READS_EXPLORATION | Relation.CHANGES_EXPLORATION:
                self._check_exploration(viewer, request.path_params["exploration_id"], relation)
            case _:
                self._check_job(request, viewer, relation)

    def owns(self, viewer: Viewer, sha256: str) -> bool:
        """Return whether the user has uploaded this file or created this model. A file that the
        user may use only as a member of a group does not count. The file may have been removed
        since."""
        return viewer.owns(self._farm.owners.claims(sha256, viewer.name))

    def check_model(self, viewer: Viewer, model: str) -> bool:
        """Check that the user may use a model. Return False if the user has uploaded it, True if
        other users have uploaded it and this user may use it through them. Raises NotFoundError
        both for a model that the user may not use and for a model that is not stored, so that the
        answer does not reveal which of the two holds."""
        claims = self._farm.owners.claims(model, viewer.name)
        if not viewer.uses(claims):
            raise unknown(model)
        return not viewer.owns(claims)

    def hold_model(self, viewer: Viewer, model: str) -> bool:
        """Check a model as `check_model` does and return the same, and protect the model from
        removal until a job refers to it. If the user has uploaded the model, the user's claim to it
        is also renewed."""
        is_lent = self.check_model(viewer, model)
        manifest = self._farm.models.hold(model)
        if not is_lent:
            self._farm.owners.note(viewer.name, [model, *manifest.blobs()])
        return is_lent

    def _check_upload(self, viewer: Viewer, upload_id: str) -> None:
        """Raise NotFoundError for an upload of another user. An upload that was begun under a
        version of the server without users belongs to admins."""
        owner = self._farm.blobs.upload(upload_id).owner
        if not (viewer.is_admin if owner is None else owner == viewer.name):
            raise no_upload(upload_id)

    def _check_webhook(self, viewer: Viewer, webhook_id: str) -> None:
        if self._farm.webhooks.get(webhook_id).owner != viewer.name:
            raise no_webhook(webhook_id)

    def _check_exploration(self, viewer: Viewer, exploration_id: str, relation: Relation) -> None:
        """Check that the user may read an exploration or, depending on `relation`, change it. An
        admin may delete a private exploration of another user without reading it."""
        owner, private = self._farm.explorations.owner(exploration_id)
        may_change = viewer.changes_of(owner)
        if relation is Relation.CHANGES_EXPLORATION and may_change:
            return
        if not viewer.reads_of(owner, private):
            raise no_exploration(exploration_id)
        if relation is Relation.CHANGES_EXPLORATION:
            raise ForbiddenError(
                f"the exploration {exploration_id} belongs to {owner}: only its owner and admins "
                "may change it",
                hint=f"ask {owner}",
            )

    def _check_job(self, request: Request, viewer: Viewer, relation: Relation) -> None:
        job_id = _well_formed(request, "job_id", _JOB_ID)
        job = self._farm.jobs.get(job_id)
        whole = self.whole(job)
        if not viewer.sees(whole):
            raise self._farm.jobs.leases_of(job.id).unknown(job.id)
        may = {
            Relation.SEES_JOB: viewer.sees,
            Relation.READS_JOB: viewer.reads,
            Relation.STOPS_JOB: viewer.stops,
            Relation.CHANGES_JOB: viewer.changes,
        }[relation]
        if not may(whole):
            raise _refused(whole, relation)
        request.state.job = job

    def still_reads(self, viewer: Viewer, whole: Job) -> bool:
        """Return whether the viewer may still read the results of the job `whole`, with the role
        and group that the viewer has now. Raises StorageError."""
        now = self.now(viewer)
        return now is not None and now.reads(whole)

    def whole(self, job: Job) -> Job:
        """Return the job whose owner decides who may read `job`: if `job` lists the kernels of a
        compiled model, the job that compiled the model; otherwise `job` itself."""
        return self.wholes([job])[0]

    def wholes(self, jobs: Sequence[Job]) -> list[Job]:
        """Return `Access.whole` of each of the jobs. All are read in one round trip to Redis."""
        compiled = [job.of for job in jobs if job.kind is JobKind.LIST]
        by_id = {job.id: job for job in self._farm.jobs.many(compiled)} if compiled else {}
        return [by_id.get(job.of, job) for job in jobs]


def _well_formed(request: Request, name: str, pattern: str) -> str:
    """Return the path parameter `name` of the request, which is an id. Raises UsageError if the id
    does not match the regular expression `pattern`."""
    text: str = request.path_params[name]
    if len(text) > _LONGEST_ID or not re.search(pattern, text):
        raise UsageError(
            f"path.{name}: {text[:_LONGEST_ID]!r} is not an id",
            hint="GET /openapi.json describes every field",
        )
    return text


def asks_for_private(request: Request) -> bool:
    """Return whether a request concerns the caller's private tuning records rather than the shared
    ones. Raises UsageError."""
    try:
        return _BOOLEAN.validate_python(request.query_params.get("private", False))
    except ValidationError:
        raise UsageError(
            "query.private: neither true nor false", hint="GET /openapi.json describes it"
        ) from None


def check_records(request: Request, viewer: Viewer, relation: Relation) -> None:
    """Check the viewer's access to tuning records. Raises ForbiddenError for shared records that
    the viewer may not read or change."""
    may_read = viewer.is_operator or viewer.reads_public
    is_allowed = may_read if relation is Relation.READS_RECORDS else viewer.is_operator
    if not is_allowed and not asks_for_private(request):
        refusal = too_low(viewer.name, viewer.role, Role.OPERATOR)
        raise ForbiddenError(
            f"tuning records that all users share: {refusal.message}",
            hint=f"{refusal.hint}; private=true (--private) selects your own records",
        )


async def check(request: Request) -> None:
    """Check a request against the access table. Raises ForbiddenError if the user's role is too
    low, and the errors of `Access.check_relation`."""
    operation = (request.method, request.scope["route"].path)
    rule = TABLE.get(operation)
    if rule is None:
        raise ForbiddenError(
            f"{' '.join(operation)} has no access rule, so nobody may use it",
            hint="this is a defect of Farrier: farrier_server.access declares the rules",
        )
    if rule.least is None:
        return
    caller = request.scope[CALLER]
    if not caller.role.includes(rule.least):
        raise too_low(caller.owner, caller.role, rule.least)
    access: Access = request.app.state.access
    if rule.relation is not Relation.NONE:
        await run_in_threadpool(access.check_relation, request, rule.relation)


def too_low(name: str, role: Role, least: Role) -> ForbiddenError:
    """Return the error for the user `name`, whose `role` is below `least`, the lowest role that is
    allowed."""
    return ForbiddenError(
        f"this needs the role {least}, but {name} has the role {role}",
        hint=f"an admin of the farm assigns roles: farrier tokens add NAME --role {least} "
        "creates a token with this role",
    )


def _refused(job: Job, relation: Relation) -> ForbiddenError | PrivateError:
    """Return the error for an action on a job that the caller may see but may not act on."""
    if relation is Relation.READS_JOB and is_private(job):
        return PrivateError(
            f"job {job.id} is private to {job.owner}",
            hint="use a token of this user; other users may see only the state of the job",
        )
    whose = {
        Relation.READS_JOB: "only its owner, their group and admins may read its results",
        Relation.STOPS_JOB: "only its owner, their group and operators may cancel it",
        Relation.CHANGES_JOB: "only its owner and admins may change it",
    }[relation]
    return ForbiddenError(
        f"job {job.id} belongs to {job.owner}: {whose}",
        hint=f"ask {job.owner}, or an admin for a token of the same group",
    )


async def _job(request: Request, job_id: JobId) -> Job:
    """Return the job whose id is in the request's path; `check` has read it before. The parameter
    `job_id` exists because FastAPI writes it to the OpenAPI document."""
    job: Job = request.state.job
    return job


async def _viewer(request: Request) -> Viewer:
    access: Access = request.app.state.access
    return access.viewer(request)


async def _access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


async def _users(request: Request) -> Users:
    return (await _access(request)).users


AccessDep = Annotated[Access, Depends(_access)]
UsersDep = Annotated[Users, Depends(_users)]
ViewerDep = Annotated[Viewer, Depends(_viewer)]
"""The user who sent the request, for answers that depend on the rights of the user."""
JobDep = Annotated[Job, Depends(_job)]
"""The job that the request's path names, which `check` has already read."""
