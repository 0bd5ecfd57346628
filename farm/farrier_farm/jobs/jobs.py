"""Jobs, from the request to the artifact or the reason why there is none; `kinds.py` has their
kinds."""

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
REFERS = ("model", "artifact", "compiled", VERSIONS)  # fields that name what a job keeps
_WAITING = "place:"  # and a place: the queue of jobs that wait for a device there
_WAITING_BEFORE = "device:"  # and a target: the same, of versions without device classes


@dataclasses.dataclass(frozen=True, slots=True)
class TimeUsed:
    """Seconds that the attempts at a job have taken together, as the last renewal told."""

    worked_s: float = 0.0  # from the start of each to its end
    tuned_s: float = 0.0  # of these, what counts against a budget


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job(JobStatus):
    """A snapshot. `model` is the id of a model (`models.Manifest.id`) and `artifact` the sha256 of
    a blob, of several versions the one in use; `options` are the fields of `CompileOptions`,
    perhaps of a newer version; `error` is a problem: `{"code", "message", "hint"}`. A job without a
    `place`, the devices that measure it, was queued by a version without device classes. A job that
    lists kernels is `of` a compilation, whose artifact is `compiled`."""

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
        """Raises UsageError for options that this version does not know."""
        return CompileOptions.from_dict(self.options)

    def find_version(self, number: int) -> JobVersion:
        """Return the version with a number. Raises NotFoundError."""
        if 1 <= number <= len(self.versions):
            return self.versions[number - 1]
        raise NotFoundError(
            f"job {self.id} has no version {number}", hint=_known_versions(len(self.versions))
        )


@dataclasses.dataclass(frozen=True, slots=True)
class JobPage:
    """`next` is the `after` of the next page, "" on the last one; `complete` says whether all jobs
    were looked at that could belong on this one."""

    jobs: Sequence[Job]
    next: str
    complete: bool


