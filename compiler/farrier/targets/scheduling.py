"""The role of a backend that provides the schedule spaces of kernels, and lower bounds of their
times."""

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
    """The peak rates of a machine: f32 operations per second, and bytes per second from memory. 0
    means that the rate is unknown."""

    operations: float = 0.0
    bandwidth: float = 0.0


class Scheduling(Protocol):
    """The schedule spaces of the kernels for a backend's targets.

    Equal arguments result in an equal space in every process, since tuning records and helper
    processes identify a candidate by its decisions alone. The default schedule of a space must be
    valid for every size of open (dynamic) dims.
    """

    @property
    def rules(self) -> frozenset[RuleId]:
        """The rules whose spaces `space` may return, with their current versions. Tuning records of
        other versions are ignored."""
        ...

    @property
    def intrinsics(self) -> Sequence[TensorIntrinsic]:
        """The tensor intrinsics of all machines of the backend."""
        return ()

    def space(self, program: TensorProgram | Function, target: Target, threads: int) -> Space:
        """Return the schedule space of a kernel that `threads` threads run."""
        ...

    def floor_ns(self, program: TensorProgram | Function, target: Target, threads: int) -> int:
        """Return a time in nanoseconds that no machine of the target's kind can beat when it runs
        the kernel; 0 if no such bound is known. If a device reports a shorter time, its measurement
        is rejected as false."""
        return 0

    def peaks(self, target: Target, threads: int) -> Peaks:
        """Return the peak rates of `threads` threads, for roofline plots."""
        return Peaks()

    def measured_peaks(self, loaded: Loaded) -> Peaks:
        """Measure the rates that the device of a loaded model reaches at present. The model cannot
        be run afterwards. By default the rates are unknown."""
        return Peaks()
