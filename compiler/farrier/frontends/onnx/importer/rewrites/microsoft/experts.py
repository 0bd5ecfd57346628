"""Rewrite mixtures of experts to products with the experts' weights and a weighted sum.

For few tokens, the weights of the chosen experts are gathered, [tokens, k, outputs, inputs]. For
many tokens, every expert processes every token, [experts, tokens, outputs], and experts that the
router did not choose have weight 0.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.ranges import places
from farrier.frontends.onnx.importer.rewrites.microsoft.activations import swish
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import number, product
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported
from farrier.ops.blocks import unpacked


@dataclasses.dataclass(frozen=True, slots=True)
class _Layer:
    """One layer of all experts: weights [experts, outputs, inputs] and a bias ("" if omitted)."""

    weights: str
    bias: str

    def of(self, p: Parts, x: str, chosen: str) -> str:
        """Return the layer's result for `x`. `chosen`, [tokens, k], are the numbers of the experts
        for each token; "" stands for all experts."""
        weights, bias = self.weights, self.bias
        if chosen:
            weights = p("Gather", weights, chosen, axis=0)
            bias = bias and p("Gather", bias, chosen, axis=0)
        rank = len(p.shape(weights))
        y = p("MatMul", x, p.transpose(weights, *range(rank - 2), rank - 1, rank - 2))
        return p.sum(y, p.unsqueeze(bias, -2) if bias else "")


def mixture(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite MoE: experts are weighted by the router's softmax over all experts."""
    p = Parts(node, scope)
    layers = [_Layer(p.input(at), p.input(at + 1)) if p.input(at) else None for at in (2, 4, 6)]
    everything = p("Softmax", p.input(1), axis=-1)
    values, chosen = _largest(p, everything)
    if node.attrs.get("normalize_routing_weights", 0):
        values = _shares(p, values)
    return _mixed(p, layers, values, chosen)


