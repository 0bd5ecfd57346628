"""Jobs, from the request to the artifact or the error. The kinds of jobs are in `kinds.py`."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import farrier
from farrier import progress
from farrier.errors import ConflictError, FarrierError, NotFoundError
from farrier.options import CompileOptions
from farrier.sdk.job import JobStatus, JobVersion
from farrier_farm.access.users import DEFAULT
from farrier_farm.devices.classes import MeasurementTarget
from farrier_farm.errors import DeviceAwayError
from farrier_farm.events.farm_events import NEWS
from farrier_farm.jobs.admission import Admission, Admitted
from farrier_farm.jobs.kinds import PREPARED, JobKind
from farrier_farm.jobs.priorities import Priority
from farrier_farm.jobs.search import JobQuery, Shown, search
from farrier_farm.jobs.trials import Trials
from farrier_farm.jobs.versions import (
    KEPT,
    VERSIONS,
    current_of,
    fields_with,
    next_version,
    versions_of,
)
from farrier_farm.leases.leases import SCOPE, Lease, LeasePolicy, Leases, Part
from farrier_farm.leases.states import State
from farrier_farm.redis.connection import Client
from farrier_farm.settings import Settings

_BESIDE = (
    *("events", "log", "curve", "curves", "trials", "fastest", "found", "rows", "tasks"),
    "measured",
)
# The fields that name the blobs and models that a job refers to.
REFERS = ("model", "artifact", "compiled", VERSIONS)
_WAITING = "place:"  # The prefix, before a place, of a queue of jobs that wait for a device.
_WAITING_BEFORE = "device:"  # The same prefix in versions without device classes, before a target.


@dataclasses.dataclass(frozen=True, slots=True)
class TimeUsed:
    """The seconds that all attempts at a job have used together, as of the last renewal of its
    lease."""

    worked_s: float = 0.0  # From the start of each attempt to its end.
    tuned_s: float = 0.0  # The part that counts against a tuning budget.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job(JobStatus):
    """A snapshot of a job.

    `model` is the id of a model (`models.Manifest.id`). `artifact` is the SHA-256 of the artifact's
    blob; if the artifact has several versions, of the version in use. `options` are the fields of
    `CompileOptions`, perhaps of a newer version. `error` is a JSON problem: `{"code", "message",
    "hint"}`. `place` are the devices that measure for the job, or None if the job was queued by a
    version without device classes. For a listing of kernels, `of` is the id of the compilation job,
    and `compiled` is the artifact of that job.
    """

    kind: JobKind
    state: State
    options: dict[str, Any]
    report: dict[str, Any] | None
    error: dict[str, str] | None
    priority: Priority
    place: MeasurementTarget | None
    crashes: int
    worker: str | None
    used: TimeUsed
    of: str
    compiled: str | None

    @property
    def compile_options(self) -> CompileOptions:
        """Return the compile options. Raises UsageError if they contain an option that this version
        does not have."""
        return CompileOptions.from_dict(self.options)

    def find_version(self, number: int) -> JobVersion:
        """Return the version of the artifact with this number. Raises NotFoundError."""
        if 1 <= number <= len(self.versions):
            return self.versions[number - 1]
        raise NotFoundError(
            f"job {self.id} has no version {number}", hint=_known_versions(len(self.versions))
        )


@dataclasses.dataclass(frozen=True, slots=True)
class JobPage:
    """A page of jobs. `next` is the `after` of the next page, "" on the last page; `complete` is
    false if the search reached its limit, so that older matching jobs may exist."""

    jobs: Sequence[Job]
    next: str
    complete: bool


class Jobs:
    """The jobs of a farm. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings, admission: Admission) -> None:
        self._leases = {
            kind: Leases(client, kind.items, _policy(kind, settings)) for kind in JobKind
        }
        self.leases = self._leases[JobKind.COMPILE]
        self.trials = Trials(client, settings.trials_kept)
        self._admission = admission

    def leases_of(self, job_id: str) -> Leases:
        """Return the leases of all jobs of the same kind as the job `job_id`."""
        return self._leases[JobKind.of(job_id)]

    def submit(
        self,
        model: str,
        options: CompileOptions,
        *,
        name: str = "",
        owner: str = DEFAULT,
        idempotency_key: str = "",
        wait_for_device: bool = False,
        admitted: Admitted | None = None,
        against: Sequence[str] = (),
        now: bool = False,
        private: bool = False,
        priority: Priority = Priority.NORMAL,
        lent: bool = False,
    ) -> Job:
        """Queue a job durably and return it. If the owner has used the idempotency key before,
        return the job of that key instead, or raise ConflictError if model, options or name differ
        from that job's. Raises QueueFullError if the owner, or all users together, have too many
        queued jobs.

        `against` names other inference engines; the verified model is compared with each of them.
        With `now`, the untuned model becomes an artifact as soon as it is verified, and better
        versions follow; raises UsageError if the options request no tuning. The tuning records of a
        `private` job are visible only to private jobs of the same owner, and train no cost model.
        `priority` orders the jobs of one owner. `lent` marks a model that its owner may use only
        through other users: such a job is not a claim to the model (`owners.py`).

        `admitted` is the resolved target; if None, the target is resolved here, with the errors of
        `Admission.admit`. With `wait_for_device`, a job that needs a device is queued even if none
        is connected.
        """
        if now:
            options.require_tuning()
        if admitted is None:
            admitted = self._admission.admit(options.target, measured=options.needs_device)
        queue, reason = str(JobKind.COMPILE), ""
        if wait_for_device and options.needs_device:
            queue = f"{_WAITING}{admitted.place.queue}"
            try:
                self._admission.require(admitted.place)
            except DeviceAwayError as error:
                reason = error.message
        job_id = self.leases.put(
            JobKind.COMPILE.new_id(),
            queue,
            {
                **_fields(admitted, options),
                "model": model,
                "name": name,
                "against": " ".join(against),
                "now": "01"[now],
                "private": "01"[private],
                **({} if priority is Priority.NORMAL else {"priority": str(priority)}),
                **_loan(lent),
            },
            share=owner,
            once=_once(owner, idempotency_key),
            digest=_digest(model, options, name, against, now, private, priority),
            reason=reason,
        )
        return self.get(job_id)

    def find_submitted(
        self,
        model: str,
        options: CompileOptions,
        *,
        name: str = "",
        owner: str = DEFAULT,
        idempotency_key: str = "",
        against: Sequence[str] = (),
        now: bool = False,
        private: bool = False,
        priority: Priority = Priority.NORMAL,
    ) -> Job | None:
        """Return the existing job that `submit` would return for these arguments, or None if
        `submit` would queue a new job. Raises ConflictError as `submit` does."""
        once = _once(owner, idempotency_key)
        digest = _digest(model, options, name, against, now, private, priority)
        job_id = self.leases.find(once, digest)
        return None if job_id is None else self.get(job_id)

    def inspect(self, model: str, *, owner: str = DEFAULT, lent: bool = False) -> tuple[Job, bool]:
        """Queue the inspection of a model for a user, unless an inspection for that user is in
        progress or has succeeded. Return the inspection, and whether it is new. The inspection of a
        `lent` model is not a claim to the model (`owners.py`). Raises QueueFullError."""
        fields = {"target": "", "options": "{}", "model": model, "name": "", **_loan(lent)}
        return self._prepare(JobKind.INSPECT, _inspected(model, owner), fields, owner)

    def inspection(self, model: str, owner: str) -> Job | None:
        """Return a user's inspection of a model, or None. Users have separate inspections, so that
        an inspection does not reveal that another user has the model."""
        return self.prepared(JobKind.INSPECT, _inspected(model, owner))

    def list_kernels(self, job: Job, *, owner: str = DEFAULT) -> tuple[Job, bool]:
        """Queue the listing of the kernels of a compilation job, unless a listing is in progress or
        has succeeded. Return the listing, and whether it is new. The listing is private if `job`
        is. Raises ConflictError for a compilation without an artifact, NotFoundError if the
        compilation was deleted meanwhile, QueueFullError."""
        if job.kind is not JobKind.COMPILE or job.artifact is None:
            raise ConflictError(
                f"job {job.id} is {job.state}: it has no kernels to list",
                hint="only a successful compilation has a list of kernels",
            )
        fields = {
            "target": job.target,
            "options": _to_json(job.options),
            "model": job.model,
            "name": job.name,
            "of": job.id,
            "compiled": job.artifact,
            "private": "01"[job.private],
        }
        listing, is_new = self._prepare(JobKind.LIST, job.id, fields, owner)
        # The deletion of the job did not see the new listing, so remove it.
        if self.leases.state(job.id) is None:
            with contextlib.suppress(NotFoundError):
                self._leases[JobKind.LIST].forget(listing.id)
            raise self.leases.unknown(job.id)
        return listing, is_new

    def prepared(self, kind: JobKind, of: str) -> Job | None:
        """Return the inspection of the model `of` or, depending on `kind`, the listing of the
        compilation job `of`. Return None if there is none."""
        job_id = self._leases[kind].find(_once_of(of), "")
        try:
            return None if job_id is None else self.get(job_id)
        except NotFoundError:  # The job was deleted meanwhile.
            return None

    def _prepare(
        self, kind: JobKind, of: str, fields: dict[str, str], owner: str
    ) -> tuple[Job, bool]:
        """Return the inspection of the model `of` or the listing of the job `of`, and whether it is
        new. A new job with these `fields` is queued if there is none, if the existing job failed or
        was cancelled, or if the existing listing belongs to another version of the artifact."""
        before = self.prepared(kind, of)
        if before is not None:
            is_wanted = not before.state.final or before.state is State.SUCCEEDED
            if is_wanted and before.compiled == fields.get("compiled"):
                return before, False
            with contextlib.suppress(NotFoundError):  # Another request has removed it already.
                self._leases[kind].forget(before.id)
        own = kind.new_id()
        queued = self._leases[kind].put(own, kind, fields, share=owner, once=_once_of(of))
        return self.get(queued), queued == own

    def get(self, job_id: str) -> Job:
        """Return a job. Raises NotFoundError."""
        return _job(job_id, self.leases_of(job_id).fields(job_id))

    def expired(self, ended_before: float, most_bytes: int, limit: int) -> list[str]:
        """Return the ids of the jobs, of all kinds, that the retention limits no longer keep. The
        limits apply to each kind separately, as in `Leases.expired`."""
        kinds = self._leases.values()
        return [item for each in kinds for item in each.expired(ended_before, most_bytes, limit)]

    def many(self, ids: Iterable[str]) -> list[Job]:
        """Return the existing jobs with these ids, which must be of the same kind, in one round
        trip to Redis."""
        job_ids = list(ids)
        leases = self.leases_of(job_ids[0]) if job_ids else self.leases
        return [_job(*pair) for pair in leases.fields_of_many(job_ids).items()]

    def list(
        self,
        *,
        limit: int = 50,
        after: str = "",
        state: State | None = None,
        owner: str = "",
        kind: JobKind = JobKind.COMPILE,
    ) -> tuple[list[Job], str]:
        """Return jobs of a kind, newest first, of `owner` or of all owners, and the `after` of the
        next page, "" on the last page."""
        leases = self._leases[kind]
        ids = leases.members(share=owner, state=state, after=after, limit=limit + 1)
        page, more = ids[:limit], len(ids) > limit
        return self.many(page), page[-1] if more else ""

    def search(
        self, query: JobQuery, *, limit: int = 50, after: str = "", kind: JobKind = JobKind.COMPILE
    ) -> JobPage:
        """Return a page of the jobs of a kind that match the query. Raises UsageError for an
        `after` that no page has returned."""
        matches = search(self._leases[kind], query, limit, after)
        return JobPage(self.many(matches.ids), matches.next, matches.complete)

    def counts(self, shown: Shown | None = None) -> dict[State, int]:
        """Return the number of compilations in each state among the jobs that a user may see. If
        `shown` is None or includes the jobs of all owners, all compilations are counted."""
        if shown is None or shown.public:
            return self.leases.counts()
        each = [self.leases.counts(share) for share in shown.owners]
        return {state: sum(counts[state] for counts in each) for state in State}

    def cancel(self, job_id: str) -> Job:
        """Cancel a job durably. A running attempt can no longer change the job, and is killed soon
        after. Cancelling a cancelled job changes nothing. Raises ConflictError for a job that has
        succeeded or failed, NotFoundError."""
        state = self.leases_of(job_id).cancel(job_id)
        if state is not State.CANCELLED:
            raise ConflictError(f"job {job_id} has already {state}", hint="its state is final")
        return self.get(job_id)

    def lease(self, worker: str, timeout_s: float) -> Lease | None:
        """Lease the oldest queued compilation of the owner who is next in the fair order, waiting
        up to `timeout_s` for one. A job that waits for a device is leased only if a device is
        connected now."""
        queues = self.leases.queues()
        waiting = [q for q in queues if q != JobKind.COMPILE and self.leases.length(q)]
        ready = [queue for queue in waiting if self._is_served(queue)]
        away = [queue for queue in waiting if queue not in ready]
        if away:
            self.leases.reap(away)  # A worker may be lost together with the device.
        return self.leases.take(worker, [JobKind.COMPILE, *ready], timeout_s)

    def lease_prepared(self, worker: str) -> Lease | None:
        """Lease an inspection or, if there is none, a listing, without waiting."""
        for kind in PREPARED:
            lease = self._leases[kind].take(worker, [kind], 0.0)
            if lease is not None:
                return lease
        return None

    def renew(self, lease: Lease, used: TimeUsed | None = None) -> None:
        """Renew a lease, and store the time that all attempts at the job have used. Raises
        StaleLeaseError."""
        fields = {} if used is None else dataclasses.asdict(used)
        self.leases_of(lease.item).renew(
            lease, {name: _to_json(value) for name, value in fields.items()}
        )

    def say(self, lease: Lease, number: int, event: progress.Event) -> None:
        """Store an event of the running attempt; `number` counts from 1. Schedules of tasks are
        stored separately, because there may be thousands of them. Raises StaleLeaseError."""
        if isinstance(event, progress.TasksScheduled):
            if JobKind.of(lease.item) is JobKind.COMPILE:
                self.trials.schedule(lease.item, event)
            return
        raw = {name: _finite(value) for name, value in progress.to_dict(event).items()}
        news = _news(event)
        fields = {name: _to_json(_finite(value)) for name, value in news.items()}
        part = Part.CURVE if isinstance(event, progress.TrialsMeasured) else Part.LOG
        self.leases_of(lease.item).write(lease, number, _to_json(raw), fields, part)

    def succeed(
        self, lease: Lease, artifact: str, report: dict[str, Any], artifact_bytes: int = 0
    ) -> None:
        """End the job as succeeded, with the digest and size of its artifact. Raises
        StaleLeaseError."""
        fields = {
            "artifact": artifact,
            "artifact_bytes": str(artifact_bytes),
            "report": _to_json(report),
        }
        self.leases_of(lease.item).finish(lease, State.SUCCEEDED, fields)

    def add_version(
        self,
        lease: Lease,
        number: int,
        artifact: str,
        report: dict[str, Any],
        artifact_bytes: int,
    ) -> None:
        """Add the next version of the job's artifact, together with an event, which is the
        attempt's event `number`. Raises StaleLeaseError, and the errors of `times_of`."""
        before = self.get(lease.item).versions
        new = next_version(before, artifact, artifact_bytes, report)
        event = progress.VersionAdded(new.number, new.median_ms, new.untuned_ms)
        text = _to_json(progress.to_dict(event))
        self.leases.write(lease, number, text, fields_with(before, new, report), Part.LOG)

    def succeed_as_it_is(self, lease: Lease) -> None:
        """End the job as succeeded, with the newest of its versions as artifact. Raises
        StaleLeaseError."""
        self.leases.finish(lease, State.SUCCEEDED, {})

    def roll_back(self, job_id: str, to: int) -> Job:
        """Make the version with this number the job's artifact, permanently: later versions are
        listed but do not replace it. An event is added to the job's log. A repeated call changes
        nothing. Raises NotFoundError."""
        version = self.get(job_id).find_version(to)
        event = _to_json(progress.to_dict(progress.RolledBack(version.number)))
        self.leases_of(job_id).set(job_id, {KEPT: str(version.number)}, event)
        return self.get(job_id)

    def fail(self, lease: Lease, error: FarrierError) -> None:
        """End the job as failed, for an error that another attempt would not solve. Raises
        StaleLeaseError."""
        problem = {"code": error.code, "message": error.message, "hint": error.hint}
        self.leases_of(lease.item).finish(lease, State.FAILED, {"error": _to_json(problem)})

    def give_back(self, lease: Lease, *, crashed: bool, reason: str) -> State:
        """End the attempt, and put the job back into the queue unless it has crashed too often.
        Return the new state. Raises StaleLeaseError."""
        return self.leases_of(lease.item).give_back(lease, crashed=crashed, reason=reason)

    def admitted(self, job: Job) -> Admitted:
        """Return the resolved target of a job. If the job was queued by a version without device
        classes, resolve the target now. Raises UsageError as `Job.compile_options` does, and the
        errors of `Admission.admit`."""
        options = job.compile_options
        if job.place is not None:
            return Admitted(options.target, job.place)
        return self._admission.admit(job.target, measured=options.needs_device)

    def _is_served(self, queue: str) -> bool:
        """Return whether a device is connected that can measure the jobs of this queue."""
        try:
            if queue.startswith(_WAITING_BEFORE):
                target = queue.removeprefix(_WAITING_BEFORE)
                place = self._admission.admit(target, measured=True).place
            else:
                place = MeasurementTarget.of_queue(queue.removeprefix(_WAITING))
        except FarrierError:  # A target that only another version knows has no device either.
            return False
        return self._admission.is_served(place)

    def reap(self) -> int:
        """Return jobs whose worker has died to the queue; return the number of these jobs. `lease`
        does the same, so this call matters only while no worker leases jobs."""
        return sum(leases.reap(leases.queues()) for leases in self._leases.values())


