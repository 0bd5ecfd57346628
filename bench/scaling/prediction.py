"""The predictions of the model: for the measured runs, and for farms that do not exist."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.scaling import tables
from bench.scaling.results import Measurement, Row
from bench.scaling.simulation import A_DEVICE, Load, Outcome, ServiceTimes, Size, phase_s, simulate

MOST_ERROR = 0.1  # As a share of the measured rate.

# These are from bench/notes/2026-11-23-costs.md: 500 devices with 4,999 heartbeats in 60 s took
# 0.19 of a core of a machine to themselves; a heartbeat is 14 commands of Redis.
_BEAT_S = 6.0
_BROKER_BEAT_S = 0.19 * 60 / 4999
_COMMANDS_A_BEAT = 14

_LOAD = Load(trials=1000, think_s=60.0)
_WARM_UP_S = 90.0
_SECONDS = 30.0
_LINK_BYTES_S = 10e9 / 8
_MACHINE_CORES = 64
_LEAST_LEFT = 0.1  # The least share of one core that other processes leave.
_FULL = 0.7  # The load of a broker's core above which calls wait.


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """A measured rate and the model's, in trials a second."""

    devices: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """The error of the prediction, relative to the measured rate."""
        return self.predicted / self.measured - 1


def service_times(measurement: Measurement) -> ServiceTimes:
    """Return the service times from the run that completed the most trials, where fixed costs weigh
    least."""
    row = max(measurement.rows, key=lambda run: run.trials)
    costs = row.costs
    beats = row.devices * row.elapsed_s / _BEAT_S
    command_s = costs.redis_s / max(costs.redis_commands, 1)
    redis_s = costs.redis_s - beats * _COMMANDS_A_BEAT * command_s
    broker_s = costs.broker_s - beats * _BROKER_BEAT_S
    return ServiceTimes(
        candidate_s=measurement.candidate_s,
        job_s=costs.jobs_s / row.trials,
        build_s=costs.builders_s / row.trials,
        supervisor_s=costs.supervisor_s / row.batches,
        broker_s=max(0.0, broker_s) / row.batches,
        redis_s=max(0.0, redis_s) / row.batches,
        batch_bytes=row.arrived_bytes,
        beat_s=_BEAT_S,
        broker_beat_s=_BROKER_BEAT_S,
        redis_beat_s=_COMMANDS_A_BEAT * command_s,
        local_s=row.ran_s / row.trials,
    )


def compared(measurement: Measurement, times: ServiceTimes) -> list[Compared]:
    """Return each run with the model's prediction for it: its devices, its batches, and the cores
    of this machine as far as other processes left them; if the search ended, the same trials to
    their end. A job that never had two batches on devices at once is modelled with one in
    flight."""
    a_device = None if all(row.at_once == 1 for row in measurement.rows) else A_DEVICE
    return [
        Compared(row.devices, row.rate, _modelled(row, measurement, times, a_device))
        for row in measurement.rows
    ]


def _modelled(
    row: Row, measurement: Measurement, times: ServiceTimes, a_device: int | None
) -> float:
    size = Size(
        devices=row.devices,
        worker_cores=measurement.cores,
        brokers=1,
        redis=1,
        batch=max(1, round(row.batch_size)),
        a_device=a_device,
    )
    left = max(_LEAST_LEFT, measurement.cores - row.others) / measurement.cores
    slowed = _slowed(times, left)
    if row.ended:
        return row.trials / phase_s(slowed, size, round(row.trials))
    return simulate(slowed, size, seconds=row.elapsed_s).rate


def _slowed(times: ServiceTimes, left: float) -> ServiceTimes:
    """Return the service times on cores of which only the share `left` is free."""
    names = ("job_s", "build_s", "supervisor_s", "broker_s", "redis_s", "local_s")
    return dataclasses.replace(times, **{name: getattr(times, name) / left for name in names})


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """The resources that a farm uses when it waits only for devices."""

    size: Size
    outcome: Outcome
    link_bytes_s: float  # For all batches, to devices.


def need(times: ServiceTimes, size: Size) -> Need:
    """Return the needs of a farm with the devices and users of `size`."""
    outcome = _farm(times, size)
    return Need(size, outcome, outcome.rate / size.batch * times.batch_bytes)


def _farm(times: ServiceTimes, size: Size) -> Outcome:
    return simulate(times, size, _LOAD, seconds=_SECONDS, warm_up_s=_WARM_UP_S)


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """One resource, the number of devices it serves, and how busy these are, also with twice as
    many devices, if only this resource is scarce; None if it serves a farm of the examined size."""

    resource: str
    devices: int
    busy: float | None = None
    busy_of_twice: float | None = None


