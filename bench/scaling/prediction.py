"""Predictions of the queueing model: for the measured runs, and for larger farms."""

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
    """A measured rate and the model's prediction of it, in trials per second."""

    devices: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """The relative error of the prediction."""
        return self.predicted / self.measured - 1


def service_times(measurement: Measurement) -> ServiceTimes:
    """Return the service times, estimated from the run with the most completed trials, where fixed
    costs have the least weight."""
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
    """Return the measured rate of each run with the model's prediction of it. The model has the
    run's devices and batches, and the share of this machine's cores that other processes did not
    use. If the search ended in the run, it is modelled to its end. A job that never had two batches
    on devices at once is modelled with a single batch in flight."""
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
    """Return the service times for cores of which only the share `left` is available."""
    names = ("job_s", "build_s", "supervisor_s", "broker_s", "redis_s", "local_s")
    return dataclasses.replace(times, **{name: getattr(times, name) / left for name in names})


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """The resources that a farm uses if it waits only for devices."""

    size: Size
    outcome: Outcome
    link_bytes_s: float  # For all batches, to devices.


def need(times: ServiceTimes, size: Size) -> Need:
    """Compute by simulation the resources that a farm with the devices and users of `size` uses."""
    outcome = _farm(times, size)
    return Need(size, outcome, outcome.rate / size.batch * times.batch_bytes)


def _farm(times: ServiceTimes, size: Size) -> Outcome:
    return simulate(times, size, _LOAD, seconds=_SECONDS, warm_up_s=_WARM_UP_S)


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """A resource, and the number of devices for which it suffices if all other resources are
    unlimited. `busy` and `busy_of_twice` are the devices' mean share of busy time with that number
    of devices and with twice the number, or None if the resource suffices for the examined farm."""

    resource: str
    devices: int
    busy: float | None = None
    busy_of_twice: float | None = None


def limits(times: ServiceTimes, need: Need) -> list[Limit]:
    """Return the limit of each resource, the scarcest resource first. `need` is the need of a farm
    that is large enough for its use of each resource to be proportional to its devices."""
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
    """Return the limit of a single job's process: the number of devices that it can keep busy."""
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
    """Return a farm with `devices` devices and the same number of users per device, in which the
    resources in `capacity` are limited."""
    users = max(1, round(devices * size.users / size.devices))
    return dataclasses.replace(size, devices=devices, users=users, **capacity)


def compared_table(rows_of_runs: Sequence[Compared]) -> str:
    rows = [
        (str(row.devices), f"{row.measured:.2f}", f"{row.predicted:.2f}", f"{row.error:+.1%}")
        for row in rows_of_runs
    ]
    return tables.markdown(("devices", "measured trials/s", "simulated", "error"), rows)


def needs_table(needs: Sequence[Need]) -> str:
    """Return a Markdown table of the needs of farms. A broker counts as full at the share `_FULL`
    of a core."""
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