_HINTS = {
    JobKind.COMPILE: "compile the model alone with `farrier compile` to see the crash",
    JobKind.INSPECT: "`farrier inspect MODEL` shows the crash",
    JobKind.LIST: "compile the model alone with `farrier compile --dump` to see its kernels",
}


def _policy(kind: JobKind, settings: Settings) -> LeasePolicy:
    """Return the lease policy of a kind of job. Only compilations cause events of the whole
    farm."""
    return LeasePolicy(
        lease_s=settings.lease_s,
        crashes=settings.job_crashes,
        hint=_HINTS[kind],
        events=settings.events_kept,
        refers=REFERS,
        share=DEFAULT,
        most_queued=settings.max_queued_jobs,
        most_of_share=settings.max_queued_jobs_of_owner,
        weighs="artifact_bytes",
        news="" if kind.is_prepared else NEWS,
        counts="" if kind.is_prepared else "finished",
        log=True,
        beside=_BESIDE,
    )


def _known_versions(count: int) -> str:
    if not count:
        return "only a job that is submitted with --now has versions, after its model is verified"
    return "the only version is 1" if count == 1 else f"the versions are 1 to {count}"


def _once_of(of: str) -> str:
    """Return the idempotency key for the inspection of the model `of` or the listing of the job
    `of`. The key contains the version of Farrier, because a newer version may extract more from the
    same model."""
    return f"{of}{SCOPE}{farrier.__version__}"


