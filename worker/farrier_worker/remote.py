"""The compiler's runner, record stores and builders within a job's process: they pass each request
on to the supervisor, which serves the request on the farm."""

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
_LOOK_S = 2.0  # The interval at which the number of devices is read anew.


class RemoteRunner:
    """A `farrier.measure.Runner` that measures on the farm's devices."""

    kind = "farm"

    def __init__(self, line: JobChannelClient) -> None:
        self._line = line
        self._brought: set[str] = set()  # The blobs that the farm has already.
        self._devices = 1
        self._looked_at = -math.inf

    @property
    def devices(self) -> int | None:
        """Return the number of devices that measure; the number may be up to `_LOOK_S` seconds
        old."""
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
        """Measure a batch. Blobs that an earlier request sent, other than the library, are sent
        again only if the farm has lost them."""
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
                # The source is the caller's, so any exception is possible.
                except Exception as error:
                    message = f"blob {name} is missing: {error}"
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
        """Do nothing, because the runner holds no resources."""


class RemoteRecords:
    """A `farrier.records.RecordStore` of the farm's tuning records."""

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
    """A `farrier.records.TaskStore` of the farm's task definitions."""

    def __init__(self, line: JobChannelClient) -> None:
        self._line = line

    def define(self, definitions: Sequence[TaskDefinition]) -> None:
        for start in range(0, len(definitions), _DEFINED_AT_ONCE):
            part = definitions[start : start + _DEFINED_AT_ONCE]
            self._line.ask({"define": [definition.to_line() for definition in part]})


class RemoteBuilders:
    """A `farrier.compile_pool.RemoteCompilers` that uses the farm's builders."""

    def __init__(self, line: JobChannelClient) -> None:
        self._line = line

    def count(self) -> int:
        return int(self._line.ask({"builders": True})["builders"])

    def build(self, message: str) -> Built:
        # The compiler may be imported only within the sandbox.
        from farrier.compile_pool import Built

        answer = self._line.ask({"build": message})
        return Built(answer["built"], answer["crashed"])
