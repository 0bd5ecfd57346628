"""The orders of jobs: the work for a job's process, and the requests that the process may make, by
the kind of the job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farrier.errors import NotFoundError, StorageError
from farrier.options import CompileOptions
from farrier.progress import Listener
from farrier.records import RecordStore, TaskDefinition, TaskStore
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import Job
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.leases.leases import Lease
from farrier_farm.measurements.runner import FarmRunner


@dataclasses.dataclass(frozen=True, slots=True)
class Tuning:
    """The services of the farm that a compilation may use: measurements, tuning records, and
    definitions of tasks. `definitions` is None if cost models must not be trained on the records of
    this job."""

    runner: FarmRunner
    records: RecordStore
    definitions: TaskStore | None

    def define(self, definitions: Sequence[TaskDefinition]) -> None:
        """Store task definitions, as `TaskStore.define` does."""
        if self.definitions is not None:
            self.definitions.define(definitions)


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """The work of a job, and the requests that its process may make. `work` is added to the first
    frame of the job's channel. If `tuning` is None, the process may only report its progress and
    its end."""

    work: Mapping[str, Any]
    tuning: Tuning | None = None


def order_of(farm: Farm, job: Job, lease: Lease, listener: Listener) -> Order:
    """Return the order for a job's process: its work, and the requests that it may make. Raises
    FarrierError for a job that cannot start."""
    return _ORDERS[job.kind](farm, job, lease, listener)


def _compile(farm: Farm, job: Job, lease: Lease, listener: Listener) -> Order:
    admitted = farm.jobs.admitted(job)
    options = dataclasses.replace(_options(farm, job), target=admitted.target)
    if options.budget_s is not None:
        left = max(0.0, options.budget_s - job.used.tuned_s)
        options = dataclasses.replace(options, budget_s=left)
    runner = farm.runner(admitted.place, lease, listener, job.owner)
    records = farm.job_records(farm.records_of(job), admitted.place, runner)
    tuning = Tuning(runner, records, None if job.private else farm.definitions)
    work = {"options": options.to_dict(), "against": list(job.against), "now": job.now}
    if job.versions:
        work["artifact"] = str(farm.blobs.verified(job.versions[-1].artifact))
    return Order({**work, **_cost_model(farm, job)}, tuning)


def _cost_model(farm: Farm, job: Job) -> dict[str, Any]:
    """Return the name and the path of the cost model with which tuning starts. The result is empty
    if the process should use the built-in model: if no trained version is in use, or after a crash,
    which a trained version may have caused."""
    version = farm.cost_models.in_use()
    if version is None or job.crashes:
        return {}
    try:
        path = farm.blobs.verified(version.blob)
    except (NotFoundError, StorageError):  # The version was removed or damaged by hand.
        return {}
    return {"cost_model": str(path), "cost_model_name": f"version {version.number}"}


def _options(farm: Farm, job: Job) -> CompileOptions:
    """Return the compile options of the job, with `cores` reduced to the number that the worker
    allows."""
    options = job.compile_options
    bounds = [cores for cores in (options.cores, farm.settings.job_cores) if cores]
    return dataclasses.replace(options, cores=min(bounds, default=0))


def _inspect(_farm: Farm, _job: Job, _lease: Lease, _listener: Listener) -> Order:
    return Order({})


def _list(farm: Farm, job: Job, _lease: Lease, _listener: Listener) -> Order:
    options = _options(farm, job)
    path = farm.blobs.verified(job.compiled or "")
    return Order({"options": options.to_dict(), "artifact": str(path)})


_ORDERS: dict[JobKind, Callable[[Farm, Job, Lease, Listener], Order]] = {
    JobKind.COMPILE: _compile,
    JobKind.INSPECT: _inspect,
    JobKind.LIST: _list,
}
