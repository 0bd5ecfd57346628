"""The role of a backend that schedules kernels: spaces of schedules, and bounds of times."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from farrier.intrinsics import TensorIntrinsic
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.records import RuleId
    from farrier.space import Space
    from farrier.targets.running import Loaded
    from farrier.targets.target import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Peaks:
    """Operations on f32 a second, and bytes a second from memory; 0 stands for an unknown bound."""

    operations: float = 0.0
    bandwidth: float = 0.0


class Scheduling(Protocol):
    """The source of spaces of schedules.

    The space of equal arguments is the same in every process, as records and helper processes refer
    to its candidates by their decisions. Its default applies to every size of open dims.
    """

    @property
    def rules(self) -> frozenset[RuleId]:
        """The rules whose spaces `space` returns, in the versions that it has of them: records of
        other versions do not count."""
        ...

    @property
    def intrinsics(self) -> Sequence[TensorIntrinsic]:
        """The tensor intrinsics of all its machines."""
        return ()

    def space(self, program: TensorProgram | Function, target: Target, threads: int) -> Space:
        """Return the schedule space of one kernel run by `threads` threads."""
        ...

    def floor_ns(self, program: TensorProgram | Function, target: Target, threads: int) -> int:
        """Return the nanoseconds that no call of a kernel can beat on any machine of the target's
        kind: a device that answers less did not run the code. 0 where nothing is known."""
        return 0

    def peaks(self, target: Target, threads: int) -> Peaks:
        """Return the bounds of `threads` threads, for a roofline to show."""
        return Peaks()

    def measured_peaks(self, loaded: Loaded) -> Peaks:
        """Return the rates that the device of a loaded model reaches right now, which the model is
        not run on afterwards; unknown ones by default."""
        return Peaks()
