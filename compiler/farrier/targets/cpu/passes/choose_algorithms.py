"""The pass `choose-algorithms`, which selects direct convolution or a Winograd algorithm for each
convolution."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math

from farrier.ir.dim import bounds, number, typical
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import Product, product_of
from farrier.ops.conversion import CAST
from farrier.ops.filtering import FILTERINGS, TAPS, Filtering
from farrier.ops.window import Window, window_of
from farrier.passes.algorithm import Algorithm
from farrier.passes.fold_constants import is_foldable
from farrier.passes.rewriting import Rewriter
from farrier.passes.settings import Settings
from farrier.space.machine import Machine
from farrier.targets.cpu.passes.channel_blocks import channel_block
from farrier.targets.cpu.target import CpuTarget, as_cpu

_LATE = 0.7  # The share of `Machine.exposed` for traffic that prefetching does not cover.
_MARGIN = 0.85  # Another algorithm must take less than this share of the direct sum's time.
# The fewest vectors of output channels for a thread; Winograd algorithms need two times that
# number.
_PANEL = 2
# The cycles to load, transform and store one vector, by tile size.
_TRANSFORM_CYCLES = {2: 4.0, 3: 4.0, 4: 4.0, 6: 8.0}
# The cycles to round a vector to the dtype of the weights, if that is not f32.
_ROUNDING_CYCLES = 1.0


@dataclasses.dataclass(frozen=True)
class Layer:
    """A convolution that both direct convolution and Winograd algorithms can compute."""

    node: Node
    windows: Value  # in f32
    window: Window
    target: CpuTarget
    machine: Machine
    max_error: float
    block: int  # The channels of a block of an image.

    @functools.cached_property
    def key(self) -> str:
        """The key of the layer in tuning records: 64 hex digits that identify all properties on
        which the speed of the algorithms depends."""
        x, w = (v.type.shape for v in self.node.inputs[:2] if v is not None)
        shapes = [tuple(map(typical, shape)) for shape in (x, w)]
        text = f"algorithm of Conv {self.operands} {shapes} {self.window}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def operands(self) -> DType:
        """The dtype of the factors in direct convolution."""
        assert self.node.inputs[0] is not None
        return self.node.inputs[0].type.dtype

    @property
    def origin(self) -> str:
        """The ONNX nodes from which the layer was imported."""
        return self.node.origin

    @property
    def allowed(self) -> tuple[Algorithm, ...]:
        """Direct convolution, and the Winograd algorithms that support the layer's strides and have
        an f32 error of at most `max_error`. The additional error of bf16 operands does not count,
        as the user chose that precision."""
        return tuple(
            way
            for way in Algorithm
            if way is Algorithm.DIRECT
            or (way.error <= self.max_error and self.filtering(way) in FILTERINGS)
        )

    @functools.cached_property
    def fastest(self) -> Algorithm:
        """The algorithm that the model of arithmetic and weight traffic predicts to be fastest.
        Direct convolution unless another algorithm is clearly faster."""
        best = min(self.allowed, key=self.seconds)
        is_clear = self.seconds(best) < _MARGIN * self.seconds(Algorithm.DIRECT)
        return best if is_clear else Algorithm.DIRECT

    def seconds(self, way: Algorithm) -> float:
        """Return the predicted time of an algorithm in seconds, on all threads."""
        kind = way.weights(self.operands)
        dot = self.target.dot_of(kind, kind, self.node.outputs[0].type.dtype)
        rate = self.machine.lanes * self.machine.fma_ports * (1 if dot is None else dot.group)
        if way is not Algorithm.DIRECT:
            return _seconds(self.node, self.filtering(way), kind, rate, self.machine)
        rate = max(rate, self._products_in_tiles(kind))
        return _seconds(self.node, None, kind, rate, self.machine)

    def _products_in_tiles(self, kind: DType) -> float:
        """Return the multiply-adds per cycle that a core's tile registers achieve for operands of
        the dtype `kind`; 0 if the target has no tile unit for this layer."""
        assert self.node.inputs[1] is not None
        outputs, inputs, *_ = self.node.inputs[1].type.static_shape
        width = self.node.outputs[0].type.shape[3]
        if not isinstance(width, int):
            return 0.0
        unit, depth = self.target.unit_of(kind, kind), math.gcd(inputs, self.block)
        return 0.0 if unit is None else unit.rate(outputs, width, depth)

    def filtering(self, way: Algorithm) -> Filtering:
        """Return the tile size of an algorithm together with the layer's stride."""
        return Filtering(self.window.strides[0], way.tile)


