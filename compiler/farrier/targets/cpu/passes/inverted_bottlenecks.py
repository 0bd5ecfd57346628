"""The selection of the convolutions in an inverted bottleneck that are fused to one kernel.

The expanded image in such a block (Sandler et al., "MobileNetV2", 2018) is six times as large as
the block's input and output. Separate kernels would write and read it, often on different cores; in
a fused kernel, only a strip of the image exists at a time and stays in the caches of one core.
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
# The most nodes of a convolution and its epilogue that may join the next one's kernel.
_MAX_NODES = 8
_GROWTH = 3  # An expanded image of this times its source's size is worth keeping in the caches.
_MAX_AGAIN = 0.3  # The largest share of the expanded lines that threads may compute twice.


def inverted_bottlenecks(graph: Graph, home: Home, settings: Settings) -> dict[int, Node]:
    """Return a mapping from the id of each node to be fused to the convolution whose kernel absorbs
    the node.

    A depthwise convolution absorbs the convolution that expands its input image (a pointwise
    convolution, or the first convolution of a network), if that is profitable. The pointwise
    convolution that reads the result of the depthwise convolution absorbs both, if it absorbs no
    other convolution and each thread can compute a strip of lines.

    `home` maps a node that is computed as part of another kernel's epilogue to the convolution or
    product of that kernel, and any other node to itself. Nothing is fused if the target multiplies
    tiles of bf16 or bytes, as separate kernels are then several times as fast. Nothing is fused
    either if the model has specialized code for some sizes (hot sizes): a fused kernel has the code
    size of four separate kernels, which may serve several layers.
    """
    if settings.beside_hot:
        return {}
    target, threads = as_cpu(settings.target), settings.threads
    search = _Search(graph, home, _operands(target), target.lanes)
    absorbed: dict[int, Node] = {}
    for node in graph.nodes:
        expansion = search.before(node) if search.is_depthwise(node) else []
        if expansion and search.expands(expansion[0]) and _pays(expansion[0], node, threads):
            absorbed |= {id(member): node for member in expansion}
    takers = {id(taker) for taker in absorbed.values()}
    for node in graph.nodes:
        free = search.is_pointwise(node) and id(node) not in absorbed
        filtering = search.before(node) if free else []
        if filtering and id(filtering[0]) in takers and _suits_strips(filtering[0], threads):
            absorbed = {
                member: node if taker is filtering[0] else taker
                for member, taker in absorbed.items()
            }
            absorbed |= {id(member): node for member in filtering}
    return absorbed


def _operands(target: CpuTarget) -> frozenset[DType]:
    """Return the dtypes of images for which convolutions may be fused: floats and bytes for which
    the target has no tile unit."""
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
        """Return the convolution that computes the input image of `node`, followed by the nodes of
        its epilogue. Return an empty list if there is none, or if another node reads the result of
        any of these nodes."""
        x = node.inputs[0]
        source = None if x is None else self._producers.get(x.name)
        first = None if source is None else self._home(source)
        if source is None or first is None or product_of(first) is not Product.CONVOLUTION:
            return []
        group = self._between(first, source)
        inside = {id(n) for n in (*group, node)}
        values = [value.name for n in group for value in n.outputs]
        readers = (reader for name in values for reader in self._readers.get(name, ()))
        alone = all(id(reader) in inside for reader in readers) and not self._returned & set(values)
        return group if alone and len(group) <= _MAX_NODES else []

    def _between(self, first: Node, last: Node) -> list[Node]:
        """Return `first` and the nodes of its epilogue on which `last` depends, including
        `last`."""
        reached, waiting = [first], [last]
        while waiting:
            node = waiting.pop()
            if any(node is other for other in reached) or self._home(node) is not first:
                continue
            reached.append(node)
            sources = (
                self._producers.get(value.name) for value in node.inputs if value is not None
            )
            waiting += [source for source in sources if source is not None]
        return reached

    def is_depthwise(self, node: Node) -> bool:
        """Check whether a node is a depthwise convolution, which filters each channel
        separately."""
        if not self._is_convolution(node):
            return False
        (x, y), group = _images(node), node.attr("group", 1)
        window = _window(node)
        reaches = all(k >= s for k, s in zip(window.kernel, window.strides, strict=True))
        alone = group > 1 and group == x.type.shape[1] == y.type.shape[1]
        is_supported = reaches and set(window.dilations) == {1} and _has_known_padding(window, x, y)
        return alone and is_supported and self._is_blocked(x)

    def expands(self, node: Node) -> bool:
        """Check whether a node expands the channels of an image: a pointwise convolution, or one
        whose input image has too few channels for the blocked layout."""
        if self.is_pointwise(node):
            return True
        if not self._is_convolution(node) or node.attr("group", 1) != 1:
            return False
        x, _ = _images(node)
        return not self._is_blocked(x) and x.type.dtype is DType.F32

    def is_pointwise(self, node: Node) -> bool:
        """Check whether a node is a pointwise (1 × 1) convolution."""
        if not self._is_convolution(node) or node.attr("group", 1) != 1:
            return False
        window = _window(node)
        alone = window.kernel == window.strides == (1, 1)
        return alone and not any((*window.before, *window.after))

    def _is_convolution(self, node: Node) -> bool:
        """Check whether a node convolves an image with constant weights, with sums in the blocked
        layout."""
        is_convolution = product_of(node) is Product.CONVOLUTION
        if not is_convolution or node.inputs[0] is None or node.inputs[1] is None:
            return False
        x, w = node.inputs[0].type, node.inputs[1]
        y = node.outputs[0]
        sums = DType.F32 if w.type.dtype.is_float else DType.I32
        is_supported = (
            w.name in self._constants and x.dtype in self._operands and y.type.dtype is sums
        )
        return is_supported and x.rank == 4 and self._is_blocked(y)

    def _is_blocked(self, value: Value) -> bool:
        """Check whether an image [n, c, h, w] is in the blocked layout, with one vector of sums in
        a block."""
        layout = value.type.layout
        inner = None if layout is None else layout.dims[-1]
        return inner is not None and (inner.axis, inner.mod) == (1, self._lanes)


def _pays(expansion: Node, depthwise: Node, threads: int) -> bool:
    """Check whether it is profitable to compute the expanded image within the kernel that reads it.

    A small image stays in the caches anyway, and with large weights these dominate the traffic. If
    threads divide the channels, each thread reads the whole source image, which must then be far
    smaller than the expanded image.
    """
    x, y = (typical(value.type.size) for value in _images(expansion))
    w = expansion.inputs[1]
    large = w is not None and y > math.prod(w.type.static_shape)
    return large and (y >= _GROWTH * x or _suits_strips(depthwise, threads))


def _suits_strips(depthwise: Node, threads: int) -> bool:
    """Check whether the output lines of the depthwise convolution can be divided into strips, one
    for each thread. A constant number of lines must be a multiple of `threads`. Adjacent strips
    read some input lines twice; these must be a small part of all input lines."""
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
    """Check whether the widths of the padding around the image that a convolution reads are
    constant."""
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
