"""CumSum and CumProd: the sums and products of all prefixes along an axis."""

from __future__ import annotations

import dataclasses

import numpy as np

from farrier.ir.dim import Extent, ceildiv, product
from farrier.ir.expr import ReduceOp
from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops.nest import Index, LoopBuilder, Tensor
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Data,
    Kind,
    Operator,
    Threaded,
    Types,
    normal_axis,
    present,
    required,
    static_ints,
)
from farrier.ops.scalar import Scalar, binary, scalar
from farrier.ops.threads import offsets_by_threads

_STRIP = 256  # The bytes of a step that are combined at once: vectors that stay in registers.
_FEW = 8  # Fewer columns do not fill vectors.
_CHAINS = 8  # The most lines that are combined at a time.
_RUN = 16  # Steps of each of these lines at a time.


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    for axis in static_ints(types, constants, 1, "axis") or ():
        normal_axis(axis, x.rank)
    return (TensorType(x.dtype, x.shape),)


def _running(name: str, combine: ReduceOp, numpy: np.ufunc) -> Operator:
    """Declare CumSum or CumProd: `y[…, i, …]` combines the elements of x up to i. `reverse`
    combines those from i on, and `exclusive` leaves out i."""

    def reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
        x = present(arrays, 0)
        axis = normal_axis(int(present(arrays, 1).reshape(-1)[0]), x.ndim)
        moved = np.moveaxis(np.flip(x, axis) if attrs.get("reverse", 0) else x, axis, 0)
        if attrs.get("exclusive", 0):
            first = np.full_like(moved[:1], numpy.identity)
            moved = np.concatenate([first, moved[:-1]])
        result = np.moveaxis(numpy.accumulate(moved, dtype=x.dtype), 0, axis)
        return (np.flip(result, axis) if attrs.get("reverse", 0) else result,)

    def scan_of(nest: LoopBuilder, node: Node) -> _Scan:
        shape = node.outputs[0].type.shape
        axis = normal_axis((nest.static(1) or (0,))[0], len(shape))
        whole = (product(shape[:axis]), shape[axis], product(shape[axis + 1 :]))
        return _Scan(
            nest,
            nest.input(0, whole),
            nest.output(0, whole),
            combine,
            bool(node.attr("reverse", 0)),
            bool(node.attr("exclusive", 0)),
        )

    def nest(nest: LoopBuilder, node: Node) -> None:
        scan = scan_of(nest, node)
        columns = scan.x.shape[2]
        if 0 in scan.x.shape:
            return
        if isinstance(columns, int) and columns < _FEW:
            _by_chains(scan)
        else:
            _by_strips(scan)

    def threaded_nest(nest: LoopBuilder, node: Node) -> None:
        scan = scan_of(nest, node)
        if 0 not in scan.x.shape:
            _by_threads(scan)

    return Operator(
        name,
        Kind.NEST,
        _infer,
        reference,
        None,
        nest=nest,
        threaded=Threaded(threaded_nest, _lines),
        static=frozenset({1}),
    )


def _lines(node: Node, data: Data) -> Extent:
    shape, axis = node.outputs[0].type.shape, data(node.inputs[1])
    if axis is None:
        return 1  # A region around holds the constant.
    along = normal_axis(int(axis.reshape(-1)[0]), len(shape))
    return product((*shape[:along], *shape[along + 1 :]))


@dataclasses.dataclass(frozen=True)
class _Scan:
    """A prefix reduction along `steps` of x, [lines, steps, columns], into y, separately for each
    line and column."""

    nest: LoopBuilder
    x: Tensor
    y: Tensor
    combine: ReduceOp
    is_reverse: bool
    is_exclusive: bool

    @property
    def identity(self) -> Scalar:
        return scalar(self.combine.identity(self.x.dtype))

    def place(self, line: Scalar, step: Scalar, column: Scalar) -> tuple[Scalar, ...]:
        """Return the index of the element of a step."""
        return (line, -step + (self.x.shape[1] - 1) if self.is_reverse else step, column)

    def step(self, running: Tensor, at: Index, line: Scalar, step: Scalar, column: Scalar) -> None:
        """Accumulate one step in `running[at]`, and write its output: the accumulator after this
        step, or before it if the scan is exclusive."""
        here = self.place(line, step, column)
        if self.is_exclusive:
            self.y[here] = running[at]
        running[at] = binary(self.combine.binary, running[at], self.x[here])
        if not self.is_exclusive:
            self.y[here] = running[at]


def _by_strips(scan: _Scan) -> None:
    """Write the loops: strips of neighbouring columns advance through the steps together."""
    nest, (lines, steps, columns) = scan.nest, scan.x.shape
    width = _STRIP // scan.x.dtype.nbytes
    if isinstance(columns, int):
        width = min(columns, width)
    with nest.points((lines, ceildiv(columns, width))) as (line, strip):
        running = nest.local("made", (width,), scan.x.dtype)
        with nest.for_(width, "lane") as lane:
            running[lane] = scan.identity
        with nest.for_(steps) as step, nest.for_(width, "lane") as lane:
            column = strip * width + lane
            with nest.if_(column < columns):
                scan.step(running, lane, line, step, column)


def _by_chains(scan: _Scan) -> None:
    """Write the loops: several lines advance together, because within a line each element depends
    on the one before it. Elements are taken a cache line at a time, because lines may compete for a
    cache set."""
    nest, (lines, steps, columns) = scan.nest, scan.x.shape
    chains = lines * columns
    width: Extent = _CHAINS  # A rest of lines that does not fill a block is combined line by line.
    if isinstance(chains, int):
        width = nest.choice("chains", min(chains, _CHAINS))

    def run(first: Scalar, count: Extent) -> None:
        running = nest.registers("made", (count,), scan.x.dtype)
        with nest.unrolled(count) as chain:
            running[chain] = scan.identity
        whole = steps // _RUN
        for runs, length, start in ((whole, _RUN, 0), (steps - whole * _RUN, 1, whole * _RUN)):
            with (
                nest.for_(runs) as part,
                nest.unrolled(count) as chain,
                nest.unrolled(length) as step,
            ):
                line, column = nest.unravel(first + chain, (lines, columns))
                scan.step(running, chain, line, part * length + step + start, column)

    with nest.for_(ceildiv(chains, width), "block") as block:
        first = block * width
        with nest.if_(first + width <= chains):
            run(first, width)
        with nest.else_(), nest.for_(chains % width) as rest:
            run(first + rest, 1)


def _by_threads(scan: _Scan) -> None:
    """Write the loops: chunks of steps run in parallel, each starting from the combined elements of
    all chunks before it."""
    nest, dtype = scan.nest, scan.x.dtype
    lines, steps, columns = scan.x.shape
    offsets, chunk = offsets_by_threads(
        nest, scan.x.shape, scan.combine, dtype, lambda *at: scan.x[scan.place(*at)]
    )
    with (
        nest.independent(lines, "line") as line,
        nest.independent(ceildiv(steps, chunk), "chunk") as part,
        nest.independent(columns, "column") as column,
    ):
        total = nest.local("total", (1,), dtype)
        total[0] = offsets[line, part, column]
        with nest.for_(chunk) as i, nest.if_(part * chunk + i < steps):
            scan.step(total, 0, line, part * chunk + i, column)


OPERATORS: tuple[Operator, ...] = (
    _running("CumSum", ReduceOp.SUM, np.add),
    _running("CumProd", ReduceOp.PROD, np.multiply),
)
