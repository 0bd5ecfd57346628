"""The trainer's side of its training process."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from farrier.records import TaskDefinition, TuningRecord
from farrier.records.outcome import Outcome
from farrier_farm.settings import Settings
from farrier_worker.sandboxed_process import ProcessEndedError, SandboxedProcess

TRAIN_COMMAND = (sys.executable, "-P", "-m", "farrier_worker.train")

_NICE = 19  # The lowest priority, because a device may measure on this machine.
_MOST_BYTES = 32 << 20  # The most bytes of an answer; a usual model has half of one MiB.


class TrainProcess(SandboxedProcess):
    """A process that trains one cost model, on the tasks that are added, within
    `FARRIER_TRAIN_TIMEOUT_S` seconds in total. Each method raises ProcessEndedError, after which
    this object must not be used again."""

    def __init__(
        self, settings: Settings, command: Sequence[str], rivals: Mapping[str, Path]
    ) -> None:
        """Start the process. `rivals` are saved cost models that the new model has to surpass.
        Raises OSError if the process cannot start."""
        self._rivals = rivals
        self._began = time.monotonic()
        super().__init__("train", settings, command, reads=[*rivals.values()], nice=_NICE)

    def add(self, definition: TaskDefinition, records: Sequence[TuningRecord]) -> bool:
        """Add a task with its records to the training data. Return whether there is room for more
        tasks."""
        message = {"add": definition.to_line(), "records": [record.to_line() for record in records]}
        match self._asked(message):
            case {"full": bool(is_full)}:
                return not is_full
            case _:
                raise _malformed("an unexpected answer")

    def train(self) -> tuple[Outcome, bytes | None]:
        """Train on the added tasks. Return the outcome, and the bytes of the model if it is better
        than all rivals, otherwise None."""
        rivals = {name: str(path) for name, path in self._rivals.items()}
        answer = self._asked({"train": rivals})
        try:
            outcome = Outcome.from_dict(answer["outcome"])
            saved = answer["model"]
            model = None if saved is None else base64.b64decode(saved, validate=True)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _malformed(f"{type(error).__name__}: {error}") from error
        if outcome.is_better != (model is not None):
            raise _malformed("a model contradicts its outcome")
        return outcome, model

    def _asked(self, message: dict[str, Any]) -> dict[str, Any]:
        within_s = self._settings.train_timeout_s
        return self.ask(message, within_s, _MOST_BYTES, since=self._began)


def _malformed(what: str) -> ProcessEndedError:
    return ProcessEndedError(f"sent a malformed message: {what}", is_to_blame=True)
