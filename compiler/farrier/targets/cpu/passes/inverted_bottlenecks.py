"""Which convolutions of an inverted bottleneck one kernel computes.

The expanded image of such a block (Sandler et al., "MobileNetV2", 2018) is six times as large as
what goes in and what comes out. Between kernels of their own it is written and read again, by
another core as often as not; within one kernel a strip of it at a time never leaves a core's
caches.
"""

from __future__ import annotations

import math

from farrier.ir.dim import typical
from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import DType
from farrier.ops import Product, product_of
from farrier.ops.window import Window, window_of
from farrier.passes.attention import FLOATS
from farrier.passes.fuse import Home
from farrier.passes.settings import Settings
from farrier.targets.cpu.target import CpuTarget, as_cpu

_BYTES = frozenset((DType.U8, DType.I8))
_MAX_NODES = 8  # of one convolution and its epilogue, that may join the next one's kernel
_GROWTH = 3  # times the image that it is made of, from which on an expanded image saves its way
_MAX_AGAIN = 0.3  # of the expanded lines, that threads may compute for each of them


def inverted_bottlenecks(graph: Graph, home: Home, settings: Settings) -> dict[int, Node]:
    """For the id of each node that a later convolution's kernel computes, that convolution.

    A depthwise convolution takes in the one that makes its image, pointwise or from few channels,
    where that pays; and goes itself into the pointwise one that reads its result, where that one is
    not taken in by another and each thread can have a strip of lines of its own. `home` gives the
    node whose epilogue an elementwise node is part of, and of any other node that node itself.
    Where the target multiplies tiles of bf16 or bytes, kernels of their own do so several times as
    fast, which is worth the way of the image. Beside code at hot sizes none is taken in: such a
    kernel is as much code as four without, and these may serve several layers.
    """
    if settings.beside_hot:
        return {}
    target, threads = as_cpu(settings.target), settings.threads
    search = _Search(graph, home, _operands(target), target.lanes)
    found: dict[int, Node] = {}
    for node in graph.nodes:
        expansion = search.before(node) if search.is_depthwise(node) else []
        if expansion and search.expands(expansion[0]) and _pays(expansion[0], node, threads):
            found |= {id(member): node for member in expansion}
    takers = {id(taker) for taker in found.values()}
    for node in graph.nodes:
        free = search.is_pointwise(node) and id(node) not in found
        filtering = search.before(node) if free else []
        if filtering and id(filtering[0]) in takers and _suits_strips(filtering[0], threads):
            found = {
                member: node if taker is filtering[0] else taker for member, taker in found.items()
            }
            found |= {id(member): node for member in filtering}
    return found


def _operands(target: CpuTarget) -> frozenset[DType]:
    """What the images of such convolutions consist of: floats and bytes; nothing that tiles
    multiply."""
    weights = {kind: DType.I8 if kind in _BYTES else kind for kind in FLOATS | _BYTES}
    return frozenset(kind for kind in weights if target.unit_of(kind, weights[kind]) is None)


