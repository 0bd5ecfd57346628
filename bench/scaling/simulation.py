"""A queueing model of a farm as a discrete-event simulation, which computes waiting times and the
use of resources.

    user → job: propose (its process) ┐
                build (builders)      ┴→ device: lease, fetch (broker, Redis, link), measure → job

A user submits a job, and the next one some time after it has ended. A job has a process, which
proposes batch after batch, and a limited number of batches in flight, between their proposal and
their result. Builders compile a batch in parallel with that process, on the same cores of the
workers. A device takes the oldest batch. Broker, Redis and link each serve one request at a time,
in order of arrival.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Generator
from typing import Any

import simpy

# Batches of a job in flight, as of `farrier.measure.measurer`
A_DEVICE = 2
_MOST = 48

_CHUNK = 4  # The candidates that a builder compiles without pause.
_TICK_S = 0.1  # The interval of the load by heartbeats.
_USED = ("devices", "jobs", "builders", "supervisors", "brokers", "redis", "link", "local")
_BUILDERS = 7  # The most builders of a job, as in `farrier.compile_pool.helpers`.

Steps = Generator[simpy.Event, Any, None]


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceTimes:
    """The duration of each action, in core-seconds unless stated otherwise."""

    candidate_s: float  # Of a device, for one candidate.
    job_s: float  # Of the job's process, for one candidate.
    build_s: float  # Of builders, for one candidate.
    supervisor_s: float  # Of the worker's supervisor, for one batch.
    broker_s: float  # for one batch
    redis_s: float  # for one batch
    batch_bytes: float  # The bytes that a device fetches for one batch.
    beat_s: float  # The interval of a device's heartbeats.
    broker_beat_s: float  # Of the broker, for one heartbeat.
    redis_beat_s: float  # Of Redis, for one heartbeat.
    local_s: float = 0.0  # For one candidate, if devices share the workers' cores.


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """The resources of the farm; an infinite resource is never waited for. A job has `a_device`
    batches in flight for each device, up to a limit, or a single one if that is None."""

    devices: int
    users: int = 1
    worker_cores: float = math.inf
    brokers: float = math.inf
    redis: float = math.inf
    link_bytes_s: float = math.inf
    batch: int = 16
    a_device: int | None = A_DEVICE


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """The users' requests: the mean of the exponentially distributed number of trials of a job, and
    the seconds from a job's end to the user's next job. An infinite number of trials is a single
    endless job."""

    trials: float = math.inf
    think_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a simulation. Trials are counted over the entire time, everything else over the
    `seconds` after the warm-up. `used` is the mean number of busy devices, of cores used by jobs,
    builders, supervisors, brokers, Redis and local devices, and of links in use."""

    seconds: float
    started: int
    finished: int
    in_flight: int
    rate: float  # Trials a second; an unfinished batch counts by its measured part.
    jobs: int  # that ended
    active_jobs: float  # mean
    used: dict[str, float]

    def busy(self, devices: int) -> float:
        """Return the mean share of time in which each of `devices` devices measures."""
        return self.used["devices"] / devices


def simulate(
    times: ServiceTimes,
    size: Size,
    load: Load = Load(),
    *,
    seconds: float = 120.0,
    warm_up_s: float | None = None,
    seed: int = 0,
) -> Outcome:
    """Simulate `seconds` after a warm-up; if `warm_up_s` is None, after the first batch is
    measured. The result is deterministic."""
    return _Farm(times, size, load, seed).run(warm_up_s, seconds)


def phase_s(times: ServiceTimes, size: Size, trials: int) -> float:
    """Return the simulated seconds of a single job with that number of trials, from its first batch
    on a device to its last result."""
    return _Farm(times, size, Load(), 0).phase(trials)


class _Server:
    """A resource that serves one request at a time, or several, in order of arrival."""

    def __init__(self, farm: _Farm, capacity: float) -> None:
        self._farm = farm
        self._places = (
            None if math.isinf(capacity) else simpy.Resource(farm.env, max(1, int(capacity)))
        )

    def work(self, what: str, seconds: float) -> Steps:
        """Wait until the resource is available, then use it for `seconds`, which count as the use
        of `what`."""
        if seconds <= 0:
            return
        if self._places is None:
            self._farm.use(what, seconds)
            yield self._farm.env.timeout(seconds)
            return
        with self._places.request() as turn:
            yield turn
            self._farm.use(what, seconds)
            yield self._farm.env.timeout(seconds)


