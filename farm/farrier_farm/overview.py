"""The farm at a glance. What it costs depends on neither the jobs nor the devices that there are:
what is counted is counted where it changes (`devices.lua`, `throughput.lua`)."""

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
    """What the farm did in the minute that began at `time`, in Unix seconds."""

    time: float
    trials: int
    batches: int
    finished: int  # jobs that ended, however


@dataclasses.dataclass(frozen=True, slots=True)
class FarmOverview:
    """A snapshot. Minutes are in the order of time, and the last has just begun."""

    time: float
    jobs: Mapping[State, int]
    devices: DeviceCounts
    minutes: Sequence[Minute]
    running: Sequence[Job]  # the newest first
    finished: Sequence[Job]  # that ended last first
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
    """The farm as one sees it who sees the jobs that are `shown`; without it, everything. Raises
    ServiceError where Redis is out of reach."""
    counts = devices.counts()
    last = int(counts.time // 60)
    minutes = range(last - MINUTES + 1, last + 1)
    found = client.commands(
        ("HMGET", f"farrier:throughput:{minute}", *_WHATS) for minute in minutes
    )
    running, finished = _newest(jobs) if shown is None else _shown(jobs, shown)
    return FarmOverview(
        time=counts.time,
        jobs=jobs.counts(shown),
        devices=counts,
        minutes=[
            Minute(minute * 60.0, *(int(count or 0) for count in each))
            for minute, each in zip(minutes, found, strict=True)
        ],
        running=running,
        finished=finished,
        records=records.count(),
        news=[item for item in news.recent() if shown is None or item.data["kind"] == "device"],
    )


def _newest(jobs: Jobs) -> tuple[list[Job], list[Job]]:
    """Return the jobs that run, and the jobs that have just ended."""
    running = jobs.leases.members(state=State.RUNNING, limit=RUNNING)
    ended = jobs.leases.ended(FINISHED)
    snapshots = {job.id: job for job in jobs.many([*running, *ended])}
    return (
        [snapshots[job_id] for job_id in running if job_id in snapshots],
        [snapshots[job_id] for job_id in ended if job_id in snapshots],
    )


def _shown(jobs: Jobs, shown: Shown) -> tuple[list[Job], list[Job]]:
    """The same of some jobs."""
    running = jobs.search(JobQuery(state=State.RUNNING, shown=shown), limit=RUNNING)
    ended = jobs.search(JobQuery(order=JobOrder.FINISHED, shown=shown), limit=FINISHED)
    return list(running.jobs), [job for job in ended.jobs if job.state.final]
