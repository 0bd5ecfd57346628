"""Fold the affine maps of inference-time normalization into the weights of preceding
convolutions.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from farrier.ir.graph import Constant, Derived, Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import Product, lookup, product_of
from farrier.ops.normalize import BATCH_NORMALIZATION
from farrier.passes.rewriting import Rewriter, derived, join_origins

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Affine:
    """The map `y = x * scale + shift`, with one scale and one shift for each channel, in
    float64."""

    scale: Array
    shift: Array


def fold_batch_norm(graph: Graph) -> Graph:
    """Fold BatchNormalization into the Conv or ConvTranspose that computes its operand, and
    likewise Mul, Add, Sub and Div by constants that vary only by channel. A BatchNormalization
    after any other node becomes Mul and Add.

    Weights of 16 bits stay unchanged, because rounding them a second time would cause a larger
    error than all other roundings of a model. In that case the map is applied to the sums in f32,
    with constants in f32.

    before:
        @graph
        def g(x: f32[1, 1, 4, 4]):
            w: f32[2, 1, 1, 1] = constant([1.0, 2.0])
            gamma: f32[2] = constant([2.0, 2.0])
            beta: f32[2] = constant([0.5, 0.25])
            mean: f32[2] = constant([0.0, 1.0])
            var: f32[2] = constant([1.0, 4.0])
            c: f32[1, 2, 4, 4] = Conv(x, w)
            y: f32[1, 2, 4, 4] = BatchNormalization(c, gamma, beta, mean, var, epsilon=0.0)
            return y

    after:
        @graph
        def g(x: f32[1, 1, 4, 4]):
            w: f32[2, 1, 1, 1] = constant([1.0, 2.0])
            gamma: f32[2] = constant([2.0, 2.0])
            beta: f32[2] = constant([0.5, 0.25])
            mean: f32[2] = constant([0.0, 1.0])
            var: f32[2] = constant([1.0, 4.0])
            w_1: f32[2, 1, 1, 1] = constant([2.0, 2.0])
            y_bias: f32[2] = constant([0.5, -0.75])
            y: f32[1, 2, 4, 4] = Conv(x, w_1, y_bias)
            return y
    """
    rewriter = Rewriter(graph)
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        for new in _fold(node, rewriter):
            rewriter.emit(new)
    return rewriter.finish()


def _fold(node: Node, rewriter: Rewriter) -> tuple[Node, ...]:
    affine = _affine_of(node, rewriter)
    if affine is None:
        return (node,)
    producer = rewriter.producer(node.inputs[0])
    if producer is not None and rewriter.single_use(producer.outputs[0]):
        merged = _into_convolution(producer, node, affine, rewriter)
        if merged:
            rewriter.withdraw(producer)
            return merged
    if BATCH_NORMALIZATION.matches(node):
        return _as_mul_add(node, affine, rewriter)
    return (node,)


def _affine_of(node: Node, rewriter: Rewriter) -> _Affine | None:
    """Return the channel-wise affine map that `node` applies to its first input; None if it does
    not."""
    x = node.inputs[0] if node.inputs else None
    if x is None or x.type.rank < 2 or len(node.outputs) != 1 or not x.type.dtype.is_float:
        return None
    rule = lookup(node.op).affine
    affine = None if rule is None else rule(node, rewriter.data)
    return None if affine is None else _Affine(*affine)


def _into_convolution(
    producer: Node, node: Node, affine: _Affine, rewriter: Rewriter
) -> tuple[Node, ...]:
    """Return one convolution that computes `producer` followed by `node`; () if `producer` is not a
    convolution with constant weights."""
    if product_of(producer) not in (Product.CONVOLUTION, Product.TRANSPOSED_CONVOLUTION):
        return ()
    x, weight, *rest = producer.inputs
    bias = rest[0] if rest else None
    weights, biases = rewriter.constant_of(weight), rewriter.data(bias)
    if weight is None or weights is None or (bias is not None and biases is None):
        return ()
    shift = affine.shift if biases is None else biases * affine.scale + affine.shift
    name = node.outputs[0].name
    if weight.type.dtype.is_narrow_float:
        return _on_sums(producer, node, _Affine(affine.scale, shift), rewriter)
    new_weight = weight
    if (affine.scale != 1).any():
        new_weight = rewriter.constant(_scaled(producer, weights, affine.scale), weight.name)
    new_bias = rewriter.constant(shift.astype(weight.type.dtype.numpy), f"{name}_bias")
    folded = dataclasses.replace(
        producer,
        inputs=(x, new_weight, new_bias),
        outputs=node.outputs,
        origin=join_origins((producer, node)),
    )
    return (folded,)


def _on_sums(producer: Node, node: Node, affine: _Affine, rewriter: Rewriter) -> tuple[Node, ...]:
    """Return the nodes that replace a convolution of narrow floats and the affine map after it: the
    convolution with sums in f32, the nodes that apply the map to the sums, and a final rounding to
    the narrow type. Return () if the convolution cannot have f32 sums."""
    x, weight, (y,) = producer.inputs[0], producer.inputs[1], node.outputs
    if product_of(producer) is not Product.CONVOLUTION or producer.attr("accumulator"):
        return ()
    sums = Value(rewriter.fresh(f"{y.name}_sums"), TensorType(DType.F32, y.type.shape))
    attrs = attributes(**dict(producer.attrs), accumulator=DType.F32.value)
    to = attributes(to=y.type.dtype.value)
    if (affine.scale == 1).all():
        bias = rewriter.constant(affine.shift.astype(np.float32), f"{y.name}_bias")
        operands: tuple[Value | None, ...] = (x, weight, bias)
        mapped: tuple[Node, ...] = ()
    else:
        operands = (x, weight)
        mapped = _mul_add(sums, y.name, affine, rewriter, node.origin)
    result = mapped[-1].outputs[0] if mapped else sums
    origin = join_origins((producer, node))
    convolution = dataclasses.replace(
        producer, inputs=operands, outputs=(sums,), attrs=attrs, origin=origin
    )
    return (convolution, *mapped, Node("Cast", (result,), (y,), to, origin=node.origin))


def _scaled(producer: Node, weights: Constant, scale: Array) -> Array | Derived:
    """Return the weights of a convolution with each output channel multiplied by its scale."""
    scale = np.ascontiguousarray(scale)
    key = f"scaled by {hashlib.sha256(scale.data).hexdigest()}, {producer.op}, {producer.attrs}"
    scaled = functools.partial(_scale_output_channels, producer, scale=scale)
    return derived(weights.value.type, (weights,), scaled, key)


def _scale_output_channels(producer: Node, weights: Array, scale: Array) -> Array:
    """Return `weights` with each output channel multiplied by its scale, in f64 and rounded once.

    Weights have shape [oc, ic/group, kernel…], those of a transposed convolution [ic, oc/group,
    kernel…].
    """
    kernel = (1,) * (weights.ndim - 2)
    factors, grouped = scale.reshape(-1, 1, *kernel), weights
    if product_of(producer) is Product.TRANSPOSED_CONVOLUTION:
        group = int(producer.attr("group", 1))
        grouped = weights.reshape(group, -1, *weights.shape[1:])
        factors = scale.reshape(group, 1, -1, *kernel)
    scaled = np.empty(grouped.shape, weights.dtype)
    np.multiply(grouped, factors, out=scaled, dtype=np.float64, casting="same_kind")
    return scaled.reshape(weights.shape)


def _as_mul_add(node: Node, affine: _Affine, rewriter: Rewriter) -> tuple[Node, ...]:
    """Return the nodes that apply the map as Mul and Add; for narrow floats they compute in f32."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    if not x.type.dtype.is_narrow_float:
        *first, last = _mul_add(x, y.name, affine, rewriter, node.origin)
        return (*first, dataclasses.replace(last, outputs=(y,)))
    wide = Value(rewriter.fresh(f"{x.name}_f32"), TensorType(DType.F32, x.type.shape))
    widened = Node("Cast", (x,), (wide,), attributes(to=DType.F32.value), origin=node.origin)
    mapped = _mul_add(wide, y.name, affine, rewriter, node.origin)
    to = attributes(to=y.type.dtype.value)
    return (widened, *mapped, Node("Cast", mapped[-1].outputs, (y,), to, origin=node.origin))


def _mul_add(
    x: Value, name: str, affine: _Affine, rewriter: Rewriter, origin: str
) -> tuple[Node, Node]:
    """Return the nodes Mul and Add that apply the map to `x`, in the dtype of `x`."""
    shape = (-1, *(1,) * (x.type.rank - 2))
    dtype = x.type.dtype.numpy
    scale = rewriter.constant(affine.scale.reshape(shape).astype(dtype), f"{name}_scale")
    shift = rewriter.constant(affine.shift.reshape(shape).astype(dtype), f"{name}_shift")
    scaled = Value(rewriter.fresh(f"{name}_scaled"), x.type)
    shifted = Value(rewriter.fresh(f"{name}_shifted"), x.type)
    return (
        Node("Mul", (x, scale), (scaled,), origin=origin),
        Node("Add", (scaled, shift), (shifted,), origin=origin),
    )