def _inspected(model: str, owner: str) -> str:
    return f"{owner}{SCOPE}{model}"


def _fields(admitted: Admitted, options: CompileOptions) -> dict[str, str]:
    """Return the fields in which a job stores its target: as requested (`options.target`), and as
    resolved (`admitted`)."""
    settled = dataclasses.replace(options, target=admitted.target)
    return {
        "target": options.target,
        "class": admitted.place.device_class,
        "device": admitted.place.device,
        "options": _to_json(settled.to_dict()),
    }


def _loan(lent: bool) -> dict[str, str]:
    """Return the field that marks a job whose model is lent (`owners.py`), or no field."""
    return {"lent": "1"} if lent else {}


def _once(owner: str, key: str) -> str:
    """Return the stored form of an idempotency key, which includes its owner. For the single user
    of older versions, the key is stored unchanged, as these versions did."""
    return key if owner == DEFAULT or not key else f"{owner}{SCOPE}{key}"


def _digest(
    model: str,
    options: CompileOptions,
    name: str,
    against: Sequence[str],
    now: bool,
    private: bool,
    priority: Priority,
) -> str:
    """Return a digest of the request. Fields that older versions do not have are included only if
    they are set, so that the digest otherwise equals that of an older version."""
    request: dict[str, Any] = {"model": model, "options": _to_json(options.to_dict()), "name": name}
    if against:
        request["against"] = list(against)
    if now:
        request["now"] = True
    if private:
        request["private"] = True
    if priority is not Priority.NORMAL:
        request["priority"] = str(priority)
    return hashlib.sha256(_to_json(request).encode()).hexdigest()