def layers(graph: Graph, settings: Settings) -> list[Layer]:
    """Return the convolutions of a graph for which there is a choice of algorithm, in the order of
    the graph."""
    rewriter, block = Rewriter(graph), channel_block(graph, as_cpu(settings.target))
    candidates = []
    for node in graph.nodes:
        candidates.append(_layer(node, rewriter, settings, block))
        rewriter.emit(node)
    return [layer for layer in candidates if layer is not None]


def choose_algorithms(graph: Graph, settings: Settings) -> Graph:
    """Replace a convolution by a Winograd convolution if that is clearly faster.

    The predicted time of an algorithm is max(arithmetic, weight traffic), plus the fraction of the
    smaller of the two that does not overlap with the larger. Threads divide either the image or the
    channels, whichever is faster.

    For 3x3 kernels with stride 1, Winograd tiles of 4 outputs need 1/4 of the multiplications and 4
    times the weights of direct convolution; tiles of 2 need 4/9 and 16/9. With stride 2, the
    numbers are 9/16 and 9, and 25/36 and 25/9. Large images with few channels therefore get tiles
    of 4, smaller images tiles of 3 or 2, and the smallest images direct convolution. Open (dynamic)
    sizes count as typical.

    An algorithm with a larger error than the user allows is excluded. If measurements on this
    machine are recorded, the algorithm that was fastest in them is chosen. With bf16 operands,
    tiles of 2 keep the precision, and larger tiles have f32 weights (`farrier.ops.winograd`).

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
            w_winograd: f32[6, 6, 64, 64] = WinogradWeights(w, strides=(1, 1), tile=4)
            y: f32[1, 64, 56, 56] = WinogradConv(x, w_winograd, kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(1, 1), tile=4)
            return y
    """  # noqa: E501
    rewriter, block = Rewriter(graph), channel_block(graph, as_cpu(settings.target))
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        layer = _layer(node, rewriter, settings, block)
        way = Algorithm.DIRECT if layer is None else settings.algorithm_of(layer)
        if layer is None or way is Algorithm.DIRECT:
            rewriter.emit(node)
        else:
            _emit_winograd(rewriter, layer, way)
    return rewriter.finish()


def _layer(node: Node, rewriter: Rewriter, settings: Settings, block: int) -> Layer | None:
    """Return the node as a Layer if a Winograd algorithm can compute it, else None."""
    if product_of(node) is not Product.CONVOLUTION or node.attr("group", 1) != 1:
        return None
    x, w = node.inputs[:2]
    windows = None if x is None or w is None else _windows(w, rewriter)
    if x is None or windows is None or windows.type.rank != 4 or not windows.type.is_static:
        return None
    outputs, inputs, *kernel = windows.type.static_shape
    target = as_cpu(settings.target)
    if kernel != [TAPS, TAPS] or min(inputs, outputs) < target.lanes:
        return None
    if not _is_known(windows, rewriter):
        return None
    window = window_of(dict(node.attrs), x.type.shape[2:], (TAPS, TAPS))
    if window.strides not in ((1, 1), (2, 2)) or window.dilations != (1, 1):
        return None
    if not all(isinstance(pad, int) for pad in window.before + window.after):
        return None
    if min(bounds(extent)[0] for extent in node.outputs[0].type.shape[2:]) < 1:
        return None
    machine = target.machine(settings.threads)
    return Layer(node, windows, window, target, machine, settings.max_layer_error, block)


