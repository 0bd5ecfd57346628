"""The role that trains the farm's cost model from time to time, on the records of all jobs, in a
sandboxed process. A model that is better than the version in use is published as the new
version."""

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

TASKS = 10_000  # The number of tasks to train on, the latest definitions first.
RECORDS = 1024  # The newest records of each task, of all schedules, contexts and thread counts.

_MOST_KNOBS = 100  # The most knobs of a record; a usual record has 10.
_TICK_S = 0.1
_LOOK_S = 0.25  # The interval at which the limits of the process are checked.

_log = logging.getLogger(__name__)


class Trainer:
    """The trainer of a farm's cost model; it trains in processes started by `command`. If a farm
    has several trainers, each of them trains, but only one publishes its model."""

    def __init__(
        self,
        farm: Farm,
        *,
        command: Sequence[str] = TRAIN_COMMAND,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a trainer; it calls `alive` in each iteration of its loop."""
        self._farm = farm
        self._command = command
        self._alive = alive
        self._is_draining = False
        self._process: TrainProcess | None = None
        self._starting = threading.Lock()  # Guards the start of the process.

    def run(self) -> None:
        """Train from time to time until `drain` has been called."""
        look_at = time.monotonic()
        looking: threading.Thread | None = None
        while not self._is_draining:
            self._alive()
            if looking is None and time.monotonic() >= look_at:
                # Training runs in a thread, so that the loop can report the role alive meanwhile.
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
        """Stop training, and abort a training in progress, which can simply be repeated. Safe to
        call from a signal handler."""
        self._is_draining = True

    def train(self) -> str:
        """Train now, even if there are few new records, and return the outcome as one line of text.
        Raises ServiceError and StorageError."""
        state, count = self._farm.cost_models.state(), self._farm.records.count()
        model: bytes | None = None
        records = count
        try:
            outcome, model = self._trained(state)
        except (ProcessEndedError, OSError) as end:
            outcome = Outcome(False, f"training failed: its process {end}")
            records = state.records  # The new records count as new again for the next training.
        if self._is_draining:
            return "nothing is published: the trainer was stopped"
        number = self._farm.cost_models.decide(state.turn, records, outcome, model)
        if number is None:
            return "nothing is published: the cost model has changed meanwhile"
        if number:
            return f"version {number} is published and in use: {outcome.reason}"
        return f"nothing is published: {outcome.reason}"

    def _look(self) -> None:
        """Train if there are enough new records since the last training."""
        try:
            count = self._farm.records.count()
            before = self._farm.cost_models.state().records
            new = count - (before if before <= count else 0)  # Some records may have been pruned.
            if new < self._farm.settings.train_records:
                needed = self._farm.settings.train_records
                _log.info("no training: only %d of %d records are new", new, needed)
                return
            _log.info("%s", self.train())
        except FarrierError as error:
            _log.warning("%s; the next attempt at training follows later", error.message)
        except Exception:  # A defect costs only this training.
            _log.exception("a training failed")

    def _trained(self, state: CostModelState) -> tuple[Outcome, bytes | None]:
        """Train in a sandboxed process, and return the outcome and the model (None if it is not
        better). Raises ProcessEndedError, OSError."""
        rivals = {}
        for version in state.to_beat:
            # A blob that was removed or damaged by hand cannot be used.
            with contextlib.suppress(NotFoundError, StorageError):
                rivals[f"version {version.number}"] = self._farm.blobs.verified(version.blob)
        with self._watched(rivals) as process:
            for definition in self._farm.definitions.newest(TASKS):
                records = self._records(definition)
                if records and not process.add(definition, records):
                    break
            return process.train()

    def _records(self, definition: TaskDefinition) -> list[TuningRecord]:
        """Return the records of a task that were measured with the definition's number of threads,
        reduced to the data that training reads: one time, and no schedule text, which may be long.
        The size of records is limited, because processes of jobs wrote them."""
        records = self._farm.records.newest(definition.task, definition.fingerprint, RECORDS)
        return [
            _shortened(record)
            for record in records
            if record.threads == definition.threads and len(record.decisions) <= _MOST_KNOBS
        ]

    @contextlib.contextmanager
    def _watched(self, rivals: Mapping[str, Path]) -> Iterator[TrainProcess]:
        """Return a context with a training process, which is killed when it exceeds its limits or
        the trainer stops."""
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
    """Train the cost model from time to time until SIGTERM or SIGINT. Returns the exit code.

    Raises ServiceError if Redis cannot be reached at the start.
    """
    return run_role(
        "trainer", settings, lambda farm, alive: Trainer(farm, command=command, alive=alive)
    )


def run_once(settings: Settings) -> str:
    """Train the cost model now, and return the outcome as one line of text. Raises ServiceError,
    StorageError."""
    with contextlib.closing(Farm.open(settings)) as farm:
        return Trainer(farm).train()
