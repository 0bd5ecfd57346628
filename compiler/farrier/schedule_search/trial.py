"""A measured candidate, and who measures."""

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
    """One candidate of one task and how it did."""

    decisions: dict[str, int]
    result: CandidateResult

    @property
    def seconds(self) -> float:
        """Seconds of an undisturbed call; infinity where the candidate failed."""
        return self.result.undisturbed_ns * 1e-9


class DeviceFaultError(Exception):
    """The device could not measure a batch: a fact about the device, not about its candidates."""

    def __init__(self, fault: DeviceFault, message: str, *, is_final: bool = False) -> None:
        """`is_final` where another attempt at the batch would meet the same fault."""
        super().__init__(f"{fault.value}: {message}" if message else fault.value)
        self.fault = fault
        self.is_final = is_final


class Measurer(Protocol):
    """Measures candidates of a task, on one device or on several."""

    @property
    def devices(self) -> int | None:
        """How many devices measure now; None where it is this machine."""
        ...

    @property
    def candidate_s(self) -> float:
        """Seconds that a device takes for a candidate, as far as is known; 0.0 before the first."""
        ...

    def aside(self) -> contextlib.AbstractContextManager[object]:
        """Within it the caller computes on this machine: what it would disturb waits, and the
        other way round."""
        ...

    def measure(
        self,
        task: str,
        space: Space,
        batch: Sequence[Decisions],
        called_off: threading.Event | None = None,
    ) -> list[CandidateResult]:
        """One result a candidate, in order; a candidate that does not build, crashes, hangs or
        answers wrong has a result that says so. A candidate listed several times is measured as
        often, interleaved with the others. Several threads may ask at once. Raises
        DeviceFaultError, soon after a batch is called off as well."""
        ...
