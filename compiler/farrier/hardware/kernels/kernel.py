"""A scheduled loop function as hardware: its regions, the pipeline of each region, and its
Verilog."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from farrier.hardware.kernels.banks import Banks
from farrier.hardware.kernels.pipeline import Pipeline, pipeline_of
from farrier.hardware.kernels.regions import Item, Region, regions_of
from farrier.ir.choices import with_usual_choices
from farrier.ir.loop import Function
from farrier.targets.dae.rtl.emit import require, verilog_of

if TYPE_CHECKING:
    from farrier.hardware.kernels.module import KernelModule

TOP = "kernel"


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """A loop function as hardware. `items` are its regions and the serial loops around them, and
    `pipelines` has the pipeline of each region."""

    function: Function
    items: Sequence[Item]
    pipelines: Sequence[Pipeline]

    @property
    def cycles(self) -> int:
        """The number of clock cycles that one run of the kernel takes."""
        of_region = {each.region: each.cycles for each in self.pipelines}
        return _cycles(self.items, of_region)

    def module(self) -> KernelModule:
        """Return the Amaranth module. Raises UsageError if Amaranth is not installed."""
        require("amaranth")
        from farrier.hardware.kernels.module import KernelModule

        return KernelModule(self.items, self.pipelines)

    def verilog(self) -> str:
        """Return the kernel as Verilog, with a top module named `kernel`. Raises UsageError if a
        tool is missing or fails."""
        module = self.module()
        return verilog_of(module, module.ports, TOP)


def kernel_of(function: Function) -> Kernel:
    """Convert a scheduled loop function to hardware. Raises UsageError for a statement, operator or
    dtype that hardware does not support."""
    function = with_usual_choices(function)
    regions = regions_of(function)
    banks = Banks(function, regions)
    pipelines = [
        pipeline_of(region, banks, regions.ranges, function.name) for region in regions.every()
    ]
    return Kernel(function, regions.items, pipelines)


def _cycles(items: Sequence[Item], of_region: dict[Region, int]) -> int:
    return sum(
        of_region[item] if isinstance(item, Region) else item.extent * _cycles(item.body, of_region)
        for item in items
    )
