"""A runner that measures in this process, on a device that needs no isolation or cannot be
isolated."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from farrier_device.arguments import Arguments
from farrier_device.blob import Blob
from farrier_device.devices.device import AnyDevice, DeviceError
from farrier_device.measurement import (
    Candidate,
    CandidateResult,
    MeasureRequest,
    MeasureResult,
    Status,
)
from farrier_device.measuring import Candidates


class InProcessRunner:
    """A runner, as defined by `farrier.measure.Runner`, in this process. Each batch opens the
    device again. Code that hangs or crashes takes this process down."""

    devices: int | None = None

    def __init__(self, open_device: Callable[[], AnyDevice]) -> None:
        self._open_device = open_device

    def name_of(self, device: AnyDevice) -> str:
        """Return the name of the device for results."""
        return type(device).__name__

    def is_emulated(self, device: AnyDevice) -> bool:
        """Return True if the device is emulated in software, so that its times are not those of
        hardware."""
        return False

    def measure(self, request: MeasureRequest, blobs: Any, cancelled: Any = None) -> MeasureResult:
        begin = time.monotonic()
        with contextlib.ExitStack() as opened:
            device = opened.enter_context(contextlib.closing(self._open_device()))
            name, emulated = self.name_of(device), self.is_emulated(device)
            code = []
            for each in request.code:
                file = os.open(blobs.path(each.blob), os.O_RDONLY)
                opened.callback(os.close, file)
                code.append((each, file))
            try:
                device.load(code, request.policy.threads, ())
            except DeviceError as unfit:
                rejected = CandidateResult(Status.REJECTED, message=str(unfit))
                results = (rejected,) * len(request.candidates)
                return MeasureResult(results, device=name, emulated=emulated)
            names = {blob for candidate in request.candidates for blob in _blobs_of(candidate)}
            held = {
                blob: opened.enter_context(
                    contextlib.closing(Blob(os.open(blobs.path(blob), os.O_RDONLY)))
                )
                for blob in names
            }
            candidates, arguments = Candidates(device, request.policy, held), Arguments(device)
            results = tuple(
                candidates.measure(candidate, arguments, lambda: None)
                for candidate in request.candidates
            )
        run_s = time.monotonic() - begin
        return MeasureResult(results, device=name, run_s=run_s, emulated=emulated)

    def close(self) -> None:
        """Do nothing, because nothing stays open between batches."""


def _blobs_of(candidate: Candidate) -> Iterator[str]:
    for argument in candidate.args:
        yield from filter(None, (argument.blob, argument.expected))