class _Farm:
    """The state of one simulation."""

    def __init__(
        self,
        times: ServiceTimes,
        size: Size,
        load: Load,
        seed: int,
    ) -> None:
        self.env = simpy.Environment()
        self.times, self.size, self.load = times, size, load
        self.active = 0
        self.started = self.finished = self.in_flight = 0
        self._jobs = 0
        self._active_s = 0.0
        self._seconds = 0.0
        self._begin = self._end = math.inf
        self._first = self.env.event()  # The first batch is measured.
        self._draw = random.Random(seed)
        self._used = dict.fromkeys(_USED, 0.0)
        self.cores = _Server(self, size.worker_cores)
        self.broker = _Server(self, size.brokers)
        self.redis = _Server(self, size.redis)
        self.link = _Server(self, math.inf if math.isinf(size.link_bytes_s) else 1)
        self.devices = simpy.Resource(self.env, size.devices)

    def run(self, warm_up_s: float | None, seconds: float) -> Outcome:
        self._seconds = seconds
        for _ in range(self.size.users):
            self.env.process(self._user())
        self.env.process(self._heartbeats("brokers", self.broker, self.times.broker_beat_s))
        self.env.process(self._heartbeats("redis", self.redis, self.times.redis_beat_s))
        self.env.process(self._look())
        if warm_up_s is None:
            self.env.run(self._first)
        else:
            self._count(warm_up_s)
        self.env.run(self._end)
        return Outcome(
            seconds=seconds,
            started=self.started,
            finished=self.finished,
            in_flight=self.in_flight,
            rate=self._used["devices"] / self.times.candidate_s / seconds,
            jobs=self._jobs,
            active_jobs=self._active_s / seconds,
            used={what: used / seconds for what, used in self._used.items()},
        )

    def phase(self, trials: int) -> float:
        """Simulate one job to its end, and return its seconds."""
        job = self.env.process(_Job(self).tune(trials))
        self.env.run(self._first)
        begin = self.env.now
        self.env.run(job)
        return float(self.env.now - begin)

    def _count(self, begin: float) -> None:
        self._begin, self._end = begin, begin + self._seconds

    def use(self, what: str, seconds: float) -> None:
        """Count the use of a resource for `seconds` from now on, except for the part before the end
        of the warm-up."""
        now = self.env.now
        self._used[what] += max(0.0, min(now + seconds, self._end) - max(now, self._begin))

    def _user(self) -> Steps:
        if self.load.think_s:  # Users do not all begin at once.
            yield self.env.timeout(self._draw.uniform(0.0, self.load.think_s))
        while True:
            trials = self.load.trials
            if not math.isinf(trials):
                trials = math.ceil(self._draw.expovariate(1 / trials))
            yield from _Job(self).tune(trials)
            self._jobs += self.env.now >= self._begin
            if self.load.think_s:
                yield self.env.timeout(self._draw.expovariate(1 / self.load.think_s))

    def _heartbeats(self, what: str, server: _Server, beat_s: float) -> Steps:
        """Put the load of all devices' heartbeats on a server, evenly distributed over time."""
        share = beat_s * self.size.devices / self.times.beat_s
        while share:
            self.env.process(server.work(what, share * _TICK_S))
            yield self.env.timeout(_TICK_S)

    def _look(self) -> Steps:
        while True:
            yield self.env.timeout(_TICK_S)
            if self.env.now > self._begin:
                self._active_s += self.active * _TICK_S

    def measure(self, candidates: int, seconds: float) -> Steps:
        """Keep a device busy for `seconds` with a batch, and count its candidates as finished
        trials."""
        if not self._first.triggered:
            self._first.succeed()
            if math.isinf(self._begin):
                self._count(self.env.now)
        self.use("devices", seconds)
        yield self.env.timeout(seconds)
        self.finished += candidates
        self.in_flight -= candidates


class _Job:
    """The simulation of a job, from its first batch to its last."""

    def __init__(self, farm: _Farm) -> None:
        self._farm = farm
        self._flying = 0
        self._landed = farm.env.event()
        self._builders = simpy.Resource(
            farm.env, int(max(1, min(_BUILDERS, farm.size.worker_cores - 1)))
        )

    def tune(self, trials: float) -> Steps:
        farm, times = self._farm, self._farm.times
        farm.active += 1
        while trials > 0:
            while self._flying >= self._window():
                yield from self._wait()
            size = int(min(farm.size.batch, trials))
            trials -= size
            self._flying += 1
            farm.started += size
            farm.in_flight += size
            built = farm.env.process(self._build(size))
            yield from farm.cores.work("jobs", size * times.job_s)
            farm.env.process(self._batch(size, built))
        while self._flying:
            yield from self._wait()
        farm.active -= 1

    def _window(self) -> int:
        """The maximum number of batches in flight. It counts all devices of the class, as if the
        job were alone."""
        size = self._farm.size
        return 1 if size.a_device is None else min(_MOST, size.a_device * size.devices)

    def _wait(self) -> Steps:
        self._landed = self._farm.env.event()
        yield self._landed

    def _build(self, size: int) -> Steps:
        farm = self._farm
        chunks = [
            farm.env.process(self._chunk(min(_CHUNK, size - done)))
            for done in range(0, size, _CHUNK)
        ]
        yield farm.env.all_of(chunks)

    def _chunk(self, candidates: int) -> Steps:
        farm = self._farm
        with self._builders.request() as builder:
            yield builder
            yield from farm.cores.work("builders", candidates * farm.times.build_s)

    def _batch(self, size: int, built: simpy.Event) -> Steps:
        farm, times = self._farm, self._farm.times
        yield built
        yield from farm.cores.work("supervisors", times.supervisor_s)
        with farm.devices.request() as device:
            yield device
            yield from farm.redis.work("redis", times.redis_s)
            yield from farm.broker.work("brokers", times.broker_s)
            if not math.isinf(farm.size.link_bytes_s):
                yield from farm.link.work("link", times.batch_bytes / farm.size.link_bytes_s)
            if times.local_s:
                farm.env.process(farm.cores.work("local", size * times.local_s))
            yield from farm.measure(size, size * times.candidate_s)
        self._flying -= 1
        if not self._landed.triggered:
            self._landed.succeed()
