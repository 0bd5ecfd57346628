"""The published figures of a named GPU."""

from __future__ import annotations

import dataclasses

from farrier.targets.gpu.device import USUAL, Device


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """A GPU as its maker describes it. `clock` is the highest clock in cycles per second. In each
    cycle, a unit starts an f32 multiply-add in each of its `lanes`. `group` threads run in
    lockstep. `bandwidth` is that of the memory, in bytes per second."""

    cpu: str  # The beginning of the name that the driver reports.
    units: int
    lanes: int
    clock: float
    group: int
    bandwidth: float
    l2_bytes: int
    memory_bytes: int
    source: str

    @property
    def operations(self) -> float:
        """The f32 operations per second; a multiply-add counts as two."""
        return 2 * self.units * self.lanes * self.clock

    def device(self) -> Device:
        """Return the GPU as a Device for cost estimates. Unpublished figures have the usual
        values."""
        return dataclasses.replace(
            USUAL,
            units=self.units,
            clock=self.clock,
            lanes=self.lanes,
            group=self.group,
            bandwidth=self.bandwidth,
            cache_bandwidth=self.bandwidth * USUAL.cache_bandwidth / USUAL.bandwidth,
        )
