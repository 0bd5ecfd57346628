"""The compiler's runner, stores and builders in a job's process: the supervisor does what they are
asked for, on the farm."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from farrier.records import TaskDefinition, TuningRecord
from farrier_device.measurement import (
    Blame,
    DeviceFault,
    MeasureRequest,
    MeasureResult,
    result_from_json,
    to_json,
)
from farrier_device.runners.files import BlobSource
from farrier_worker.job_channel_client import JobChannelClient

if TYPE_CHECKING:
    from farrier.compile_pool import Built

_DEFINED_AT_ONCE = 100
_LOOK_S = 2.0  # between two looks at how many devices there are


class RemoteRunner:
    """Implements `farrier.measure.Runner`."""

    kind = "farm"

    def __init__(self, line: JobChannelClient) -> None:
        self._line = line
        self._brought: set[str] = set()  # that the farm has
        self._devices = 1
        self._looked_at = -math.inf

    @property
    def devices(self) -> int | None:
        """How many measure now, or did a moment ago."""
        now = time.monotonic()
        if now - self._looked_at > _LOOK_S:
            self._looked_at = now
            self._devices = int(self._line.ask({"devices": True})["devices"])
        return self._devices

    def measure(
        self,
        request: MeasureRequest,
        blobs: BlobSource,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """What an earlier request brought is not sent again, but for the library, unless the farm
        has lost it."""
        result = self._measured(request, blobs, cancelled)
        if result.fault is not None and result.blame is Blame.FARM:
            withheld = self._brought & request.blobs()
            self._brought -= withheld
            if withheld:
                return self._measured(request, blobs, cancelled)
        return result

    def _measured(
        self, request: MeasureRequest, blobs: BlobSource, cancelled: threading.Event | None
    ) -> MeasureResult:
        names = sorted(request.blobs() - self._brought | request.code_blobs)
        with contextlib.ExitStack() as opened:
            files = []
            for name in names:
                try:
                    files.append(os.open(blobs.path(name), os.O_RDONLY | os.O_CLOEXEC))
                except Exception as error:  # the source is the caller's: how it fails is unknown
                    message = f"blob {name} is not here: {error}"
                    return MeasureResult(
                        fault=DeviceFault.BROKEN, blame=Blame.FARM, message=message
                    )
                opened.callback(os.close, files[-1])
            question = {"measure": to_json(request), "blobs": names}
            answer = self._line.ask(question, files, cancelled)
        result = result_from_json(answer["result"])
        if result.fault is None:
            self._brought |= {*names} - request.code_blobs
        return result

    def close(self) -> None:
        """Nothing is left to end."""


class RemoteRecords:
    """Implements `farrier.records.RecordStore`: the farm's records."""

    def __init__(self, line: JobChannelClient) -> None:
        self._line = line

    def add(self, record: TuningRecord) -> None:
        self._line.ask({"add": record.to_line()})

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        return [*self._read({"find": [task, fingerprint]})]

    def __iter__(self) -> Iterator[TuningRecord]:
        return self._read({"records": True})

    def _read(self, question: dict[str, Any]) -> Iterator[TuningRecord]:
        for part in self._line.parts(question):
            if not part["lines"]:
                return
            yield from map(TuningRecord.from_line, part["lines"])


class RemoteTasks:
    """Implements `farrier.records.TaskStore`: the farm's definitions."""

    def __init__(self, line: JobChannelClient) -> None:
        self._line = line

    def define(self, definitions: Sequence[TaskDefinition]) -> None:
        for start in range(0, len(definitions), _DEFINED_AT_ONCE):
            part = definitions[start : start + _DEFINED_AT_ONCE]
            self._line.ask({"define": [one.to_line() for one in part]})


class RemoteBuilders:
    """Implements `farrier.compile_pool.RemoteCompilers`: those of the farm."""

    def __init__(self, line: JobChannelClient) -> None:
        self._line = line

    def count(self) -> int:
        return int(self._line.ask({"builders": True})["builders"])

    def build(self, message: str) -> Built:
        from farrier.compile_pool import Built  # the compiler: within the walls of the process

        answer = self._line.ask({"build": message})
        return Built(answer["built"], answer["crashed"])
