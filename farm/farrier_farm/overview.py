"""The overview of a farm. Its cost does not depend on the number of jobs or devices, because each
change updates the counts (`devices.lua`, `throughput.lua`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier_farm.devices.devices import DeviceCounts, Devices
from farrier_farm.events.farm_events import Item, News
from farrier_farm.jobs.jobs import Job, Jobs
from farrier_farm.jobs.search import JobOrder, JobQuery, Shown
from farrier_farm.leases.states import State
from farrier_farm.records.records import Records
from farrier_farm.redis.connection import Client

MINUTES = 60
RUNNING = 50  # jobs at most
FINISHED = 10
_WHATS = ("trials", "batches", "finished")


@dataclasses.dataclass(frozen=True, slots=True)
class Minute:
    """The trials, batches and ended jobs of the farm in the minute that began at `time`, in Unix
    seconds."""

    time: float
    trials: int
    batches: int
    finished: int  # Jobs that ended, in any state.


@dataclasses.dataclass(frozen=True, slots=True)
class FarmOverview:
    """A snapshot of the farm. Minutes are in order of time; the last is the present minute."""

    time: float
    jobs: Mapping[State, int]
    devices: DeviceCounts
    minutes: Sequence[Minute]
    running: Sequence[Job]  # the newest first
    finished: Sequence[Job]  # The last ended first.
    records: int
    news: Sequence[Item]  # the newest first


def overview(
    client: Client,
    jobs: Jobs,
    devices: Devices,
    records: Records,
    news: News,
    shown: Shown | None = None,
) -> FarmOverview:
    """Return the overview of the farm for a user who may see the jobs in `shown`; for None, of all
    jobs. Raises ServiceError if Redis is out of reach."""
    counts = devices.counts()
    last = int(counts.time // 60)
    minutes = range(last - MINUTES + 1, last + 1)
    rows = client.commands(("HMGET", f"farrier:throughput:{minute}", *_WHATS) for minute in minutes)
    running, finished = _newest(jobs) if shown is None else _shown(jobs, shown)
    return FarmOverview(
        time=counts.time,
        jobs=jobs.counts(shown),
        devices=counts,
        minutes=[
            Minute(minute * 60.0, *(int(count or 0) for count in each))
            for minute, each in zip(minutes, rows, strict=True)
        ],
        running=running,
        finished=finished,
        records=records.count(),
        news=[item for item in news.recent() if shown is None or item.data["kind"] == "device"],
    )


def _newest(jobs: Jobs) -> tuple[list[Job], list[Job]]:
    """Return the running jobs that were submitted last, and the jobs that ended last."""
    running = jobs.leases.members(state=State.RUNNING, limit=RUNNING)
    ended = jobs.leases.ended(FINISHED)
    snapshots = {job.id: job for job in jobs.many([*running, *ended])}
    return (
        [snapshots[job_id] for job_id in running if job_id in snapshots],
        [snapshots[job_id] for job_id in ended if job_id in snapshots],
    )


def _shown(jobs: Jobs, shown: Shown) -> tuple[list[Job], list[Job]]:
    """Return the running jobs, and the jobs that ended last, among the jobs in `shown`."""
    running = jobs.search(JobQuery(state=State.RUNNING, shown=shown), limit=RUNNING)
    ended = jobs.search(JobQuery(order=JobOrder.FINISHED, shown=shown), limit=FINISHED)
    return list(running.jobs), [job for job in ended.jobs if job.state.final]
