"""The rule `parts`: long sums with few results, each of which is computed by several blocks. One
launch computes the sums of parts, by tiles or by rows, and a second launch adds them (split-K).

    y[m, n] = sum(x[m, k] * w[k, n])     →    p[m, n, part] = sum(x[m, k] * w[k, n] of the part)
                                              y[m, n] = sum(p[m, n, part])

A product with few rows and columns has too few tiles to occupy all units of a device, and a
reduction of few rows has too few blocks. All parts have the same length.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import typical
from farrier.ir.expr import Axis, Reduce
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.ir.types import Layout, PhysicalDim
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.space.operations import count_points
from farrier.targets.gpu import points, product_cost, rows, tiles
from farrier.targets.gpu.device import Device, Limits

RULE = RuleId("parts", version=2)
_PARTS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 25, 28, 32, 48, 49, 64, 98, 128)
_LEAST_TERMS = 64  # The fewest terms of a part; fewer are not worth a second launch.
# The cost of a second launch is certain, and the gain only estimated, so the estimate must be twice
# as fast.
_MARGIN = 2.0


@dataclasses.dataclass(frozen=True)
class Sum:
    """A sum in a kernel that can be divided into parts. It is stored in the buffer `stored`; `axis`
    is the longest axis that it reduces, with `extent` elements. `product` is the matrix product
    whose terms it adds, or None."""

    stored: str
    axes: tuple[Axis, ...]
    axis: str
    extent: int
    terms: int
    is_output: bool
    product: tiles.Tiled | None

    @property
    def total(self) -> str:
        """The name of the buffer in which the sum is accumulated. For an output, this is a separate
        buffer."""
        return f"{self.stored}_sum" if self.is_output else self.stored

    @property
    def loop(self) -> str:
        return f"{self.total}_{self.axis}"

    @property
    def results(self) -> int:
        return max(1, typical(count_points(self.axes)))

    @property
    def partial(self) -> str:
        """The name of the buffer for the sums of the parts."""
        return f"{self.total}_parts"

    def part(self, count: int) -> tiles.Tiled:
        """Return the product that computes the sums of `count` parts."""
        assert self.product is not None
        shape = self.product.shape
        shape = dataclasses.replace(
            shape, batch=shape.batch * count, terms=max(1, shape.terms // count), epilogue=0
        )
        return tiles.Tiled(self.partial, self.partial, shape)


def space(program: TensorProgram | Function, limits: Limits, device: Device) -> Space | None:
    """Return the schedule space of a kernel, whose knob is the number of parts. Return None unless
    the kernel has exactly one sum, and the sum has many terms."""
    if isinstance(program, Function):
        return None
    program = inline(program)
    total = sum_of(program)
    if total is None:
        return None
    kernel = Kernel(program, total, limits, device)
    return Space.of(RULE, kernel) if kernel.counts else None


def sum_of(program: TensorProgram) -> Sum | None:
    """Return the only sum of a program if its longest loop has a constant extent and the rule
    `tiles` or `rows` can schedule it; else None."""
    sums = [stage for stage in program.stages if isinstance(stage.body, Reduce)]
    if len(sums) != 1:
        return None
    (stage,) = sums
    assert isinstance(stage.body, Reduce)
    products = tiles.products_of(program)
    if not products and not rows.groups_of(to_loops(program)):
        return None
    axis = max(stage.body.axes, key=lambda axis: axis.extent if isinstance(axis.extent, int) else 0)
    if not isinstance(axis.extent, int) or axis.extent == 1 or not stage.axes:
        return None
    return Sum(
        stage.buffer.name,
        stage.axes,
        axis.name,
        axis.extent,
        max(1, typical(count_points(stage.body.axes))),
        stage.buffer in program.outputs,
        products[0] if products else None,
    )


class Kernel:
    """The kernel of the rule: its knobs, allowed candidates, cost estimate and schedule."""

    def __init__(self, program: TensorProgram, total: Sum, limits: Limits, device: Device) -> None:
        self._program, self.sum = program, total
        self.limits, self.device = limits, device
        self.counts = [count for count in _PARTS if self._is_allowed(count)]

    def knobs(self) -> tuple[Knob, ...]:
        return (Knob("parts", _PARTS),)

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return np.isin(columns["parts"], self.counts)

    def _is_allowed(self, count: int) -> bool:
        """Check whether `count` parts have equal length and enough terms, and the results alone are
        too few to occupy the device."""
        total = self.sum
        is_long = total.terms >= count * _LEAST_TERMS and total.extent % count == 0
        return is_long and total.results <= self.device.units * self.device.threads

    def estimate(self, columns: Columns) -> Estimate:
        device, total = self.device, self.sum
        seconds = {count: self.first(count) for count in self.counts}
        first = np.array([seconds.get(int(count), np.inf) for count in columns["parts"]])
        nbytes = 4.0 * total.results * (columns["parts"] + 1)
        join = device.launch_s + nbytes / device.bandwidth
        join = join + columns["parts"] * device.memory_latency / rows.AHEAD / device.clock
        return Estimate(_MARGIN * (first + join), {"compute": first, "overhead": join})

    def first(self, count: int) -> float:
        """Return the estimated seconds of the launch that computes the sums of the parts."""
        if self.sum.product is not None:
            shape = self.sum.part(count).shape
            tile = tiles.best(shape, self.limits, self.device)
            columns = {name: np.array([value]) for name, value in tile.items()}
            return float(product_cost.cost(shape, self.device, columns).seconds[0])
        groups = rows.groups_of(self._split(count).function)
        if not groups:
            return float("inf")
        (group,) = groups
        choice = rows.best(group, self.limits, self.device)
        columns = {name: np.array([value]) for name, value in choice.items()}
        return float(rows.cost(group, self.device, columns, self.limits.lanes).seconds[0])

    def _split(self, count: int) -> Schedule:
        """Return a schedule in which the sums of the parts are computed first, and added where the
        sum is stored or read."""
        schedule, total = Schedule(to_loops(self._program)), self.sum
        if total.is_output:
            schedule.cache_write(total.stored, total.total)
        outer = f"{total.loop}_part"
        schedule.split(total.loop, total.extent // count, outer, f"{total.loop}_in_part")
        schedule.rfactor(outer, total.partial)
        schedule.hoist(total.partial)
        if total.product is not None:
            order = (len(total.axes), *range(len(total.axes)))
            schedule.transform_layout(total.partial, Layout(tuple(map(PhysicalDim, order))))
        if total.is_output:
            schedule.compute_at(total.total, f"{total.stored}_{total.axes[-1].name}")
        return schedule

    def multiply(self, schedule: Schedule, count: int) -> None:
        """Schedule the product that computes the sums of the parts."""
        part = self.sum.part(count)
        tiles.tile(schedule, part, tiles.best(part.shape, self.limits, self.device))

    def schedule(self, decisions: Decisions) -> Schedule:
        count = decisions["parts"]
        schedule = self._split(count)
        done = frozenset({self.sum.partial})
        if self.sum.product is not None:
            self.multiply(schedule, count)
        done |= rows.share_all(schedule, self.limits, self.device)
        return points.with_the_rest(schedule, self._program, done, self.limits.packed)
