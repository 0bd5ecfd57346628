"""The first layers of a model, rewritten so that a loop computes them patch by patch.

A patch is a strip of lines of the last image, over its whole width. Patch t of an image reads a
fixed number of lines of each earlier image, from a line on that advances by a fixed step from patch
to patch, so all patches run the same code. Lines that the windows of two patches read (the halo)
are computed in both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.ir.control import Loop, make_loop
from farrier.ir.dim import number
from farrier.ir.graph import Constant, Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import Kind, Product, lookup, product_of
from farrier.ops.pad import adds_border
from farrier.ops.shape import TRANSPOSE
from farrier.ops.traits import Moves, Trait
from farrier.ops.window import Window, window_of
from farrier.passes.rewriting import Rewriter, join_origins
from farrier.passes.rules.shapes import permutation

if TYPE_CHECKING:
    import numpy.typing as npt

_LINES = 2  # The axis of the lines of an image [n, c, h, w].
_RANK = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Lines:
    """The lines of an image that each patch reads: `count` successive lines, beginning in patch t
    with line step · t + first. Lines outside of the image are padding."""

    step: int
    first: int
    count: int

    def through(self, reach: int, stride: int, before: int) -> Lines:
        """Return the lines of an operand that are read to compute these lines of the result.
        `reach`, `stride` and `before` describe the windows, as in `Reading`."""
        return Lines(
            self.step * stride, self.first * stride - before, (self.count - 1) * stride + reach
        )

    def joined(self, other: Lines) -> Lines:
        """Return the smallest range of lines that contains both ranges. Their steps are equal."""
        first = min(self.first, other.first)
        end = max(self.first + self.count, other.first + other.count)
        return Lines(self.step, first, end - first)

    def numbers(self, patches: int) -> npt.NDArray[np.int64]:
        """Return the line numbers as an array of shape [patches, count]."""
        starts = self.step * np.arange(patches) + self.first
        return starts[:, None] + np.arange(self.count)


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """The way in which a node reads the lines of an operand. `axis` is the operand's axis of lines;
    `reach`, `stride` and `before` are those of the node's window. Lines outside the image are
    `fill`; None if the node reads none."""

    value: Value
    axis: int
    reach: int = 1
    stride: int = 1
    before: int = 0
    fill: float | None = None


@dataclasses.dataclass(frozen=True)
class Prefix:
    """The nodes that compute the image `last` from inputs of the model, in order. `axes` has the
    axis of lines of each of their values that is not constant."""

    nodes: tuple[Node, ...]
    last: Value
    sources: tuple[Value, ...]
    axes: Mapping[str, int]
    readings: Mapping[int, Sequence[Reading]]  # By the id of the node.
    fills: Mapping[str, float]  # What nodes read beyond the edges of a value, if any reads there.

    @property
    def height(self) -> int:
        """The number of lines of the last image."""
        return number(self.last.type.shape[_LINES])

    @property
    def is_steady(self) -> bool:
        """True if, for every value, all readers advance by the same number of lines from one patch
        to the next."""
        lines = self.lines(self.height)
        return all(
            lines[reading.value.name].step == lines[node.outputs[0].name].step * reading.stride
            for node in self.nodes
            for reading in self.readings[id(node)]
        )

    def lines(self, patches: int) -> Mapping[str, Lines]:
        """Return the lines of each value, by its name, that one of `patches` patches reads or
        computes."""
        height = -(-self.height // patches)
        needed = {self.last.name: Lines(height, 0, height)}
        for node in reversed(self.nodes):
            lines = needed[node.outputs[0].name]
            for reading in self.readings[id(node)]:
                more = lines.through(reading.reach, reading.stride, reading.before)
                before = needed.setdefault(reading.value.name, more)
                needed[reading.value.name] = before.joined(more)
        return needed

    def products(self, lines: Mapping[str, Lines] | None = None) -> int:
        """Return the number of multiply-adds of a patch that computes these lines; of all nodes if
        `lines` is None."""
        total = 0
        for node in self.nodes:
            (y,) = node.outputs
            height = number(y.type.shape[self.axes[y.name]])
            computed = height if lines is None else lines[y.name].count
            total += products(node) // height * computed
        return total


def products(node: Node) -> int:
    """Return the number of multiply-adds of a convolution or a matrix product, 0 for other
    nodes."""
    kind, (x, w, *_) = product_of(node), (*node.inputs, None, None)
    size = math.prod(map(number, node.outputs[0].type.shape))
    if kind is Product.CONVOLUTION and w is not None:
        return size * math.prod(map(number, w.type.shape[1:]))
    return size * number(x.type.shape[-1]) if kind is Product.MATRIX and x is not None else 0


def prefixes(graph: Graph) -> Iterator[Prefix]:
    """Yield each prefix of a graph that can be computed in patches: other nodes read only its last
    value, and each of its nodes reads images line by line, or by a window."""
    search = _Search(graph)
    for node in graph.nodes:
        (last, *others) = node.outputs
        if not others and last.type.rank == _RANK and last.type.shape[0] == 1:
            prefix = search.prefix(last)
            if prefix is not None and prefix.is_steady:
                yield prefix


class _Search:
    def __init__(self, graph: Graph) -> None:
        self._producers = graph.producers()
        self._readers = graph.consumers()
        self._order = {id(node): at for at, node in enumerate(graph.nodes)}
        self._data = {constant.value.name: constant for constant in graph.constants}
        self._returned = {value.name for value in graph.outputs}

    def prefix(self, last: Value) -> Prefix | None:
        axes, nodes = {last.name: _LINES}, dict[int, Node]()
        readings: dict[int, Sequence[Reading]] = {}
        sources: dict[str, Value] = {}
        waiting = [last]
        while waiting:
            value = waiting.pop()
            node = self._producers.get(value.name)
            if node is None:
                sources[value.name] = value
                continue
            if id(node) in nodes:
                continue
            read = self._readings(node, axes[value.name])
            if read is None:
                return None
            nodes[id(node)], readings[id(node)] = node, read
            for reading in read:
                if axes.setdefault(reading.value.name, reading.axis) != reading.axis:
                    return None
                waiting.append(reading.value)
        edges = [each for read in readings.values() for each in read if each.fill is not None]
        fills = {each.value.name: each.fill for each in edges if each.fill is not None}
        if any(fills[each.value.name] != each.fill for each in edges):
            return None
        inner = [value for value in axes if value != last.name and value not in sources]
        closed = all(
            value not in self._returned and all(id(n) in nodes for n in self._readers[value])
            for value in inner
        )
        if not closed or not any(map(product_of, nodes.values())):
            return None
        ordered = sorted(nodes.values(), key=lambda node: self._order[id(node)])
        return Prefix(tuple(ordered), last, tuple(sources.values()), axes, readings, fills)

    def _readings(self, node: Node, axis: int) -> Sequence[Reading] | None:
        """Return how a node reads its operands to compute lines along an axis of its result; None
        if a patch cannot compute it."""
        if len(node.outputs) != 1 or node.regions:
            return None
        x = node.inputs[0] if node.inputs else None
        if x is None or node.outputs[0].type.layout is not None or x.type.layout is not None:
            return None
        if lookup(node.op).kind is Kind.ELEMENTWISE:
            return self._elementwise(node, axis)
        if not all(value is None or value.name in self._data for value in node.inputs[1:]):
            return None
        if TRANSPOSE.matches(node):
            return [Reading(x, permutation(node)[axis])]
        if adds_border(node):
            return self._border(node, x, axis)
        window = _window(node)
        if window is None or axis != _LINES or x.type.rank != _RANK:
            return None
        before, after = window.before[0], window.after[0]
        pads = before != 0 or after != 0
        assert isinstance(before, int)
        fill = 0 if product_of(node) else _lowest(x.type.dtype)
        edge = fill if pads else None
        return [Reading(x, axis, window.reach(0), window.strides[0], before, edge)]

    def _elementwise(self, node: Node, axis: int) -> Sequence[Reading] | None:
        shape, read = node.outputs[0].type.shape, []
        if lookup(node.op).has(Trait.PER_CHANNEL):
            return None
        for value in node.inputs:
            if value is None:
                continue
            if value.name not in self._data:
                if value.type.shape != shape:
                    return None
                read.append(Reading(value, axis))
                continue
            at = axis - (len(shape) - value.type.rank)
            if at >= 0 and value.type.shape[at] != 1:
                return None
        return read or None

    def _border(self, node: Node, x: Value, axis: int) -> Sequence[Reading] | None:
        widths = self._array(node, 1)
        if widths is None or (len(node.inputs) > 3 and node.inputs[3] is not None):
            return None
        before, after = widths.reshape(2, -1)[:, axis].tolist()
        if widths.size != 2 * x.type.rank or widths.min() < 0:
            return None
        if before == after == 0:
            return [Reading(x, axis)]
        fill = self._array(node, 2)
        return [Reading(x, axis, 1, 1, before, 0 if fill is None else fill.reshape(-1)[0].item())]

    def _array(self, node: Node, position: int) -> npt.NDArray[Any] | None:
        value = node.inputs[position] if len(node.inputs) > position else None
        return None if value is None else self._data[value.name].data


def _window(node: Node) -> Window | None:
    """Return the window of a convolution or a pool of maxima, whose padding is known; None for any
    other node."""
    x = node.inputs[0]
    if x is None:
        return None
    attrs, weights = dict(node.attrs), None
    if product_of(node) is Product.CONVOLUTION and node.inputs[1] is not None:
        weights = node.inputs[1].type.shape[2:]
    elif not _is_pool_of_maxima(node) or node.attr("ceil_mode", 0):
        return None
    window = window_of(attrs, x.type.shape[2:], weights)
    is_fixed = all(isinstance(width, int) for width in (*window.before, *window.after))
    return window if is_fixed else None


def _is_pool_of_maxima(node: Node) -> bool:
    operator = lookup(node.op)
    return operator.window is not None and operator.moved(node) is Moves.EXTREME


def _lowest(dtype: DType) -> float:
    return -math.inf if dtype.is_float else dtype.limits[0]


def in_patches(graph: Graph, prefix: Prefix, patches: int, note: str = "") -> Graph:
    """Return a graph in which a loop computes a prefix in patches, and stacks the strips of the
    last image.

    before:
        @graph
        def g(x: f32[1, 3, 8, 8], w: f32[4, 3, 3, 3]):
            y: f32[1, 4, 6, 6] = Conv(x, w)
            z: f32[1, 4, 6, 6] = Relu(y)
            return z

    after, in two patches:
        @graph
        def g(x: f32[1, 3, 8, 8], w: f32[4, 3, 3, 3]):
            lines: i32[2, 5] = constant([0, 1, 2, 3, 4, 3, 4, 5, 6, 7])
            def body(i: i64[()], lines: i32[5], x: f32[1, 3, 8, 8]):
                x_patch: f32[1, 3, 5, 8] = Gather(x, lines, axis=2)
                y_patch: f32[1, 4, 3, 6] = Conv(x_patch, w)
                z_patch: f32[1, 4, 3, 6] = Relu(y_patch)
                return z_patch
            z_stack: f32[2, 1, 4, 3, 6] = Loop[body](2, None, lines, x, carried=0, scanned=1)
            z_strips: f32[1, 4, 2, 3, 6] = Transpose(z_stack, perm=(1, 2, 0, 3, 4))
            z: f32[1, 4, 6, 6] = Reshape(z_strips)
            return z
    """
    rewriter = Rewriter(graph)
    inside = {id(node) for node in prefix.nodes}
    for node in graph.nodes:
        if node is prefix.nodes[-1]:
            for new in _Patches(rewriter, prefix, patches, note).nodes():
                rewriter.emit(new)
        elif id(node) not in inside:
            rewriter.emit(node)
    return rewriter.finish()


class _Patches:
    """The construction of the loop over the patches of a prefix."""

    def __init__(self, rewriter: Rewriter, prefix: Prefix, patches: int, note: str) -> None:
        self._rewriter = rewriter
        self._prefix = prefix
        self._patches = patches
        self._note = note
        self._lines = prefix.lines(patches)
        self._origin = join_origins(prefix.nodes)
        self._scanned: dict[tuple[Any, ...], tuple[Value, Value]] = {}
        self._nodes: list[Node] = []
        self._strips: dict[str, Value] = {}
        self._constants: dict[str, Constant] = {}

    def nodes(self) -> Iterator[Node]:
        """Yield the loop, and the nodes that compute the last image from its results."""
        for source in self._prefix.sources:
            self._gather(source)
        for node in self._prefix.nodes:
            self._add(node)
        last = self._prefix.last
        part = self._strips[last.name]
        n, c, h, w = part.type.static_shape
        stack = self._value(last, "stack", (self._patches, n, c, h, w))
        yield self._loop(part, stack)
        behind = self._value(last, "strips", (n, c, self._patches, h, w))
        attrs = attributes(perm=(1, 2, 0, 3, 4))
        yield Node("Transpose", (stack,), (behind,), attrs, (), self._origin)
        whole = (n, c, self._patches * h, w)
        is_exact = whole == last.type.static_shape
        joined = last if is_exact else self._value(last, "joined", whole)
        to = self._integers(whole, last)
        yield Node("Reshape", (behind, to), (joined,), attributes(allowzero=0), (), self._origin)
        if not is_exact:
            operands = [self._integers([bound], last) for bound in (0, self._prefix.height, _LINES)]
            yield Node("Slice", (joined, *operands), (last,), (), (), self._origin)

    def _loop(self, part: Value, stack: Value) -> Node:
        number_type = TensorType(DType.I64, ())
        iteration = Value(self._rewriter.fresh("patch"), number_type)
        trips = self._rewriter.constant(np.array(self._patches, np.int64), "patches")
        slices = tuple(inner for _, inner in self._scanned.values())
        constants = tuple(self._constants.values())
        body = Graph("patch", (), constants, tuple(self._nodes), (part,))
        loop = Loop(
            trips=trips,
            condition=None,
            carried=(),
            scanned=tuple(whole for whole, _ in self._scanned.values()),
            captured=self._prefix.sources,
            results=(),
            stacks=(stack,),
            body=body,
            iteration=iteration,
            current=(),
            slices=slices,
            seen=self._prefix.sources,
            again=None,
            next=(),
            parts=(part,),
            note=self._note,
        )
        return make_loop(loop, self._origin)

    def _gather(self, source: Value) -> None:
        axis, lines = self._prefix.axes[source.name], self._lines[source.name]
        extent = number(source.type.shape[axis])
        numbers = lines.numbers(self._patches).clip(0, extent - 1).astype(np.int32)
        chosen = self._scan(("lines", source.name), numbers, f"{source.name}_lines")
        strip = self._strip(source, axis, lines.count)
        self._append("Gather", (source, chosen), strip, axis=axis)
        self._keep(source, strip)

    def _add(self, node: Node) -> None:
        """Add to the loop's body the copy of `node` that computes a patch's lines of its output,
        and keep its result as the strip of that output. A Pad that pads only lines needs no node:
        the strip of its operand is kept."""
        (y,) = node.outputs
        lines, axis = self._lines[y.name], self._prefix.axes[y.name]
        readings = {each.value.name: each for each in self._prefix.readings[id(node)]}
        inputs: list[Value | None] = []
        for value in node.inputs:
            reading = None if value is None else readings.get(value.name)
            if value is None or reading is None:
                inputs.append(self._known(value))
                continue
            needed = lines.through(reading.reach, reading.stride, reading.before)
            inputs.append(self._cut(reading, needed))
        strip = self._strip(y, axis, lines.count)
        attrs = dict(node.attrs)
        if adds_border(node):
            widths = self._rewriter.data(node.inputs[1])
            assert widths is not None
            widths = np.array(widths).reshape(2, -1)
            widths[:, axis] = 0
            if not widths.any() and inputs[0] is not None:
                self._keep(y, inputs[0])
                return
            inputs[1] = self._integers(widths.reshape(-1).tolist(), y, inside=True)
        elif (window := _window(node)) is not None:
            pads = [(0, *widths[1:]) for widths in (window.before, window.after)]
            whole = dataclasses.replace(window, before=pads[0], after=pads[1], covers=False)
            attrs = dict(whole.explicit(attrs))
        self._append(node.op, tuple(inputs), strip, node.origin, **attrs)
        self._keep(y, strip)

    def _cut(self, reading: Reading, needed: Lines) -> Value:
        """Return the lines `needed` of a strip."""
        strip, there = self._strips[reading.value.name], self._lines[reading.value.name]
        if needed == there:
            return strip
        start = needed.first - there.first
        bounds = (start, start + needed.count, reading.axis)
        operands = [self._integers([bound], reading.value, inside=True) for bound in bounds]
        cut = self._strip(reading.value, reading.axis, needed.count)
        self._append("Slice", (strip, *operands), cut)
        return cut

    def _keep(self, value: Value, strip: Value) -> None:
        """Let readers of a value read this strip, with lines outside the image as they shall be."""
        fill = self._prefix.fills.get(value.name)
        axis, lines = self._prefix.axes[value.name], self._lines[value.name]
        extent = number(value.type.shape[axis])
        numbers = lines.numbers(self._patches)
        is_there = (numbers >= 0) & (numbers < extent)
        if fill is not None and not is_there.all():
            shape = [1] * strip.type.rank
            shape[axis] = lines.count
            masks = is_there.reshape(self._patches, *shape)
            mask = self._scan(("mask", lines, extent, axis), masks, f"{value.name}_mask")
            edge = self._constant(np.array(fill, strip.type.dtype.numpy), value)
            filled = self._strip(value, axis, lines.count)
            self._append("Where", (mask, strip, edge), filled)
            strip = filled
        self._strips[value.name] = strip

    # Values ---------------------------------------------------------------------------------------

    def _append(
        self,
        op: str,
        inputs: tuple[Value | None, ...],
        output: Value,
        origin: str | None = None,
        **attrs: Any,
    ) -> None:
        origin = self._origin if origin is None else origin
        self._nodes.append(Node(op, inputs, (output,), attributes(**attrs), (), origin))

    def _strip(self, value: Value, axis: int, count: int) -> Value:
        shape = value.type.static_shape
        return self._value(value, "patch", (*shape[:axis], count, *shape[axis + 1 :]))

    def _value(self, like: Value, hint: str, shape: tuple[int, ...]) -> Value:
        return Value(
            self._rewriter.fresh(f"{like.name}_{hint}"), TensorType(like.type.dtype, shape)
        )

    def _scan(self, key: tuple[Any, ...], content: npt.NDArray[Any], hint: str) -> Value:
        """Return slice t of a constant in patch t."""
        if key not in self._scanned:
            whole = self._rewriter.constant(content, hint)
            kind = TensorType(whole.type.dtype, whole.type.shape[1:])
            self._scanned[key] = whole, Value(self._rewriter.fresh(f"{hint}_slice"), kind)
        return self._scanned[key][1]

    def _known(self, value: Value | None) -> Value | None:
        """Let the body have a constant of the graph."""
        constant = self._rewriter.constant_of(value)
        if constant is not None:
            self._constants[constant.value.name] = constant
        return value

    def _constant(self, content: npt.NDArray[Any], like: Value) -> Value:
        value = self._rewriter.constant(content, f"{like.name}_known")
        self._known(value)
        return value

    def _integers(self, numbers: Sequence[int], like: Value, *, inside: bool = False) -> Value:
        content = np.array(numbers, np.int64)
        if inside:
            return self._constant(content, like)
        return self._rewriter.constant(content, f"{like.name}_known")
