"""What each role may ask for, and of whose: one table, and the one place that holds to it.

Every operation of the API has a rule in `TABLE`, by method and path template: the least role, and
the relation that its caller must have to the object of the path. `check` is a dependency of the
whole application, so it runs before every route; an operation without a rule is refused. What a
caller may not even know of is answered as what does not exist.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Annotated

from fastapi import Depends, Path, Request
from starlette.concurrency import run_in_threadpool

from farrier.errors import ForbiddenError, PrivateError, UsageError
from farrier_farm.farm import Farm
from farrier_farm.jobs import Job
from farrier_farm.kinds import Kind
from farrier_farm.users import Role, Users
from farrier_server.gate import CALLER
from farrier_server.viewer import Viewer

_JOB_ID = r"^[\w.:-]+$"
_LONGEST_ID = 100
JobId = Annotated[str, Path(description="of the job", max_length=_LONGEST_ID, pattern=_JOB_ID)]


class Relation(enum.StrEnum):
    """The relation of a caller to the object of a request's path."""

    NONE = "none"  # the object is nobody's, or the answer shows what the caller may see alone
    SEES_JOB = "sees job"  # that there is this job, and its standing
    READS_JOB = "reads job"  # its results
    STOPS_JOB = "stops job"
    CHANGES_JOB = "changes job"


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """The least role for an operation, None for strangers, and the relation that it takes."""

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

TABLE: Mapping[tuple[str, str], Rule] = {
    ("GET", "/healthz"): _STRANGER,
    ("GET", "/readyz"): _STRANGER,
    ("GET", "/metrics"): _OPERATOR,
    ("POST", "/v1/session"): _STRANGER,  # the token is in the body
    ("GET", "/v1/session"): _USER,
    ("DELETE", "/v1/session"): _USER,
    ("GET", "/v1/overview"): _USER,
    ("GET", "/v1/events"): _USER,
    ("POST", "/v1/uploads"): _USER,
    ("GET", "/v1/uploads/{upload_id}"): _USER,
    ("HEAD", "/v1/uploads/{upload_id}"): _USER,
    ("PATCH", "/v1/uploads/{upload_id}"): _USER,
    ("POST", "/v1/models"): _USER,
    ("GET", "/v1/models/{model_id}"): _USER,
    ("GET", "/v1/models/{model_id}/inspection"): _USER,
    ("POST", "/v1/models/{model_id}/inspection"): _USER,
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
    ("GET", "/v1/devices"): _USER,
    ("GET", "/v1/devices/{device_id}"): _USER,
    ("GET", "/v1/devices/{device_id}/history"): _USER,
    ("POST", "/v1/devices/{device_id}/release"): _OPERATOR,
    ("POST", "/v1/devices/{device_id}/trust"): _OPERATOR,
    ("POST", "/v1/devices/{device_id}/untrust"): _OPERATOR,
    ("GET", "/v1/classes"): _USER,
    ("GET", "/v1/targets"): _USER,
    ("GET", "/v1/records"): _USER,
    ("GET", "/v1/records/fastest"): _USER,
    ("GET", "/v1/records/export"): _USER,
    ("POST", "/v1/records/import"): _USER,
    ("POST", "/v1/records/prune"): _USER,
    ("GET", "/v1/cost-model"): _USER,
    ("POST", "/v1/cost-model/rollback"): _OPERATOR,
}


class Access:
    """The judge of who may do what on one farm."""

    def __init__(self, farm: Farm, users: Users) -> None:
        self._farm = farm
        self._users = users

    def viewer(self, request: Request) -> Viewer:
        """The user whose request it is, as they stand now. Raises StorageError."""
        return Viewer.of(request.scope[CALLER], self._users, self._farm.settings)

    def check_relation(self, request: Request, relation: Relation) -> None:
        """Raises NotFoundError for what the caller may not know of, ForbiddenError, PrivateError
        for what they may not do with it."""
        if relation is not Relation.NONE:
            self._check_job(request, self.viewer(request), relation)

    def _check_job(self, request: Request, viewer: Viewer, relation: Relation) -> None:
        job_id = request.path_params["job_id"]
        if len(job_id) > _LONGEST_ID or not re.search(_JOB_ID, job_id):
            raise UsageError(f"{job_id[:_LONGEST_ID]!r} is not an id of a job")
        job = self._farm.jobs.get(job_id)
        whole = self._of(job)
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

    def _of(self, job: Job) -> Job:
        """The job whose owner decides: of a listing, the compilation that it is of."""
        if job.kind is Kind.LIST:
            found = self._farm.jobs.many([job.of])
            return found[0] if found else job
        return job


async def check(request: Request) -> None:
    """Raises ForbiddenError unless the table lets the request's user do what it asks for, and what
    `Access.check_relation` does."""
    operation = (request.method, request.scope["route"].path)
    rule = TABLE.get(operation)
    if rule is None:
        raise ForbiddenError(
            f"{' '.join(operation)} has no rule of access, so nobody may ask for it",
            hint="a defect of Farrier: farrier_server.access declares the rules",
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
    """The refusal of what takes another role."""
    return ForbiddenError(
        f"this takes the role {least}, and {name} has the role {role}",
        hint="an admin of the farm grants roles: farrier tokens add NAME --role "
        f"{least} makes a token with this one",
    )


def _refused(job: Job, relation: Relation) -> ForbiddenError | PrivateError:
    """The refusal of a job that the caller sees."""
    if relation is Relation.READS_JOB and (job.private or job.kind is Kind.INSPECT):
        return PrivateError(
            f"job {job.id} is private to {job.owner}",
            hint="ask with a token of theirs; others see how it stands, and no more",
        )
    whose = {
        Relation.READS_JOB: "its results are for its owner, their group and admins",
        Relation.STOPS_JOB: "its owner, their group and operators may cancel it",
        Relation.CHANGES_JOB: "its owner and admins may change it",
    }[relation]
    return ForbiddenError(
        f"job {job.id} is a job of {job.owner}: {whose}",
        hint=f"ask {job.owner}, or an admin for a token of the same group",
    )


async def _job(request: Request, job_id: JobId) -> Job:
    """`job_id` is named for the OpenAPI document."""
    job: Job = request.state.job
    return job


async def _viewer(request: Request) -> Viewer:
    access: Access = request.app.state.access
    return access.viewer(request)


ViewerDep = Annotated[Viewer, Depends(_viewer)]
"""The user whose request it is, for what an answer may show."""
JobDep = Annotated[Job, Depends(_job)]
"""The job of a route about one, which `check` has read."""
