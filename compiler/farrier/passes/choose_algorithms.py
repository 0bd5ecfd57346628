"""Decides how each convolution is computed: by the direct sum, or by Winograd's filtering."""

from __future__ import annotations

import enum
from collections.abc import Collection

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops.window import Window, window_of
from farrier.ops.winograd import TAPS
from farrier.passes.fold_constants import is_foldable
from farrier.passes.rewriting import Rewriter
from farrier.space.machine import Machine
from farrier.target import Target


class Algorithm(enum.StrEnum):
    """Ways to compute a convolution."""

    DIRECT = "direct"
    WINOGRAD2 = "winograd2"
    WINOGRAD4 = "winograd4"


_TILES = {Algorithm.WINOGRAD2: 2, Algorithm.WINOGRAD4: 4}
_MARGIN = 0.8  # of the direct sum's time: what another algorithm must stay below
_TRANSFORM_CYCLES = 4.0  # for one vector of a tile: to load it, its sums, to store it


def choose_algorithms(
    graph: Graph, target: Target, allowed: Collection[Algorithm] = tuple(Algorithm)
) -> Graph:
    """Computes a convolution by Winograd's filtering where that is clearly faster.

    A way takes as long as its arithmetic, or as its weights take from memory if that is longer:
    for 3x3 windows, tiles of 4 outputs take a quarter of the products and four times the weights,
    tiles of 2 four ninths and 16/9. So large images of few channels get tiles of 4, smaller ones
    tiles of 2, and the smallest the direct sum. Errors (max over max, one layer, f32) stay below
    1e-6 with tiles of 2 and 3e-6 with tiles of 4; the direct sum's below 2e-6.

    before:
        @graph
        def g(x: f32[1, 64, 56, 56]):
            one: f32[1, 1, 1, 1] = constant([0.5])
            shape: i64[4] = constant([64, 64, 3, 3])
            w: f32[64, 64, 3, 3] = Expand(one, shape)
            y: f32[1, 64, 56, 56] = Conv(x, w, pads=(1, 1, 1, 1))
            return y

    after:
        @graph
        def g(x: f32[1, 64, 56, 56]):
            one: f32[1, 1, 1, 1] = constant([0.5])
            shape: i64[4] = constant([64, 64, 3, 3])
            w: f32[64, 64, 3, 3] = Expand(one, shape)
            w_winograd: f32[6, 6, 64, 64] = WinogradWeights(w, tile=4)
            y: f32[1, 64, 56, 56] = WinogradConv(x, w_winograd, kernel_shape=(3, 3), pads=(1, 1, 1, 1), tile=4)
            return y
    """  # noqa: E501
    machine = Machine.of(target, target.cores)
    rewriter = Rewriter(graph)
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        window = _window(node, rewriter, machine)
        best = Algorithm.DIRECT if window is None else _fastest(node, machine, allowed)
        if window is None or best is Algorithm.DIRECT:
            rewriter.emit(node)
        else:
            _emit_winograd(rewriter, node, window, _TILES[best])
    return rewriter.finish()


def _window(node: Node, rewriter: Rewriter, machine: Machine) -> Window | None:
    """The window of a convolution that Winograd's filtering could compute, else None."""
    if node.op != "Conv" or node.attr("group", 1) != 1:
        return None
    x, w = node.inputs[:2]
    if x is None or w is None or w.type.rank != 4 or w.type.dtype is not DType.F32:
        return None
    outputs, inputs, *kernel = w.type.static_shape
    if kernel != [TAPS, TAPS] or min(inputs, outputs) < machine.lanes:
        return None
    if not _is_known(w, rewriter):
        return None
    window = window_of(dict(node.attrs), x.type.static_shape[2:], (TAPS, TAPS))
    return window if window.strides == window.dilations == (1, 1) else None


def _is_known(value: Value, rewriter: Rewriter) -> bool:
    """Whether a value is a constant, or one that fold-constants is about to compute."""
    if rewriter.data(value) is not None:
        return True
    producer = rewriter.producer(value)
    return producer is not None and is_foldable(producer, rewriter)


def _fastest(node: Node, machine: Machine, allowed: Collection[Algorithm]) -> Algorithm:
    """The best of the allowed ways; the direct sum unless another beats it clearly."""
    seconds = {way: _seconds(node, _TILES[way], machine) for way in allowed if way in _TILES}
    if not seconds:
        return Algorithm.DIRECT
    best = min(seconds, key=lambda way: seconds[way])
    is_clear = seconds[best] < _MARGIN * _seconds(node, 0, machine)
    return best if is_clear or Algorithm.DIRECT not in allowed else Algorithm.DIRECT


def _seconds(node: Node, tile: int, machine: Machine) -> float:
    """How long a convolution takes with tiles of `tile` outputs, 0 for the direct sum, all threads
    together."""
    assert node.inputs[1] is not None
    batch, outputs, height, width = node.outputs[0].type.static_shape
    inputs = node.inputs[1].type.static_shape[1]
    count, taps, transforms = batch * height * width, TAPS**2, 0.0
    if tile:
        count, taps = batch * -(-height // tile) * -(-width // tile), (tile + TAPS - 1) ** 2
        transforms = _TRANSFORM_CYCLES * count * taps * (inputs + outputs) / machine.lanes
    products = count * taps * inputs * outputs / (machine.lanes * machine.fma_ports)
    arithmetic = (products + transforms) / machine.hertz / machine.threads
    return max(arithmetic, 4 * taps * inputs * outputs / machine.memory_bandwidth)


def _emit_winograd(rewriter: Rewriter, node: Node, window: Window, tile: int) -> None:
    x, w, *bias = node.inputs
    assert w is not None
    outputs, inputs, *_ = w.type.static_shape
    points = tile + TAPS - 1
    kind = TensorType(w.type.dtype, (points, points, outputs, inputs))
    weights = Value(rewriter.fresh(f"{w.name}_winograd"), kind)
    rewriter.emit(
        Node("WinogradWeights", (w,), (weights,), attributes(tile=tile), origin=node.origin)
    )
    attrs = attributes(kernel_shape=window.kernel, pads=window.before + window.after, tile=tile)
    rewriter.emit(
        Node("WinogradConv", (x, weights, *bias), node.outputs, attrs, origin=node.origin)
    )
