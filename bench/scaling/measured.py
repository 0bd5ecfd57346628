"""Measure one run: a farm, simulated devices of one class, and one job, with the resources used
while it measures single kernels."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.scaling.batches import (
    BatchLog,
    DeviceBatch,
    Window,
    busy_shares,
    late_share,
    mean_size,
    most_at_once,
    trials_within,
)
from bench.scaling.farm import OwnFarm, own_farm
from bench.scaling.processes import WorkerTime, machine_s, tree_s, worker_time
from farrier.errors import FarrierError, ServiceError
from farrier.progress import TrialsMeasured
from farrier.sdk.client import Client
from farrier.sdk.models import Job, StateChanged, Task, Trial

_TRIALS = 1_000_000  # More trials than any window has time for.
_PLAIN_SUMS = 1e-7  # Admits only plain sums, so that no other algorithm is measured first.
_FIRST_BATCH_S = 300.0  # until one begins
_LOOK_S = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a measurement: it lasts `seconds` from the first batch of single kernels;
    each candidate takes `candidate_s`. If `invented`, no candidate runs."""

    model: bytes
    name: str
    seconds: float
    candidate_s: float
    invented: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """The resources used within the window: core-seconds of the farm's roles, Redis commands and
    scripts, and core-seconds of all other processes on the machine."""

    supervisor_s: float
    jobs_s: float
    builders_s: float
    broker_s: float
    api_s: float
    redis_s: float
    redis_commands: int
    redis_scripts: int
    others_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a run with `devices` devices. `trials` were completed within `elapsed_s`;
    `busy` is the share of time in which each device measured; `events` are (seconds, trials,
    predicted ms) as the job reported them."""

    devices: int
    elapsed_s: float
    trials: float
    batches: int
    batch_size: float
    busy: tuple[float, ...]
    late: float
    at_once: int
    library_bytes: float  # of a batch
    arrived_bytes: float  # Bytes that arrive at devices for a batch.
    ran_s: float  # The real time of the candidates on this machine.
    faults: int
    costs: Costs
    events: tuple[tuple[float, int, float | None], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Run(Figures):
    """The figures and trials of a run. `ended` is true if the search finished before the time
    limit; `unix_begin` is the start of the window in Unix seconds."""

    ended: bool
    unix_begin: float
    tasks: tuple[Task, ...] = dataclasses.field(repr=False)
    measured: tuple[Trial, ...] = dataclasses.field(repr=False)

    @property
    def rate(self) -> float:
        """The trials per second."""
        return self.trials / self.elapsed_s


def measure(setting: Setting, devices: int) -> Run:
    """Start a farm, tune a model on `devices` simulated devices, and stop the farm. Raises
    FarrierError if the farm does not start, or the job measures no kernel."""
    with (
        own_farm() as farm,
        _devices(farm, setting, devices) as log,
        Client(farm.url, farm.token) as client,
    ):
        _await_devices(client, devices)
        job = client.submit(
            setting.model,
            name=setting.name,
            trials=_TRIALS,
            max_layer_error=_PLAIN_SUMS,
            verify=False,
        )
        watch = _Watch(farm, job.id)
        begin = _first_alone(log, watch).begin
        before, unix_begin = _Meter(farm), time.time() - (time.monotonic() - begin)
        end = _window_end(log, watch, begin, setting.seconds)
        costs = _Meter(farm) - before
        window = Window(begin, end)
        batches = [entry for entry in log.batches if entry.alone and entry.begin < window.end]
        _cancel(client, job.id)
        names = [_device_name(number) for number in range(devices)]
        return Run(
            devices=devices,
            elapsed_s=window.seconds,
            trials=trials_within(batches, window, setting.candidate_s),
            batches=len(batches),
            batch_size=mean_size(batches),
            busy=tuple(busy_shares(batches, window, names, setting.candidate_s)),
            late=late_share(batches, setting.candidate_s),
            at_once=most_at_once(batches),
            library_bytes=sum(entry.library_bytes for entry in batches) / len(batches),
            arrived_bytes=sum(entry.arrived_bytes for entry in batches) / len(batches),
            ran_s=sum(entry.ran_s for entry in batches),
            faults=sum(bool(entry.fault) for entry in batches),
            costs=costs,
            events=tuple((at - begin, n, ms) for at, n, ms in watch.measured if at <= end),
            ended=window.seconds < setting.seconds,
            unix_begin=unix_begin,
            tasks=tuple(client.tasks(job.id)),
            measured=tuple(client.trials(job.id)),
        )


def _device_name(number: int) -> str:
    return f"simulated-{number:02d}"


@contextlib.contextmanager
def _devices(farm: OwnFarm, setting: Setting, count: int) -> Iterator[BatchLog]:
    """A context in which the process of the simulated devices runs, and a thread that records its
    reports in the yielded log."""
    log = BatchLog()
    settings = farm.settings
    command = [
        *(sys.executable, "-m", "bench.scaling.devices", "--broker", farm.broker),
        *("--token-file", str(settings.home / "device.token")),
        *("--state", str(settings.home / "devices"), "--devices", str(count)),
        *("--candidate-s", str(setting.candidate_s)),
        *(["--invented"] if setting.invented else []),
    ]
    with (settings.home / "logs" / "devices.log").open("wb") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            log.hear(json.loads(line))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with process:
        try:
            yield log
        finally:
            process.kill()
            reader.join()


def _await_devices(client: Client, count: int) -> None:
    deadline = time.monotonic() + _FIRST_BATCH_S
    while sum(1 for _ in client.devices()) < count:
        if time.monotonic() > deadline:
            raise ServiceError(f"the {count} simulated devices do not connect")
        time.sleep(_LOOK_S)


class _Watch:
    """The events of a job, collected by a thread. It has its own client, because it may outlive the
    measurement's client."""

    def __init__(self, farm: OwnFarm, job: str) -> None:
        # The time, trials, and predicted ms.
        self.measured: list[tuple[float, int, float | None]] = []
        self.ended: Job | None = None
        self._farm = farm
        self._job = job
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        # The farm ends before the stream does.
        with contextlib.suppress(FarrierError), Client(self._farm.url, self._farm.token) as client:
            for update in client.watch(self._job):
                if isinstance(update, TrialsMeasured):
                    self.measured.append((time.monotonic(), update.trials, update.best_ms))
                elif isinstance(update, StateChanged) and update.final:
                    self.ended = client.job(self._job)


