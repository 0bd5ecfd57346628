"""The role that trains the farm's cost model: now and then, on the records of all jobs, in a
process within walls; what is better than the version in use is published."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from farrier.errors import FarrierError, NotFoundError, StorageError
from farrier.records import TaskDefinition, TuningRecord
from farrier.records.outcome import Outcome
from farrier_farm.farm import Farm
from farrier_farm.records.cost_models import CostModelState
from farrier_farm.settings import Settings
from farrier_worker.role_lifecycle import run_role
from farrier_worker.sandboxed_process import ProcessEndedError
from farrier_worker.train_process import TRAIN_COMMAND, TrainProcess

TASKS = 10_000  # those that were defined last
RECORDS = 1024  # of each, the newest: of all schedules, contexts and thread counts

_MOST_KNOBS = 100  # of a record; a usual one has 10
_TICK_S = 0.1
_LOOK_S = 0.25  # between two looks at whether the process keeps to its limits

_log = logging.getLogger(__name__)


class Trainer:
    """Trains by processes with `command`. Of several trainers each trains, and one publishes what
    came of it."""

    def __init__(
        self,
        farm: Farm,
        *,
        command: Sequence[str] = TRAIN_COMMAND,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """`alive` is called each time the loop goes round."""
        self._farm = farm
        self._command = command
        self._alive = alive
        self._is_draining = False
        self._process: TrainProcess | None = None
        self._starting = threading.Lock()  # of the process

    def run(self) -> None:
        """Until `drain` was called."""
        look_at = time.monotonic()
        looking: threading.Thread | None = None
        while not self._is_draining:
            self._alive()
            if looking is None and time.monotonic() >= look_at:
                # Beside the loop, which is alive while a training goes on.
                looking = threading.Thread(target=self._look, name="training")
                looking.start()
            elif looking is not None and not looking.is_alive():
                looking = None
                look_at = time.monotonic() + self._farm.settings.train_s
            time.sleep(_TICK_S)
        self._stop()
        if looking is not None:
            looking.join()

    def drain(self) -> None:
        """Give up a training that goes on: nothing is lost but its time. Safe to call from a
        signal handler."""
        self._is_draining = True

    def train(self) -> str:
        """Train now, however little is new; return what came of it, in a line. Raises
        ServiceError and StorageError."""
        state, count = self._farm.cost_models.state(), self._farm.records.count()
        model: bytes | None = None
        records = count
        try:
            outcome, model = self._trained(state)
        except (ProcessEndedError, OSError) as end:
            outcome = Outcome(False, f"training failed: its process {end}")
            records = state.records  # what is new is new again
        if self._is_draining:
            return "nothing is published: the trainer was told to stop"
        number = self._farm.cost_models.decide(state.turn, records, outcome, model)
        if number is None:
            return "nothing is published: the cost model has changed meanwhile"
        if number:
            return f"version {number} is published and in use: {outcome.reason}"
        return f"nothing is published: {outcome.reason}"

    def _look(self) -> None:
        """Train where enough is new."""
        try:
            count = self._farm.records.count()
            before = self._farm.cost_models.state().records
            new = count - (before if before <= count else 0)  # some may have been pruned
            if new < self._farm.settings.train_records:
                needed = self._farm.settings.train_records
                _log.info("nothing is trained: %d of %d records are new", new, needed)
                return
            _log.info("%s", self.train())
        except FarrierError as error:
            _log.warning("%s; training is tried again later", error.message)
        except Exception:  # a defect, which costs this training
            _log.exception("a training failed")

    def _trained(self, state: CostModelState) -> tuple[Outcome, bytes | None]:
        """Raises ProcessEndedError, OSError."""
        rivals = {}
        for version in state.to_beat:
            # Removed or damaged by hand: nothing can use it.
            with contextlib.suppress(NotFoundError, StorageError):
                rivals[f"version {version.number}"] = self._farm.blobs.verified(version.blob)
        with self._watched(rivals) as process:
            for definition in self._farm.definitions.newest(TASKS):
                records = self._records(definition)
                if records and not process.add(definition, records):
                    break
            return process.train()

    def _records(self, definition: TaskDefinition) -> list[TuningRecord]:
        """Those by as many threads as the definition has, and what is learned from them: one time,
        and no schedule as text, which may be long. Jobs' processes wrote them, so they are bounded
        all the same."""
        found = self._farm.records.newest(definition.task, definition.fingerprint, RECORDS)
        return [
            _shortened(one)
            for one in found
            if one.threads == definition.threads and len(one.decisions) <= _MOST_KNOBS
        ]

    @contextlib.contextmanager
    def _watched(self, rivals: Mapping[str, Path]) -> Iterator[TrainProcess]:
        """A process that ends where it is past its limits, or the trainer is to stop."""
        done = threading.Event()
        with TrainProcess(self._farm.settings, self._command, rivals) as process:
            with self._starting:
                self._process = process
            if self._is_draining:
                self._stop()
            process.log_level()
            watch = threading.Thread(target=_watch, args=(process, done), name="limits")
            watch.start()
            try:
                yield process
            finally:
                done.set()
                watch.join()
                with self._starting:
                    self._process = None

    def _stop(self) -> None:
        with self._starting:
            if self._process is not None:
                self._process.abort("was stopped with its trainer", is_to_blame=False)


def _shortened(record: TuningRecord) -> TuningRecord:
    samples = (round(record.seconds * 1e9),) if record.samples_ns else ()
    return dataclasses.replace(record, trace="", samples_ns=samples)


def _watch(process: TrainProcess, done: threading.Event) -> None:
    while not done.wait(_LOOK_S):
        process.check()


def run(settings: Settings, *, command: Sequence[str] = TRAIN_COMMAND) -> int:
    """Train now and then until SIGTERM or SIGINT. Returns the exit code.

    Raises ServiceError where Redis is out of reach at the start."""
    return run_role(
        "trainer", settings, lambda farm, alive: Trainer(farm, command=command, alive=alive)
    )


def run_once(settings: Settings) -> str:
    """Train now; return what came of it. Raises ServiceError, StorageError."""
    with contextlib.closing(Farm.open(settings)) as farm:
        return Trainer(farm).train()
