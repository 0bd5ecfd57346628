"""The graph passes for microcontrollers, in order: those for CPUs, and additional ones."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.ir.graph import Graph, Node
from farrier.passes.fuse import Home, fuse
from farrier.passes.passes import Pass
from farrier.passes.settings import Settings
from farrier.targets.bare.passes.bound_sums import bound_sums
from farrier.targets.bare.passes.constant_channels import constant_channels
from farrier.targets.bare.passes.patches import patches
from farrier.targets.bare.passes.take_in_lines import gathered_lines
from farrier.targets.bare.passes.take_in_operands import widened_operands
from farrier.targets.bare.passes.take_in_padding import padded_windows
from farrier.targets.cpu.passes import ORDER as CPU_ORDER
from farrier.targets.cpu.passes import PASSES as CPU_PASSES
from farrier.targets.cpu.passes.inverted_bottlenecks import inverted_bottlenecks


def _fuse(graph: Graph, settings: Settings) -> Graph:
    """Fuse nodes to kernels, including inverted bottlenecks, operands that are widened from bytes,
    and the borders (Pad) of convolutions."""

    def joins(whole: Graph, home: Home) -> Mapping[int, Node]:
        bottlenecks = inverted_bottlenecks(whole, home, settings)
        operands = {**widened_operands(whole, home), **gathered_lines(whole)}
        return {**bottlenecks, **operands, **padded_windows(whole)}

    return fuse(graph, joins)


PASSES: Mapping[str, Pass] = {
    **CPU_PASSES,
    "constant-channels": constant_channels,
    "bound-sums": bound_sums,
    "patches": patches,
    "fuse": _fuse,
}

_LAYOUTS = CPU_ORDER.index("assign-layouts")
ORDER: tuple[str, ...] = (
    *CPU_ORDER[:_LAYOUTS],
    "patches",
    *CPU_ORDER[_LAYOUTS:-1],
    "constant-channels",
    "bound-sums",
    CPU_ORDER[-1],
)
