"""The jobs of a seeded farm, in all states, each with its tasks, trials, records and events."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
import time
from collections.abc import Sequence

from bench.seeded.devices import AWAY, MACHINES, admitted_on
from bench.seeded.names import HOSTILE, KERNELS, MODELS, OWNERS
from farrier import progress
from farrier.errors import FarrierError, UnsupportedOperatorError, VerificationError
from farrier.options import CompileOptions
from farrier.progress import Event, TaskSchedule
from farrier.records import TuningRecord
from farrier.records.record import pairs
from farrier_device.measurement import Status
from farrier_farm.farm import Farm
from farrier_farm.leases.leases import Lease
from farrier_farm.leases.states import State

BATCH = 16  # trials
_BATCH_S = 4.0  # that one takes
_FAILED = 0.06  # of the trials
_WEEKS_S = 14 * 86400.0  # The period over which the jobs were submitted.
_STAGES = ("import", "optimize", "partition", "space")
_UNROLLS = (1, 2, 4, 8, 16)
_TILES = (1, 2, 4, 8, 16, 32, 64)


@dataclasses.dataclass(slots=True)
class Kernel:
    """A task to seed; `bound_us` is the time of its best schedule."""

    key: str
    name: str
    calls: int
    bound_us: float
    default: dict[str, int]
    default_us: float
    best: dict[str, int]
    best_us: float
    trials: int = 0


def kernels(draw: random.Random, count: int, hostile: bool = False) -> list[Kernel]:
    """Return tasks of a model; if `hostile`, some have names with markup."""
    collected = []
    for number in range(count):
        bound = math.exp(draw.uniform(math.log(5), math.log(2000)))
        name = f"{KERNELS[number % len(KERNELS)]} #{number}"
        if hostile and number % 3 == 0:
            name = HOSTILE[number // 3 % len(HOSTILE)]
        key = hashlib.sha256(f"{name}{draw.random()}".encode()).hexdigest()[:32]
        default, slower = _decisions(draw), bound * draw.uniform(2, 6)
        calls = draw.randint(1, 8)
        collected.append(Kernel(key, name, calls, bound, default, slower, default, slower))
    return collected


class SeededJob:
    """A running job, for which this object plays the worker."""

    def __init__(
        self, farm: Farm, draw: random.Random, lease: Lease, tasks: Sequence[Kernel], began: float
    ) -> None:
        self.lease = lease
        self.trials = 0
        self._farm = farm
        self._draw = draw
        self._tasks = tasks
        self._said = 0
        self._began = began  # The time, in Unix seconds, at which its attempt should have begun.
        self._seconds = 0.0  # The seconds for which it has run.
        self._records = farm.records.of_job(lease.item)

    def begin(self) -> None:
        """Emit the first events of the job, up to the list of its tasks."""
        for stage in _STAGES:
            self.say(progress.StageStarted(stage))
            self._seconds += self._draw.uniform(0.05, 2)
            self.say(progress.StageFinished(stage, self._draw.uniform(0.05, 2)))
        self.say(progress.TasksFound(len(self._tasks), sum(task.calls for task in self._tasks)))
        self._schedule("default")
        self.say(progress.StageStarted("schedule"))

    def measure(self, trials: int, planned: int | None, *, recorded: bool = True) -> None:
        """Add trials of one task and their events, with tuning records if `recorded`."""
        task = max(
            self._tasks, key=lambda kernel: kernel.calls * kernel.best_us * self._draw.random()
        )
        failed = 0
        self._tick(_BATCH_S * trials / BATCH)
        for _ in range(trials):
            failed += not self._try(task, recorded)
        self.trials += trials
        best_ms = sum(task.calls * task.best_us for task in self._tasks) / 1e3
        left = None if planned is None else (planned - self.trials) / BATCH * _BATCH_S
        event = progress.TrialsMeasured(self.trials, planned, best_ms, left, task.name, failed)
        self.say(event)

    def end(self, state: State) -> None:
        """Bring the job to the final state `state`."""
        jobs, tuned = self._farm.jobs, self.trials > 0
        if state is State.SUCCEEDED:
            self._schedule("tuned" if tuned else "default")
            for stage in ("lower", "codegen", "link", "verify"):
                self.say(progress.StageStarted(stage))
                self._tick(self._draw.uniform(0.1, 6))
            jobs.succeed(self.lease, *self._artifact())
        elif state is State.FAILED:
            jobs.fail(self.lease, self._draw.choice(_ERRORS))
        elif state is State.DEAD:
            jobs.give_back(self.lease, crashed=True, reason="signal 11 (SIGSEGV)")
        else:
            self._farm.cancel(self.lease.item)

    def say(self, event: Event) -> None:
        self._said += 1
        self._farm.jobs.say(self.lease, self._said, event)

    def settle(self, created: float) -> None:
        """Set the job's times to be consistent with the duration of its trials; it was created at
        `created`."""
        ended = self._farm.jobs.get(self.lease.item).finished is not None
        date(self._farm, self.lease.item, created, self._began, self._seconds if ended else None)

    def _tick(self, seconds: float) -> None:
        """Advance the job's simulated clock by `seconds`, by moving its start to an earlier
        time."""
        self._seconds += seconds
        _set(self._farm, self.lease.item, started=time.time() - self._seconds)

    def _try(self, task: Kernel, recorded: bool) -> bool:
        """Add one trial, and return whether its candidate ran."""
        task.trials += 1
        ran = self._draw.random() > _FAILED
        decisions = _decisions(self._draw)
        reach = math.exp(-task.trials / 120)
        us = task.bound_us * (1 + self._draw.expovariate(1.0) * (0.15 + 4 * reach))
        if ran and us < task.best_us:
            task.best, task.best_us = decisions, us
        if recorded:
            status = Status.OK if ran else self._draw.choice([Status.TIMEOUT, Status.CRASHED])
            noise = [self._draw.uniform(0.99, 1.03) for _ in range(5)]
            self._records.add(
                TuningRecord(
                    task=task.key,
                    fingerprint="seeded",
                    threads=4,
                    rule="tiled-sum",
                    version=3,
                    decisions=pairs(decisions),
                    trace="split i; reorder; vectorize j; unroll k",
                    status=status,
                    samples_ns=tuple(round(us * 1e3 * factor) for factor in noise) if ran else (),
                    seed=self._draw.randrange(1 << 32),
                    created=time.time(),
                    device_class=self._device_class,
                    device=f"{self._draw.choice(MACHINES)}-000",
                )
            )
        return ran

    @property
    def _device_class(self) -> str:
        place = self._farm.jobs.get(self.lease.item).place if self.trials == 0 else None
        if place is not None:
            self._class = place.device_class
        return self._class

    def _schedule(self, source: str) -> None:
        total = sum(task.calls * task.best_us for task in self._tasks)
        schedules = [
            TaskSchedule(
                task=task.key,
                name=task.name,
                calls=task.calls,
                share=task.calls * task.best_us / total,
                rule="tiled-sum",
                version=3,
                space=48_000,
                default=task.default,
                default_us=task.default_us,
                decisions=task.best,
                source=source if task.trials else "default",
                predicted_us=task.best_us * 0.93,
                measured_us=task.best_us if task.trials else None,
            )
            for task in self._tasks
        ]
        for first in range(0, len(schedules), 200):
            self.say(progress.TasksScheduled(schedules[first : first + 200], {}))

    def _artifact(self) -> tuple[str, dict[str, object], int]:
        data = self._draw.randbytes(4096)
        median = sum(task.calls * task.best_us for task in self._tasks) / 1e3
        untuned = sum(task.calls * task.default_us for task in self._tasks) / 1e3
        error = self._draw.uniform(1e-7, 4e-6)
        self.say(progress.Verified(error, median, untuned, "rpi4-000"))
        report: dict[str, object] = {
            "verification": {
                "max_error": error,
                "tolerance": 1e-3,
                "reference": "onnx",
                "device": "rpi4-000",
                "sandbox": "seccomp+landlock",
                "emulated": False,
                "latency_ms": _latency(median),
            },
            "untuned_ms": _latency(untuned),
            "tuned_ms": _latency(median),
            "tuned_is_faster": True,
        }
        return self._farm.blobs.put(data), report, len(data)


def _latency(median: float) -> dict[str, float]:
    return {"median": median, "p10": median * 0.98, "p90": median * 1.05, "runs": 50}


_ERRORS: Sequence[FarrierError] = (
    UnsupportedOperatorError(
        "the model uses GridSample, which Farrier does not compile",
        hint="export it with opset 16 or lower, or replace the operator",
    ),
    VerificationError(
        "output <b>logits</b> is off by 0.31 of its range", hint="report it, with the model"
    ),
)


def _decisions(draw: random.Random) -> dict[str, int]:
    return {
        "tile_i": draw.choice(_TILES),
        "tile_j": draw.choice(_TILES),
        "unroll": draw.choice(_UNROLLS),
        "vectorize": draw.choice((0, 1)),
        "order": draw.randrange(6),
    }


def submit(farm: Farm, draw: random.Random, number: int, machine: str, **options: object) -> str:
    """Queue a job that no worker takes yet, because no device of its machine's class is
    connected."""
    name = HOSTILE[number // 23 % len(HOSTILE)] if number % 23 == 5 else f"{draw.choice(MODELS)}"
    job = farm.jobs.submit(
        farm.blobs.put(f"model {number % 40}".encode()),
        CompileOptions(target=machine, **{"trials": 1000, **options}),  # type: ignore[arg-type]
        name=name[:10_000],
        owner=OWNERS[number % len(OWNERS)] if number % 3 else "default",
        wait_for_device=True,
        admitted=admitted_on(machine),
    )
    return job.id


def take(farm: Farm, machine: str) -> Lease:
    """Lease the job that `submit` has queued for this machine."""
    lease = farm.jobs.leases.take("seeded:1", [f"place:{admitted_on(machine).place.queue}"], 1.0)
    assert lease is not None
    return lease


def seed_jobs(farm: Farm, draw: random.Random, count: int, trials: int) -> list[SeededJob]:
    """Submit `count` jobs with `trials` trials in total, and return the jobs that stay running."""
    running, queued = min(6, count), min(max(count // 25, 1), 40)
    ended = max(count - running - queued, 0)
    states = [State.SUCCEEDED] * 8 + [State.FAILED, State.CANCELLED, State.DEAD]
    tuned = {
        ended - 1 - 7 * n: weight for n, weight in enumerate((8, 4, 3, 2, 2, 1)) if n * 7 < ended
    }
    at_work, share = [], trials / (sum(tuned.values()) + running)
    for number in range(ended + running):
        machine = MACHINES[number % len(MACHINES)]
        created = time.time() - _WEEKS_S * (ended + running - number) / max(ended, 1)
        if number >= ended:
            created = time.time() - 600 * (ended + running - number)
        submit(farm, draw, number, machine)
        tasks = kernels(draw, draw.randint(4, 60), hostile=number % 5 == 0)
        job = SeededJob(farm, draw, take(farm, machine), tasks, created + draw.uniform(1, 90))
        job.begin()
        mine = round(share * tuned.get(number, 1 if number >= ended else 0))
        for done in range(0, mine, BATCH):
            job.measure(min(BATCH, mine - done), max(mine, 1000))
        if number >= ended:
            at_work.append(job)
        else:
            for _ in range(0 if mine else draw.randint(0, 4)):
                job.measure(BATCH, None, recorded=False)
            state = State.SUCCEEDED if mine else states[number % len(states)]
            job.end(state)
            # A crashed job is queued again.
            while farm.jobs.get(job.lease.item).state is State.QUEUED:
                job.lease = take(farm, machine)
                job.end(state)
        job.settle(created)
    for number in range(queued):
        job_id = submit(farm, draw, ended + running + number, AWAY)
        date(farm, job_id, time.time() - 30 * (queued - number), None, None)
    return at_work


def seed_long(farm: Farm, draw: random.Random, trials: int) -> SeededJob:
    """Create a running job with `trials` trials and return it."""
    submit(farm, draw, 1, MACHINES[0], trials=max(2 * trials, 1))
    tasks = kernels(draw, 80)
    job = SeededJob(farm, draw, take(farm, MACHINES[0]), tasks, time.time())
    job.begin()
    for done in range(0, trials, BATCH):
        job.measure(min(BATCH, trials - done), 2 * trials)
    return job


def date(farm: Farm, job_id: str, created: float, began: float | None, ran_s: float | None) -> None:
    """Set the times of a job, in Unix seconds, so that it appears as old as intended."""
    times = {"created": created}
    if began is not None:
        times["started"] = began
        if ran_s is not None:
            times["finished"] = began + ran_s
            words = ("ZADD", "farrier:job:finished", "XX", int((began + ran_s) * 1000), job_id)
            farm.client.command(*words)
    _set(farm, job_id, **times)


def _set(farm: Farm, job_id: str, **times: float) -> None:
    words = [word for name, at in times.items() for word in (name, str(int(at * 1000)))]
    farm.client.command("HSET", farm.jobs.leases.key(job_id), *words)