class _Search:
    def __init__(self, graph: Graph, home: Home, operands: frozenset[DType], lanes: int) -> None:
        self._home = home
        self._operands = operands
        self._lanes = lanes
        self._producers = graph.producers()
        self._readers = graph.consumers()
        self._constants = {constant.value.name for constant in graph.constants}
        self._returned = {value.name for value in graph.outputs}

    def before(self, node: Node) -> list[Node]:
        """The convolution that makes the image `node` reads, first, and its epilogue; nothing where
        there is none, or something else reads of them."""
        x = node.inputs[0]
        source = None if x is None else self._producers.get(x.name)
        first = None if source is None else self._home(source)
        if source is None or first is None or product_of(first) is not Product.CONVOLUTION:
            return []
        found = self._between(first, source)
        inside = {id(n) for n in (*found, node)}
        values = [value.name for n in found for value in n.outputs]
        readers = (reader for name in values for reader in self._readers.get(name, ()))
        alone = all(id(reader) in inside for reader in readers) and not self._returned & set(values)
        return found if alone and len(found) <= _MAX_NODES else []

    def _between(self, first: Node, last: Node) -> list[Node]:
        """The nodes from `first` to `last` of the epilogue of `first`, both included."""
        found, waiting = [first], [last]
        while waiting:
            node = waiting.pop()
            if any(node is other for other in found) or self._home(node) is not first:
                continue
            found.append(node)
            sources = (
                self._producers.get(value.name) for value in node.inputs if value is not None
            )
            waiting += [source for source in sources if source is not None]
        return found

    def is_depthwise(self, node: Node) -> bool:
        """Whether a node slides a window over each channel of an image by itself."""
        if not self._is_convolution(node):
            return False
        (x, y), group = _images(node), node.attr("group", 1)
        window = _window(node)
        reaches = all(k >= s for k, s in zip(window.kernel, window.strides, strict=True))
        alone = group > 1 and group == x.type.shape[1] == y.type.shape[1]
        known = reaches and set(window.dilations) == {1} and _has_known_padding(window, x, y)
        return alone and known and self._is_blocked(x)

    def expands(self, node: Node) -> bool:
        """Whether a node makes an image of more channels: of each point by itself, or of windows
        of an image that is not in blocks, since it has few channels."""
        if self.is_pointwise(node):
            return True
        if not self._is_convolution(node) or node.attr("group", 1) != 1:
            return False
        x, _ = _images(node)
        return not self._is_blocked(x) and x.type.dtype is DType.F32

    def is_pointwise(self, node: Node) -> bool:
        """Whether a node combines the channels of each point by itself."""
        if not self._is_convolution(node) or node.attr("group", 1) != 1:
            return False
        window = _window(node)
        alone = window.kernel == window.strides == (1, 1)
        return alone and not any((*window.before, *window.after))

    def _is_convolution(self, node: Node) -> bool:
        """Whether a node convolves an image by known weights into one of sums in blocks."""
        is_convolution = product_of(node) is Product.CONVOLUTION
        if not is_convolution or node.inputs[0] is None or node.inputs[1] is None:
            return False
        x, w = node.inputs[0].type, node.inputs[1]
        y = node.outputs[0]
        sums = DType.F32 if w.type.dtype.is_float else DType.I32
        known = w.name in self._constants and x.dtype in self._operands and y.type.dtype is sums
        return known and x.rank == 4 and self._is_blocked(y)

    def _is_blocked(self, value: Value) -> bool:
        """Whether the channels of an image [n, c, h, w] lie in blocks, each a vector of totals."""
        layout = value.type.layout
        inner = None if layout is None else layout.dims[-1]
        return inner is not None and (inner.axis, inner.mod) == (1, self._lanes)


def _pays(expansion: Node, depthwise: Node, threads: int) -> bool:
    """Whether the expanded image is worth keeping within the kernel that reads it.

    Small ones stay in the caches by themselves, and weights that are larger come from memory all
    the slower. Where threads divide channels, each reads the whole image that is expanded: that has
    to be far smaller than what it makes.
    """
    x, y = (typical(value.type.size) for value in _images(expansion))
    w = expansion.inputs[1]
    large = w is not None and y > math.prod(w.type.static_shape)
    return large and (y >= _GROWTH * x or _suits_strips(depthwise, threads))


def _suits_strips(depthwise: Node, threads: int) -> bool:
    """Whether strips of as many lines for each thread repeat few of the lines that they read."""
    _, y = _images(depthwise)
    window, lines = _window(depthwise), y.type.shape[2]
    again = max(window.kernel[0] - window.strides[0], 0)
    even = not isinstance(lines, int) or lines % threads == 0
    return even and again * threads <= _MAX_AGAIN * typical(lines) * window.strides[0]


def _images(node: Node) -> tuple[Value, Value]:
    assert node.inputs[0] is not None
    return node.inputs[0], node.outputs[0]


def _window(node: Node) -> Window:
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    return window_of(dict(node.attrs), x.type.shape[2:], w.type.static_shape[2:])


def _has_known_padding(window: Window, x: Value, y: Value) -> bool:
    """Whether the zeros that are read around an image are as many whatever its size."""
    last = (
        (outputs - 1) * stride + reach - before - extent
        for extent, outputs, stride, reach, before in zip(
            x.type.shape[2:],
            y.type.shape[2:],
            window.strides,
            window.kernel,
            window.before,
            strict=True,
        )
    )
    return all(isinstance(after, int) for after in (*window.before, *last))