class Jobs:
    """Every method raises ServiceError where Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings, admission: Admission) -> None:
        self._leases = {
            kind: Leases(client, kind.items, _policy(kind, settings)) for kind in JobKind
        }
        self.leases = self._leases[JobKind.COMPILE]
        self.trials = Trials(client, settings.trials_kept)
        self._admission = admission

    def leases_of(self, job_id: str) -> Leases:
        """The items of the kind that a job is of."""
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
        """Queue a job; durable when this returns. With a key that its owner has used before,
        return the job of that key, or raise ConflictError where model, options or name differ
        from that job's. Raises QueueFullError where the owner, or all together, have too many.

        `against` are engines that it is raced with, once it is verified. One that is to have its
        artifact `now` has it as soon as the untuned model is verified, and better versions of it
        later; UsageError where nothing is tuned. What a `private` one measures is found by its
        owner's private jobs alone, and trains nobody's cost model. Of the jobs of an owner those of
        a higher `priority` are leased first. A job whose model is `lent` is not a claim to the
        model (`owners.py`).

        Its target is what was `admitted`, where the caller has done so; else it is admitted as the
        devices are now, which raises what `Admission.admit` does. A job that is to wait for a
        device, and needs one, stays in the queue while there is none.
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
        """The job that `submit` would find rather than queue. Raises ConflictError as that."""
        once = _once(owner, idempotency_key)
        digest = _digest(model, options, name, against, now, private, priority)
        job_id = self.leases.find(once, digest)
        return None if job_id is None else self.get(job_id)

    def inspect(self, model: str, *, owner: str = DEFAULT, lent: bool = False) -> tuple[Job, bool]:
        """Queue the inspection of a model for a user, where there is none of theirs that goes on
        or succeeded; the second value says whether it did. The inspection of a `lent` model is not
        a claim to it (`owners.py`). Raises QueueFullError."""
        fields = {"target": "", "options": "{}", "model": model, "name": "", **_loan(lent)}
        return self._prepare(JobKind.INSPECT, _inspected(model, owner), fields, owner)

    def inspection(self, model: str, owner: str) -> Job | None:
        """The inspection that a user has asked for of a model, as it stands. Each user has one of
        their own, which says nothing of what others have."""
        return self.prepared(JobKind.INSPECT, _inspected(model, owner))

    def list_kernels(self, job: Job, *, owner: str = DEFAULT) -> tuple[Job, bool]:
        """The same for the listing of a compilation's kernels, private where that is. Raises
        ConflictError for one that has no artifact, NotFoundError for one that was deleted
        meanwhile, QueueFullError."""
        if job.kind is not JobKind.COMPILE or job.artifact is None:
            raise ConflictError(
                f"job {job.id} is {job.state}: it has no kernels to list",
                hint="list those of a compilation that has succeeded",
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
        if self.leases.state(job.id) is None:  # whoever deleted it did not find the listing
            with contextlib.suppress(NotFoundError):
                self._leases[JobKind.LIST].forget(listing.id)
            raise self.leases.unknown(job.id)
        return listing, is_new

    def prepared(self, kind: JobKind, of: str) -> Job | None:
        """The inspection of a model, or the listing of a job, as it stands."""
        job_id = self._leases[kind].find(_once_of(of), "")
        try:
            return None if job_id is None else self.get(job_id)
        except NotFoundError:  # forgotten meanwhile
            return None

    def _prepare(
        self, kind: JobKind, of: str, fields: dict[str, str], owner: str
    ) -> tuple[Job, bool]:
        """What was prepared once is had again; what failed, or is of another version of a job's
        artifact, is done anew."""
        before = self.prepared(kind, of)
        if before is not None:
            is_wanted = not before.state.final or before.state is State.SUCCEEDED
            if is_wanted and before.compiled == fields.get("compiled"):
                return before, False
            with contextlib.suppress(NotFoundError):  # another request was quicker
                self._leases[kind].forget(before.id)
        own = kind.new_id()
        found = self._leases[kind].put(own, kind, fields, share=owner, once=_once_of(of))
        return self.get(found), found == own

    def get(self, job_id: str) -> Job:
        """Raises NotFoundError."""
        return _job(job_id, self.leases_of(job_id).fields(job_id))

    def expired(self, ended_before: float, most_bytes: int, limit: int) -> list[str]:
        """As `Leases.expired`, of each kind."""
        kinds = self._leases.values()
        return [one for each in kinds for one in each.expired(ended_before, most_bytes, limit)]

    def many(self, ids: Iterable[str]) -> list[Job]:
        """Those of the jobs, all of one kind, that are known, in one round trip."""
        given = list(ids)
        leases = self.leases_of(given[0]) if given else self.leases
        return [_job(*one) for one in leases.fields_of_many(given).items()]

    def list(
        self,
        *,
        limit: int = 50,
        after: str = "",
        state: State | None = None,
        owner: str = "",
        kind: JobKind = JobKind.COMPILE,
    ) -> tuple[list[Job], str]:
        """Those of a kind, newest first, of all owners or of one; the second value is the `after`
        of the next page, "" on the last one."""
        leases = self._leases[kind]
        ids = leases.members(share=owner, state=state, after=after, limit=limit + 1)
        page, more = ids[:limit], len(ids) > limit
        return self.many(page), page[-1] if more else ""

    def search(
        self, query: JobQuery, *, limit: int = 50, after: str = "", kind: JobKind = JobKind.COMPILE
    ) -> JobPage:
        """The jobs of a kind that match, a page of them. Raises UsageError for an `after` that no
        page has given."""
        found = search(self._leases[kind], query, limit, after)
        return JobPage(self.many(found.ids), found.next, found.complete)

    def counts(self, shown: Shown | None = None) -> dict[State, int]:
        """Return the number of compilations in each state, among those that a user sees. All are
        counted if `shown` is None or includes the jobs of all owners."""
        if shown is None or shown.public:
            return self.leases.counts()
        each = [self.leases.counts(share) for share in shown.owners]
        return {state: sum(counts[state] for counts in each) for state in State}

    def cancel(self, job_id: str) -> Job:
        """Cancelled when this returns (a running attempt is fenced out and killed soon after).
        Cancelling twice is no error; ConflictError for a job that ended otherwise,
        NotFoundError."""
        state = self.leases_of(job_id).cancel(job_id)
        if state is not State.CANCELLED:
            raise ConflictError(f"job {job_id} has {state} already", hint="its state is final")
        return self.get(job_id)

    def lease(self, worker: str, timeout_s: float) -> Lease | None:
        """The oldest queued compilation of the owner whose turn it is, waiting up to `timeout_s`
        for one; of those that wait for a device only where there is one as this begins."""
        queues = self.leases.queues()
        waiting = [q for q in queues if q != JobKind.COMPILE and self.leases.length(q)]
        ready = [queue for queue in waiting if self._is_served(queue)]
        away = [queue for queue in waiting if queue not in ready]
        if away:
            self.leases.reap(away)  # a worker may be lost together with the device
        return self.leases.take(worker, [JobKind.COMPILE, *ready], timeout_s)

    def lease_prepared(self, worker: str) -> Lease | None:
        """The same of the short kinds, inspections first, where one is queued by now."""
        for kind in PREPARED:
            lease = self._leases[kind].take(worker, [kind], 0.0)
            if lease is not None:
                return lease
        return None

    def renew(self, lease: Lease, used: TimeUsed | None = None) -> None:
        """Note what the attempts have used, this one included. Raises StaleLeaseError."""
        fields = {} if used is None else dataclasses.asdict(used)
        self.leases_of(lease.item).renew(
            lease, {name: _to_json(value) for name, value in fields.items()}
        )

    def say(self, lease: Lease, number: int, event: progress.Event) -> None:
        """Store an event of the running attempt, numbered from 1. Schedules of tasks are no event
        of the job's stream: there may be thousands. Raises StaleLeaseError."""
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
        """End the job with the digest of its artifact, and its size. Raises StaleLeaseError."""
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
        """Give the job the next version of its artifact, and tell of it, in the event `number` of
        the running attempt. Raises StaleLeaseError, and what `times_of` does."""
        before = self.get(lease.item).versions
        new = next_version(before, artifact, artifact_bytes, report)
        event = progress.VersionAdded(new.number, new.median_ms, new.untuned_ms)
        text = _to_json(progress.to_dict(event))
        self.leases.write(lease, number, text, fields_with(before, new, report), Part.LOG)

    def succeed_as_it_is(self, lease: Lease) -> None:
        """End a job whose artifact is what its versions are by now. Raises StaleLeaseError."""
        self.leases.finish(lease, State.SUCCEEDED, {})

    def roll_back(self, job_id: str, to: int) -> Job:
        """Have the job's artifact be the version with this number, and stay it: versions that are
        added from now on are listed, and not put into use. Its log tells of it. Doing so again
        changes nothing. Raises NotFoundError."""
        version = self.get(job_id).find_version(to)
        event = _to_json(progress.to_dict(progress.RolledBack(version.number)))
        self.leases_of(job_id).set(job_id, {KEPT: str(version.number)}, event)
        return self.get(job_id)

    def fail(self, lease: Lease, error: FarrierError) -> None:
        """End the job with a problem that no further attempt would solve. Raises
        StaleLeaseError."""
        problem = {"code": error.code, "message": error.message, "hint": error.hint}
        self.leases_of(lease.item).finish(lease, State.FAILED, {"error": _to_json(problem)})

    def give_back(self, lease: Lease, *, crashed: bool, reason: str) -> State:
        """End the attempt but not the job, unless it crashed too often. Raises StaleLeaseError."""
        return self.leases_of(lease.item).give_back(lease, crashed=crashed, reason=reason)

    def admitted(self, job: Job) -> Admitted:
        """What a job's target came to. That of a job which a version without device classes queued
        is admitted now. Raises UsageError as `Job.compile_options`, and what `Admission.admit`
        does."""
        options = job.compile_options
        if job.place is not None:
            return Admitted(options.target, job.place)
        return self._admission.admit(job.target, measured=options.needs_device)

    def _is_served(self, queue: str) -> bool:
        """Whether there is a device for the jobs that wait in a queue."""
        try:
            if queue.startswith(_WAITING_BEFORE):
                target = queue.removeprefix(_WAITING_BEFORE)
                place = self._admission.admit(target, measured=True).place
            else:
                place = MeasurementTarget.of_queue(queue.removeprefix(_WAITING))
        except FarrierError:  # what only another version knows has no device either
            return False
        return self._admission.is_served(place)

    def reap(self) -> int:
        """Requeue jobs whose worker is gone, where no worker asks for one; return how many."""
        return sum(leases.reap(leases.queues()) for leases in self._leases.values())


_HINTS = {
    JobKind.COMPILE: "compile the model alone with `farrier compile` to see the crash",
    JobKind.INSPECT: "`farrier inspect MODEL` shows the crash",
    JobKind.LIST: "compile the model alone with `farrier compile --dump` to see its kernels",
}


def _policy(kind: JobKind, settings: Settings) -> LeasePolicy:
    """Whoever watches the farm is told of compilations alone."""
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
        return "a job that is submitted with --now has some, once its model is verified"
    return "there is version 1 alone" if count == 1 else f"there are the versions 1 to {count}"


def _once_of(of: str) -> str:
    """The key under which something is prepared: by each version of Farrier once, for a newer one
    may say more."""
    return f"{of}{SCOPE}{farrier.__version__}"


def _inspected(model: str, owner: str) -> str:
    return f"{owner}{SCOPE}{model}"


def _fields(admitted: Admitted, options: CompileOptions) -> dict[str, str]:
    """What a job's target was, and what it came to."""
    settled = dataclasses.replace(options, target=admitted.target)
    return {
        "target": options.target,
        "class": admitted.place.device_class,
        "device": admitted.place.device,
        "options": _to_json(settled.to_dict()),
    }


def _loan(lent: bool) -> dict[str, str]:
    """The field of a job that is not a claim to its model."""
    return {"lent": "1"} if lent else {}


def _once(owner: str, key: str) -> str:
    """A key is its owner's. Older versions, which knew of one user, stored it as it is."""
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
    """Of what the submitter decides; of what older versions know, it is as theirs."""
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
    """Return the fields of a job's progress that an event changes."""
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
    """JSON knows no infinity: a time that is not known yet is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _to_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# The newest that a running job reported; each may be unknown.
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
