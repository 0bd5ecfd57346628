"""Rewrite the gates and the causal convolution of linear-attention networks (Mamba, Gated
DeltaNet)."""

from __future__ import annotations

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.rewrites.microsoft.activations import swish
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import number
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported

_EPSILON = 1e-5  # The default of GatedRMSNorm's schema.
# The attributes of CausalConvWithState that only ONNX Runtime's CUDA provider reads.
_FOREIGN = ("state_update_capacity", "state_window", "state_length", "input_channels")


def scaled_silu(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite a scaled SiLU: z · sigmoid(z) for z = scale · x."""
    p = Parts(node, scope)
    scale = p.number(float(node.attrs.get("alpha", 1.0)))
    if p.input(1):
        scale = p.cast(p.reshape(p.input(1)), p.dtype)
    return p.results(swish(p, p("Mul", p.input(0), scale)))


def gated_add(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite a gated sum: x + y · gate."""
    p = Parts(node, scope)
    if p.input(3):
        raise NotSupported("gate_weight")
    return p.results(p("Add", p.input(0), p("Mul", p.input(1), p.input(2))))


def gated_rms_norm(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite GatedRMSNorm: an RMS normalization over groups of the length of the scale, times a
    gate."""
    p = Parts(node, scope)
    kind = str(node.attrs.get("activation", "silu"))
    if kind not in ("silu", "swish", "sigmoid"):
        raise Mismatch(f"activation {kind!r}")
    *lead, last = p.shape(p.input(0))
    (width,) = p.shape(p.input(1))
    if number(last) % number(width):
        raise Mismatch(f"a scale of {width} for rows of {last}")
    x, scale, gate = (p.cast(p.input(i), DType.F32) for i in range(3))
    runs = p.reshape(x, *lead, number(last) // number(width), width)
    epsilon = float(node.attrs.get("epsilon", _EPSILON))
    normal = p("RMSNormalization", runs, scale, axis=-1, epsilon=epsilon)
    opened = p("Sigmoid", gate) if kind == "sigmoid" else swish(p, gate)
    y = p("Mul", p.reshape(normal, *lead, last), opened)
    return p.results(p.cast(y, p.dtype))


def causal_convolution(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite CausalConvWithState along one axis. The state has the elements that precede the
    input, initially zeros; the last elements of the input are the next call's state."""
    p = Parts(node, scope)
    for name in _FOREIGN:
        if node.attrs.get(name, 0):
            raise NotSupported(name)
    if int(node.attrs.get("ndim", 1)) != 1 or len(p.shape(p.input(0))) != 3:
        raise NotSupported("a causal convolution of more than one axis")
    is_last, dilation = node.attrs.get("channels_last", 0), int(node.attrs.get("dilation", 1))
    x, past = p.input(0), p.input(3)
    if is_last:
        x, past = p.transpose(x, 0, 2, 1), past and p.transpose(past, 0, 2, 1)
    batch, channels, length = p.shape(x)
    before = (number(p.shape(p.input(1))[2]) - 1) * dilation
    if not past:
        past = p("Expand", p.number(0), p.ints(batch, channels, before))
    extended = p("Concat", past, x, axis=2)
    bias = [p.input(2)] if p.input(2) else []
    attrs = {"group": number(channels), "dilations": (dilation,)}
    y = p("Conv", extended, p.input(1), *bias, **attrs)
    kind = str(node.attrs.get("activation", "none"))
    if kind in ("silu", "swish"):
        y = swish(p, y)
    elif kind != "none":
        raise Mismatch(f"activation {kind!r}")
    present = p.cut(extended, length, length + before, 2)
    if is_last:
        y, present = p.transpose(y, 0, 2, 1), p.transpose(present, 0, 2, 1)
    return p.results(y, present)


def swiglu(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite SwiGLU: g · sigmoid(alpha · g) · (l + beta), with g and l clamped. The node has g and
    l as two inputs, or a single input whose last axis is their concatenation."""
    p = Parts(node, scope)
    gate, linear = p.input(0), p.input(1)
    if not linear:
        half = number(p.shape(gate)[-1]) // 2
        gate, linear = p.cut(gate, 0, half, -1), p.cut(gate, half, 2 * half, -1)
    limit = float(node.attrs.get("limit", 0.0))
    if limit > 0:
        gate = p("Clip", gate, "", p.number(limit))
        linear = p("Clip", linear, p.number(-limit), p.number(limit))
    beta = float(node.attrs.get("activation_beta", 0.0))
    y = swish(p, gate, float(node.attrs.get("activation_alpha", 1.0)))
    return p.results(p("Mul", y, p("Add", linear, p.number(beta)) if beta else linear))


RULES: dict[str, Upgrade] = {
    "ScaledSiLU": scaled_silu,
    "GatedAdd": gated_add,
    "GatedRMSNorm": gated_rms_norm,
    "CausalConvWithState": causal_convolution,
    "SwiGLU": swiglu,
}
