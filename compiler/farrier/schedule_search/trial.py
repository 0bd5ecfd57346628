"""A measured candidate, and the interface of a measurer."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Sequence
from typing import Protocol

from farrier.space import Decisions, Space
from farrier_device.measurement import CandidateResult, DeviceFault


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """A candidate of a task and the result of its measurement."""

    decisions: dict[str, int]
    result: CandidateResult

    @property
    def seconds(self) -> float:
        """The seconds of a call without disturbance; infinity if the candidate failed."""
        return self.result.undisturbed_ns * 1e-9


class DeviceFaultError(Exception):
    """An error: the device could not measure a batch, for reasons other than the batch's
    candidates."""

    def __init__(self, fault: DeviceFault, message: str, *, is_final: bool = False) -> None:
        """Store the fault of a device. `is_final` is true if repeating the batch would fail in the
        same way."""
        super().__init__(f"{fault.value}: {message}" if message else fault.value)
        self.fault = fault
        self.is_final = is_final


class Measurer(Protocol):
    """The interface of a measurer of candidates, on one device or on several."""

    @property
    def devices(self) -> int | None:
        """The number of connected remote devices that can measure; None if this machine itself
        measures."""
        ...

    @property
    def candidate_s(self) -> float:
        """The average seconds for which a candidate occupies a device, according to the
        measurements so far; 0.0 before the first."""
        ...

    def aside(self) -> contextlib.AbstractContextManager[object]:
        """Return a context within which the caller may compute on this machine without disturbing
        measurements. On entry, it waits until running measurements have ended; further measurements
        wait until the context is left."""
        ...

    def measure(
        self,
        task: str,
        space: Space,
        batch: Sequence[Decisions],
        called_off: threading.Event | None = None,
    ) -> list[CandidateResult]:
        """Return one result for each candidate, in order; a candidate that does not build, crashes,
        hangs or computes wrong results has a result with that status. A candidate listed several
        times is measured several times, interleaved with the others. Thread-safe. Raises
        DeviceFaultError, also soon after a batch is called off."""
        ...