def _windows(w: Value, rewriter: Rewriter) -> Value | None:
    """Return the f32 weights of which `w` is a rounded copy, or `w` itself if it is f32. Return
    None if the f32 weights are not in the graph."""
    producer = rewriter.producer(w)
    if CAST.matches(producer):
        (w,) = (value for value in producer.inputs if value is not None)
    return w if w.type.dtype is DType.F32 else None


def _is_known(value: Value, rewriter: Rewriter) -> bool:
    """Check whether a value is a constant, or fold-constants will make it one."""
    if rewriter.constant_of(value) is not None:
        return True
    producer = rewriter.producer(value)
    return producer is not None and is_foldable(producer, rewriter)


def _seconds(
    node: Node, filtering: Filtering | None, kind: DType, rate: float, machine: Machine
) -> float:
    """Return the predicted time in seconds, on all threads, of a convolution by a Winograd
    algorithm (`filtering`) or by direct convolution (None). Operands have the dtype `kind`, `rate`
    is in multiply-adds per cycle, and open (dynamic) sizes are typical."""
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    batch, outputs, height, width = map(typical, node.outputs[0].type.shape)
    inputs = w.type.static_shape[1]
    count, taps, panel = batch * height * width, TAPS**2, _PANEL * machine.lanes
    transforms, image_elements = 0.0, math.prod(map(typical, x.type.shape))
    if filtering is not None:
        tile, taps, panel = filtering.tile, filtering.points**2, 2 * panel
        count = batch * -(-height // tile) * -(-width // tile)
        transforms = _TRANSFORM_CYCLES[tile] * count * taps * (inputs + outputs) / machine.lanes
        is_rounded = kind is not DType.F32
        transforms += _ROUNDING_CYCLES * is_rounded * count * taps * inputs / machine.lanes
        # Each element is transferred twice between cores: when others read it, and when it is
        # written again.
        image_elements = 2 * count * taps * inputs
    products = count * taps * inputs * outputs / rate
    arithmetic = (products + transforms) / machine.hertz / machine.threads
    weights = kind.nbytes * taps * inputs * outputs
    # Threads divide the image, and each waits for all weights; or they divide the channels first,
    # and each waits for a share of the weights, and for the parts of the image that others
    # transformed.
    shares = min(max(outputs // panel, 1), machine.threads)
    passed = kind.nbytes * image_elements * (1 - 1 / machine.threads) * shares / machine.threads
    by_image = _overlapped(arithmetic, machine.memory_seconds(weights, 1.0), machine)
    by_channels = _overlapped(arithmetic, machine.memory_seconds(weights, 1 / shares), machine)
    return min(by_image, by_channels + passed / machine.remote_bandwidth / machine.hertz)


def _overlapped(arithmetic: float, traffic: float, machine: Machine) -> float:
    return max(arithmetic, traffic) + _LATE * machine.exposed * min(arithmetic, traffic)


def _emit_winograd(rewriter: Rewriter, layer: Layer, way: Algorithm) -> None:
    node, window, filtering = layer.node, layer.window, layer.filtering(way)
    x, _, *bias = node.inputs
    outputs, inputs, *_ = layer.windows.type.static_shape
    tile, points = filtering.tile, filtering.points
    shape, kind = (points, points, outputs, inputs), way.weights(layer.operands)
    weights = Value(rewriter.fresh(f"{layer.windows.name}_winograd"), TensorType(DType.F32, shape))
    winograd_attrs = attributes(strides=window.strides, tile=tile)
    origin = node.origin
    rewriter.emit(
        Node("WinogradWeights", (layer.windows,), (weights,), winograd_attrs, origin=origin)
    )
    if kind is not DType.F32:
        wide, name = weights, rewriter.fresh(f"{weights.name}_{kind.value}")
        weights = Value(name, TensorType(kind, shape))
        rewriter.emit(Node("Cast", (wide,), (weights,), attributes(to=kind.value), origin=origin))
    attrs = attributes(
        **{name: value for name, value in node.attrs if name == "accumulator"},
        kernel_shape=window.kernel,
        pads=tuple(map(number, window.before + window.after)),
        strides=window.strides,
        tile=tile,
    )
    rewriter.emit(Node("WinogradConv", (x, weights, *bias), node.outputs, attrs, origin=origin))