def _news(event: progress.Event) -> dict[str, Any]:
    """Return the fields of a job's progress that `event` changes, with their new values."""
    match event:
        case progress.StageStarted(stage=stage):
            return {"stage": stage}
        case progress.TasksFound(tasks=tasks):
            return {"tasks": tasks}
        case progress.TuningStarted(cost_model=cost_model):
            return {"cost_model": cost_model}
        case progress.TrialsMeasured():
            names = ("trials", "planned", "best_ms", "seconds_left")
            return {name: getattr(event, name) for name in names}
        case _:
            return {}


def _finite(value: Any) -> Any:
    """Return the value with null in place of infinite numbers, which JSON does not have. A time
    that was not measured yet is infinite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _to_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# The latest values that a running job reported; each may be unknown.
_PROGRESS = ("stage", "tasks", "trials", "planned", "best_ms", "seconds_left", "cost_model")


def _job(job_id: str, fields: dict[str, str]) -> Job:
    options = json.loads(fields["options"])
    progress = {name: json.loads(fields[name]) if name in fields else None for name in _PROGRESS}
    place = MeasurementTarget(fields["class"], fields["device"]) if "class" in fields else None
    versions = versions_of(fields)
    current = current_of(fields, versions)
    report = fields.get("report" if current is None else f"report:{current.number}")
    return Job(
        id=job_id,
        kind=JobKind.of(job_id),
        owner=fields.get("share", DEFAULT),
        state=State(fields["state"]),
        name=fields["name"],
        model=fields["model"],
        target=fields.get("target", str(options.get("target", "host"))),
        place=place,
        device_class=None if place is None else place.device_class,
        device=None if place is None else place.device or None,
        options=options,
        created=int(fields["created"]) / 1000,
        started=_seconds(fields.get("started")),
        finished=_seconds(fields.get("finished")),
        wait_for_device=fields["queue"] != JobKind.of(job_id),
        attempts=int(fields["attempts"]),
        crashes=int(fields["crashes"]),
        worker=fields.get("owner"),
        **progress,
        artifact=fields.get("artifact") if current is None else current.artifact,
        report=None if report is None else json.loads(report),
        error=json.loads(fields["error"]) if "error" in fields else None,
        against=tuple(fields.get("against", "").split()),
        now=fields.get("now") == "1",
        private=fields.get("private") == "1",
        versions=versions,
        version=None if current is None else current.number,
        version_is_kept=KEPT in fields,
        used=TimeUsed(*(float(fields.get(name, "0")) for name in ("worked_s", "tuned_s"))),
        of=fields.get("of", ""),
        compiled=fields.get("compiled"),
        priority=Priority(fields.get("priority", Priority.NORMAL)),
    )


def _seconds(milliseconds: str | None) -> float | None:
    return None if milliseconds is None else int(milliseconds) / 1000