def limits(times: ServiceTimes, need: Need) -> list[Limit]:
    """Return the limits, the scarcest resource first. `need` is of a farm large enough to take its
    use of each resource as proportional to its devices."""
    used = need.outcome.used
    cores = used["jobs"] + used["builders"] + used["supervisors"]
    scarce: list[tuple[str, float, dict[str, float]]] = [
        ("one Redis", used["redis"], {"redis": 1}),
        ("one broker", used["brokers"], {"brokers": 1}),
        (
            f"a link of {_LINK_BYTES_S * 8 / 1e9:.0f} Gbit/s",
            need.link_bytes_s / _LINK_BYTES_S,
            {"link_bytes_s": _LINK_BYTES_S},
        ),
        (
            f"workers of {_MACHINE_CORES} cores",
            cores / _MACHINE_CORES,
            {"worker_cores": _MACHINE_CORES},
        ),
    ]
    collected = [_limit_of_a_job(times, need.size)]
    for resource, share, capacity in scarce:
        devices = max(1, round(need.size.devices / share))
        if share <= 1:
            collected.append(Limit(resource, devices))
            continue
        busy, busy_of_twice = (
            _farm(times, _resized(need.size, count, capacity)).busy(count)
            for count in (devices, 2 * devices)
        )
        collected.append(Limit(resource, devices, busy, busy_of_twice))
    return sorted(collected, key=lambda limit: limit.devices)


def _limit_of_a_job(times: ServiceTimes, size: Size) -> Limit:
    """Return the number of devices that the process of one job keeps busy."""
    devices = max(1, math.floor(times.candidate_s / times.job_s))
    busy, busy_of_twice = (
        simulate(
            times,
            dataclasses.replace(size, devices=count, users=1),
            seconds=_SECONDS,
            warm_up_s=_WARM_UP_S,
        ).busy(count)
        for count in (devices, 2 * devices)
    )
    return Limit("the process of a single job", devices, busy, busy_of_twice)


def _resized(size: Size, devices: int, capacity: Mapping[str, Any]) -> Size:
    """Return a farm with the same number of users for each device, and a scarce resource."""
    users = max(1, round(devices * size.users / size.devices))
    return dataclasses.replace(size, devices=devices, users=users, **capacity)


def compared_table(rows_of_runs: Sequence[Compared]) -> str:
    rows = [
        (str(row.devices), f"{row.measured:.2f}", f"{row.predicted:.2f}", f"{row.error:+.1%}")
        for row in rows_of_runs
    ]
    return tables.markdown(("devices", "measured trials/s", "simulated", "error"), rows)


def needs_table(needs: Sequence[Need]) -> str:
    """Brokers are counted as full at `_FULL` of a core."""
    rows = []
    for need in needs:
        used = need.outcome.used
        rows.append(
            (
                f"{need.size.devices:,}",
                f"{need.size.users:,}",
                f"{need.outcome.rate:,.0f}",
                f"{need.outcome.busy(need.size.devices):.0%}",
                f"{need.outcome.active_jobs:.0f}",
                f"{used['jobs'] + used['supervisors']:.1f}",
                f"{used['builders']:.1f}",
                f"{math.ceil(used['brokers'] / _FULL)}",
                f"{used['redis']:.2f}",
                f"{need.link_bytes_s * 8 / 1e9:.2f}",
            )
        )
    heads = ("devices", "users", "trials/s", "busy", "jobs", "cores of jobs", "of builders")
    return tables.markdown((*heads, "brokers", "Redis", "Gbit/s"), rows)


def limits_table(limits_found: Sequence[Limit]) -> str:
    rows = [
        (
            limit.resource,
            f"{limit.devices:,}",
            *(tables.number(busy, ".0%") for busy in (limit.busy, limit.busy_of_twice)),
        )
        for limit in limits_found
    ]
    return tables.markdown(("scarce", "devices", "busy", "of twice as many"), rows, words=1)


def times_table(times: ServiceTimes) -> str:
    rows = [
        ("a candidate on a device, s", f"{times.candidate_s:g}"),
        ("the job's process, core-s a candidate", f"{times.job_s:.4f}"),
        ("builders, core-s a candidate", f"{times.build_s:.4f}"),
        ("supervisor, core-s a batch", f"{times.supervisor_s:.4f}"),
        ("broker, core-s a batch", f"{times.broker_s:.4f}"),
        ("Redis, core-s a batch", f"{times.redis_s:.4f}"),
        ("bytes that a device fetches for a batch", f"{times.batch_bytes:,.0f}"),
        ("broker, core-s a heartbeat", f"{times.broker_beat_s:.4f}"),
        ("Redis, core-s a heartbeat", f"{times.redis_beat_s:.5f}"),
    ]
    return tables.markdown(("what", "takes"), rows, words=1)
