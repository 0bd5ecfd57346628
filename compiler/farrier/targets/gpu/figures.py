"""The figures of a GPU that has a name, as its maker publishes them."""

from __future__ import annotations

import dataclasses

from farrier.targets.gpu.device import USUAL, Device


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """A GPU as its maker describes it. A unit begins a multiply-add of f32 in each of its `lanes`
    in each of `clock` cycles in a second at most; `group` threads run in lockstep. The `bandwidth`
    is that of the memory, in bytes a second."""

    cpu: str  # The name that its driver has for it begins so.
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
        """The operations on f32 in a second: a multiply-add is two."""
        return 2 * self.units * self.lanes * self.clock

    def device(self) -> Device:
        """Return the GPU for rules; the figures that nobody publishes are the usual ones."""
        return dataclasses.replace(
            USUAL,
            units=self.units,
            clock=self.clock,
            lanes=self.lanes,
            group=self.group,
            bandwidth=self.bandwidth,
            cache_bandwidth=self.bandwidth * USUAL.cache_bandwidth / USUAL.bandwidth,
        )