def quantized_mixture(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QMoE with integer weights: experts are weighted by the router's softmax over the
    chosen experts, or by input 14."""
    p = Parts(node, scope)
    if node.attrs.get("quant_type", "int") != "int":
        raise NotSupported(f"quant_type {node.attrs['quant_type']!r}")
    layers = [_dequantized(p, at) if p.input(at) else None for at in (2, 5, 8)]
    values, chosen = _largest(p, p.input(1))
    if p.input(14):
        values = p("GatherElements", p.input(14), chosen, axis=-1)
        if node.attrs.get("normalize_routing_weights", 0):
            values = _shares(p, values)
    else:
        values = p("Softmax", values, axis=-1)
    return _mixed(p, layers, values, chosen)


def _largest(p: Parts, values: str) -> tuple[str, str]:
    """Return the k largest values of each token and the numbers of their experts, both [tokens,
    k]."""
    count = p.ints(int(p.attrs.get("k", 1)))
    chosen, best = p.scope.fresh(), p.scope.fresh()
    p.scope.emit(RawNode("TopK", [values, count], [best, chosen], {}, p.node.origin))
    return best, chosen


def _shares(p: Parts, values: str) -> str:
    """Normalize each row of values to a sum of 1."""
    return p("Div", values, p("ReduceSum", values, p.ints(-1), keepdims=1))


def _mixed(p: Parts, layers: list[_Layer | None], values: str, chosen: str) -> list[RawNode]:
    """Return the weighted sum of the chosen experts' results for each token."""
    first, last, gate = layers
    if first is None or last is None:
        raise Mismatch("fc1 or fc2 is omitted")
    shape = p.shape(p.input(0))
    tokens, width = product(shape[:-1]), number(shape[-1])
    experts, count = number(p.shape(first.weights)[0]), number(p.shape(chosen)[1])
    is_few = isinstance(tokens, int) and tokens * count <= experts
    x = p.reshape(p.input(0), *((tokens, 1, 1, width) if is_few else (1, tokens, width)))
    which = chosen if is_few else ""
    hidden = _activated(p, first.of(p, x, which), gate.of(p, x, which) if gate else "")
    y = last.of(p, hidden, which)
    if is_few:  # Here y is [tokens, k, 1, outputs].
        weighted = p("Mul", y, p.unsqueeze(values, 2, 3))
        total = p("ReduceSum", weighted, p.ints(1, 2), keepdims=0)
    else:  # Here y is [experts, tokens, outputs].
        is_chosen = p("Equal", p.unsqueeze(chosen, 2), places(experts, p.scope))
        spread = p("Where", is_chosen, p.unsqueeze(values, 2), p.number(0))
        spread = p("ReduceSum", spread, p.ints(1), keepdims=0)  # Now [tokens, experts].
        weighted = p("Mul", y, p.unsqueeze(p.transpose(spread, 1, 0), 2))
        total = p("ReduceSum", weighted, p.ints(0), keepdims=0)
    return p.results(p.reshape(total, *shape))


def _activated(p: Parts, x: str, gate: str) -> str:
    """Return the hidden layer: the activation of `x`, multiplied by `gate`, a third layer's result,
    if there is one."""
    kind = str(p.attrs.get("activation_type", "relu")).lower()
    if kind == "swiglu":
        return _swiglu(p, x, gate)
    match kind:
        case "relu":
            y = p("Relu", x)
        case "gelu":
            y = p("Gelu", x, approximate="tanh")
        case "silu":
            y = swish(p, x)
        case "identity":
            y = x
        case _:
            raise NotSupported(f"activation_type {kind!r}")
    return p("Mul", y, gate) if gate else y


def _swiglu(p: Parts, x: str, linear: str) -> str:
    """Return g · sigmoid(alpha · g) · (l + beta), with g and l clamped. A fused layer computes both
    g and l."""
    fusion, width = int(p.attrs.get("swiglu_fusion", 0)), number(p.shape(x)[-1])
    if p.attrs.get("swiglu_limit_after_activation", 0):
        raise NotSupported("swiglu_limit_after_activation")
    if fusion == 0 and not linear:
        raise Mismatch("swiglu takes a third layer, or one that is fused")
    if fusion:
        ways = (
            ((0, width, 2), (1, width, 2))
            if fusion == 1
            else ((0, width // 2, 1), (width // 2, width, 1))
        )
        x, linear = (
            p("Slice", x, p.ints(low), p.ints(high), p.ints(-1), p.ints(step))
            for low, high, step in ways
        )
    limit = p.attrs.get("swiglu_limit")
    if limit is not None:
        x = p("Clip", x, "", p.number(limit))
        linear = p("Clip", linear, p.number(-limit), p.number(limit))
    y = swish(p, x, float(p.attrs.get("activation_alpha", 1.0)))
    beta = float(p.attrs.get("activation_beta", 0.0))
    return p("Mul", y, p("Add", linear, p.number(beta)) if beta else linear)


def _dequantized(p: Parts, at: int) -> _Layer:
    """Return the layer of QMoE whose weights, scales and bias are inputs `at`, `at` + 1 and `at` +
    2, dequantized."""
    which = ("fc1", "fc2", "fc3")[at // 3]
    bits = int(p.attrs.get(f"{which}_expert_weight_bits", p.attrs.get("expert_weight_bits", 4)))
    if bits not in (2, 4, 8) or p.attrs.get("weights_prepacked", -1) > 0:
        raise NotSupported(f"weights of {bits} bits, or packed for another execution provider,")
    kind = {2: DType.U2, 4: DType.U4, 8: DType.U8}[bits]
    weights = unpacked(p.known(p.input(at), "weights"), kind).astype(np.float32)
    experts, outputs, inputs = weights.shape
    scales = p.known(p.input(at + 1), "scales").astype(np.float32).reshape(experts, outputs, -1)
    blocks = scales.shape[2]
    zeros: npt.NDArray[Any] = np.full((), 1 << bits - 1)
    if p.input(11 + at // 3):
        packed = p.known(p.input(11 + at // 3), "zero points")
        zeros = unpacked(packed, kind)
        if packed.ndim == 3:
            zeros = zeros[..., :blocks]
        zeros = zeros[:, : outputs if packed.ndim == 2 else None].reshape(scales.shape)
    weights = weights.reshape(experts, outputs, blocks, inputs // blocks)
    weights -= zeros.astype(np.float32)[..., None] if zeros.ndim else np.float32(zeros)
    weights *= scales[..., None]
    real = weights.reshape(experts, outputs, inputs).astype(p.dtype.numpy)
    return _Layer(p.array(real), p.input(at + 2))


RULES: dict[str, Upgrade] = {"MoE": mixture, "QMoE": quantized_mixture}
