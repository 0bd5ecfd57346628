"""The part of a backend that all GPUs share: graph passes, schedule rules, and the decision where
each kernel runs."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from farrier.errors import CompilerError
from farrier.targets.driven.backend import DrivenBackend

if TYPE_CHECKING:
    from farrier.intrinsics.fragments import FragmentProduct
    from farrier.intrinsics.warpgroups import WarpgroupProduct
    from farrier.ir.dim import Extent
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.passes.passes import Pass
    from farrier.records import RuleId
    from farrier.space import Space
    from farrier.targets.gpu.device import Device, Limits
    from farrier.targets.interface import Interface
    from farrier.targets.target import Target


class GpuBackend(DrivenBackend):
    """The base class of GPU backends. A kernel runs on the GPU if the backend's renderer supports
    it, and otherwise on the host."""

    @abc.abstractmethod
    def why_not_expressible(
        self, program: TensorProgram | Function, lowered: Callable[[], Function], target: Target
    ) -> str:
        """Return the reason why the renderer does not support a kernel, as a clause; "" if it does.
        `lowered` returns the kernel's loops as lowered with the default schedule."""

    @abc.abstractmethod
    def device(self, target: Target) -> tuple[Limits, Device]:
        """Return the limits of a GPU, and the performance figures for its cost estimates."""

    def products(self, target: Target) -> Sequence[FragmentProduct]:
        """Return the matrix products that the GPU's subgroups support in hardware (tensor cores),
        best of each kind first."""
        return ()

    def warpgroup_products(self, target: Target) -> Sequence[WarpgroupProduct]:
        """Return the matrix products that the GPU's warpgroups support in hardware."""
        return ()

    @abc.abstractmethod
    def scratch_bytes(self, function: Function) -> Extent:
        """Return the bytes of all workspace buffers of a lowered kernel."""

    @property
    def passes(self) -> tuple[str, ...]:
        return (
            "packed-products",
            "byte-products",
            "fold-constants",
            "eliminate-common-subexpressions",
            "split-products",
            "simplify",
            "eliminate-common-subexpressions",
            "fold-batch-norm",
            "recast-convolutions",
            "eliminate-dead-code",
            "round-factors",
            "widen-floats",
            "fold-constants",  # The conversions of biases.
            "merge-products",
            "channels-last",
            "eliminate-dead-code",  # Constants whose copies lie otherwise.
            "split-resizes",
            "share-work",
            "transpose-in-place",
            "fuse-attentions",
        )

    @property
    def own_passes(self) -> Mapping[str, Pass]:
        from farrier.targets.gpu.passes import PASSES

        return PASSES

    def loop_passes(self, target: Target) -> tuple[str, ...]:
        return ("eliminate-dead-stores", "lower-threads")

    @property
    def rules(self) -> frozenset[RuleId]:
        from farrier.targets.gpu.rules import RULES

        return RULES

    def why_not_on_device(self, program: TensorProgram | Function, target: Target) -> str:
        from farrier.lower.runner import run_loop_passes
        from farrier.targets.gpu import points

        def lowered() -> Function:
            limits, _ = self.device(target)
            space = points.space(program, limits.packed)
            loops = space.schedule(space.default()).function
            return run_loop_passes(loops, self.loop_passes(target))

        return self.why_not_expressible(program, lowered, target)

    def space(self, program: TensorProgram | Function, target: Target, threads: int) -> Space:
        from farrier.ir.tensor import TensorProgram
        from farrier.lower.memory_order import in_memory_order
        from farrier.targets.gpu import rules

        if reason := self.why_not_on_device(program, target):
            raise CompilerError(reason, hint="--target host compiles for the processor")
        if isinstance(program, TensorProgram):
            program = in_memory_order(program)
        products = self.products(target), self.warpgroup_products(target)
        return rules.space(program, *self.device(target), *products)

    def interface(self, function: Function) -> Interface:
        from farrier.targets.gpu.launches import entry_points
        from farrier.targets.interface import Interface

        scratch = function.over_dims(self.scratch_bytes(function))
        entries = entry_points(function)
        return Interface(function.name, function.params, function.dims, scratch, 0, entries)

    @property
    def packs_on_device(self) -> bool:
        # The packed arrays and the plain ones may be more than a kernel takes.
        return False