def _first_alone(log: BatchLog, watch: _Watch) -> DeviceBatch:
    deadline = time.monotonic() + _FIRST_BATCH_S
    while True:
        for batch in list(log.batches):
            if batch.alone:
                return batch
        if watch.ended is not None:
            watch.ended.raise_for_state()
            raise ServiceError("the job ended without a batch of kernels alone")
        if time.monotonic() > deadline:
            raise ServiceError(f"no batch of kernels alone began in {_FIRST_BATCH_S:.0f} s")
        time.sleep(_LOOK_S)


def _window_end(log: BatchLog, watch: _Watch, begin: float, seconds: float) -> float:
    """Wait until the phase of single kernels has finished, or `seconds` have passed since `begin`;
    return that time of the monotonic clock."""
    while time.monotonic() < begin + seconds:
        later = [
            entry.begin for entry in list(log.batches) if not entry.alone and entry.begin > begin
        ]
        if later or watch.ended is not None:
            ended = [entry.end or 0.0 for entry in list(log.batches) if entry.alone]
            return max(ended)
        time.sleep(_LOOK_S)
    return time.monotonic()


def _cancel(client: Client, job: str) -> None:
    with contextlib.suppress(FarrierError):  # it has ended
        client.cancel(job)


class _Meter:
    """The resources that the farm's roles have used so far. The difference of two meters is a
    cost."""

    def __init__(self, farm: OwnFarm) -> None:
        pids = farm.pids
        self._worker: WorkerTime = worker_time(pids["worker"])
        self._of_roles = {name: tree_s(pids[name]) for name in ("broker", "serve", "valkey")}
        self._commands, self._scripts = farm.commands()
        self._machine_s, self._own_s = machine_s(), tree_s(os.getpid())

    def __sub__(self, before: _Meter) -> Costs:
        worker = self._worker - before._worker
        used = {name: now - before._of_roles[name] for name, now in self._of_roles.items()}
        return Costs(
            supervisor_s=worker.supervisor_s,
            jobs_s=worker.jobs_s,
            builders_s=worker.builders_s,
            broker_s=used["broker"],
            api_s=used["serve"],
            redis_s=used["valkey"],
            redis_commands=self._commands - before._commands,
            redis_scripts=self._scripts - before._scripts,
            others_s=self._machine_s - before._machine_s - (self._own_s - before._own_s),
        )


def model_bytes(name: str) -> bytes:
    """Return a model of `bench.models` by name, or the content of an ONNX file by path. Raises
    OSError."""
    from bench import models

    if name in models.NAMES:
        return models.build(name)
    return Path(name).read_bytes()
