"""The rule `fragment-parts`: split-K matrix products on fragments. Sums are divided into parts,
each computed by its own blocks, and combined by a second launch. It applies to products with fewer
than two tiles for each unit of the device, which would leave units idle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.intrinsics.fragments import FragmentProduct
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space import Decisions, Space
from farrier.space.inline import inline
from farrier.targets.gpu import fragments, parts
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.fragment_cost import Shape, cost

RULE = RuleId("fragment-parts", version=3)
_FEW = 2  # Tiles for each unit: with two, all units are at work.


def space(
    program: TensorProgram | Function,
    limits: Limits,
    device: Device,
    declared: Sequence[FragmentProduct],
) -> Space | None:
    """Return the schedule space of a kernel, whose knob is the number of parts. Return None unless
    the kernel has a single sum, that sum is a product for which the device declares a fragment
    product, and the product has few tiles."""
    if isinstance(program, Function) or not declared:
        return None
    program = inline(program)
    total, products = parts.sum_of(program), fragments.products_of(program, declared)
    if total is None or total.product is None or len(products) != 1:
        return None
    kernel = _Kernel(program, total, limits, device)
    kernel.declared = products[0].declared
    if kernel.tiles_of(1) >= _FEW * device.units or not kernel.counts:
        return None
    return Space.of(RULE, kernel)


class _Kernel(parts.Kernel):
    """The kernel of the rule: the knobs and schedule of the rule `parts`, with fragments."""

    declared: FragmentProduct

    def tiles_of(self, count: int) -> float:
        """Return the number of blocks in the launch that multiplies."""
        return self._figure(count, "tiles")

    def first(self, count: int) -> float:
        return self._figure(count, "seconds")

    def multiply(self, schedule: Schedule, count: int) -> None:
        product = self._part(count)
        fragments.multiply(schedule, product, self._best(product.shape))

    def _part(self, count: int) -> fragments.OfFragments:
        part = self.sum.part(count)
        shape = Shape(part.shape, self.declared)
        return fragments.OfFragments(part.total, part.reader, self.declared, shape)

    def _best(self, shape: Shape) -> Decisions:
        return fragments.best(shape, self.limits, self.device)

    def _figure(self, count: int, name: str) -> float:
        shape = self._part(count).shape
        columns = {key: np.array([value]) for key, value in self._best(shape).items()}
        estimate = cost(shape, self.device, columns)
        return float((estimate.seconds if name == "seconds" else estimate.terms[name])[0])
