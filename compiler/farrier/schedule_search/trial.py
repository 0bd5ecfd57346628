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
    """One candidate of one task and its result."""

    decisions: dict[str, int]
    result: CandidateResult

    @property
    def seconds(self) -> float:
        """The seconds of an undisturbed call; infinity if the candidate failed."""
        return self.result.undisturbed_ns * 1e-9


class DeviceFaultError(Exception):
    """The device could not measure a batch: a fact about the device, not about its candidates."""

    def __init__(self, fault: DeviceFault, message: str, *, is_final: bool = False) -> None:
        """Store the fault; it `is_final` if another attempt at the batch would meet it again."""
        super().__init__(f"{fault.value}: {message}" if message else fault.value)
        self.fault = fault
        self.is_final = is_final


class Measurer(Protocol):
    """Measures candidates of a task, on one device or on several."""

    @property
    def devices(self) -> int | None:
        """The number of devices that measure now; None for this machine."""
        ...

    @property
    def candidate_s(self) -> float:
        """The seconds that a device takes for a candidate, according to the measurements so far;
        0.0 before the first."""
        ...

    def aside(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which the caller computes on this machine: measurements that this
        would disturb wait, and it waits for them."""
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
