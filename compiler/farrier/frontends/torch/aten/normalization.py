"""Rules of normalizations, which the exporter does not decompose, and of softmax."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ir.types import DType
from farrier.ops import NotSupported

_EPSILONS = {DType.F16: 2.0**-10, DType.BF16: 2.0**-7, DType.F32: 2.0**-23, DType.F64: 2.0**-52}


def _affine(s: Scope, x: str, weight: str | None, bias: str | None) -> tuple[str, str]:
    """Return scale and offset of each channel; 1 and 0 if omitted."""
    channels = [s.shape(x)[1]]
    dtype = s.dtype(x)
    return weight or s.full(channels, 1.0, dtype), bias or s.full(channels, 0.0, dtype)


@aten("aten.batch_norm.default")
def batch_norm(
    s: Scope,
    x: str,
    weight: str | None,
    bias: str | None,
    mean: str | None,
    var: str | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> str:
    if training or mean is None or var is None:
        raise NotSupported("batch_norm in training (call module.eval() before the export)")
    return s.node("BatchNormalization", x, *_affine(s, x, weight, bias), mean, var, epsilon=eps)


@aten("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    s: Scope,
    x: str,
    weight: str | None,
    bias: str | None,
    mean: str,
    var: str,
    momentum: float,
    eps: float,
) -> tuple[str, ...]:
    return (batch_norm(s, x, weight, bias, mean, var, False, momentum, eps), "", "")


@aten("aten.instance_norm.default")
def instance_norm(
    s: Scope,
    x: str,
    weight: str | None,
    bias: str | None,
    mean: str | None,
    var: str | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> str:
    if not use_input_stats and mean is not None and var is not None:
        return batch_norm(s, x, weight, bias, mean, var, False, momentum, eps)
    return s.node("InstanceNormalization", x, *_affine(s, x, weight, bias), epsilon=eps)


@aten("aten.layer_norm.default")
def layer_norm(
    s: Scope,
    x: str,
    shape: Sequence[int],
    weight: str | None = None,
    bias: str | None = None,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> str:
    weight = weight or s.full(s.shape(x)[-len(shape) :], 1.0, s.dtype(x))
    axis = s.rank(x) - len(shape)
    return s.node("LayerNormalization", x, weight, bias or "", axis=axis, epsilon=eps)


@aten("aten.native_layer_norm.default")
def native_layer_norm(
    s: Scope, x: str, shape: Sequence[int], weight: str | None, bias: str | None, eps: float
) -> tuple[str, ...]:
    return (layer_norm(s, x, shape, weight, bias, eps), "", "")


@aten("aten.rms_norm.default")
def rms_norm(
    s: Scope, x: str, shape: Sequence[int], weight: str | None = None, eps: float | None = None
) -> str:
    weight = weight or s.full(s.shape(x)[-len(shape) :], 1.0, s.dtype(x))
    eps = _EPSILONS[s.dtype(x)] if eps is None else eps
    return s.node("RMSNormalization", x, weight, axis=s.rank(x) - len(shape), epsilon=eps)


@aten("aten.group_norm.default")
def group_norm(
    s: Scope,
    x: str,
    groups: int,
    weight: str | None = None,
    bias: str | None = None,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> str:
    scale, offset = _affine(s, x, weight, bias)
    return s.node("GroupNormalization", x, scale, offset, num_groups=groups, epsilon=eps)


@aten("aten.softmax.int", "aten._softmax.default", "aten.special_softmax.int")
def softmax(s: Scope, x: str, dim: int, dtype: object = None) -> str:
    return s.node("Softmax", s.cast(x, s.result), axis=s.axis(x, dim))


@aten("aten.log_softmax.int", "aten._log_softmax.default")
def log_softmax(s: Scope, x: str, dim: int, dtype: object = None) -> str:
    return s.node("LogSoftmax", s.cast(x, s.result), axis=s.axis(x, dim))


@aten("aten._weight_norm.default")
def weight_norm(s: Scope, v: str, g: str, dim: int = 0) -> str:
    return weight_norm_interface(s, v, g, dim)[0]


@aten("aten._weight_norm_interface.default")
def weight_norm_interface(s: Scope, v: str, g: str, dim: int = 0) -> tuple[str, str]:
    axes = [axis for axis in range(s.rank(v)) if axis != s.axis(v, dim)]
    norm = s.node("ReduceL2", v, s.ints(axes), keepdims=1)
    return s.node("Mul", v, s.node("Div", g, norm)), norm


@aten("aten.linalg_vector_norm.default", "aten.norm.ScalarOpt_dim", "aten.norm.Scalar")
def vector_norm(
    s: Scope,
    x: str,
    ord: float = 2,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    dtype: object = None,
) -> str:
    x = s.cast(x, s.result)
    axes = s.ints(s.axes(x, dim))
    if ord in (1, 2):
        return s.node(f"ReduceL{int(ord)}", x, axes, keepdims=int(keepdim))
    if ord == float("inf"):
        return s.node("ReduceMax", s.node("Abs", x), axes, keepdims=int(keepdim))
    raise NotSupported(f"a norm of order {ord}")


@aten("aten.cosine_similarity.default")
def cosine_similarity(s: Scope, x: str, y: str, dim: int = 1, eps: float = 1e-8) -> str:
    axes = s.ints([s.axis(x, dim)])
    least = s.scalar(eps, s.dtype(x))
    units = [
        s.node("Div", z, s.node("Max", s.node("ReduceL2", z, axes, keepdims=1), least))
        for z in (x, y)
    ]
    return s.node("ReduceSum", s.node("Mul", *units), axes, keepdims=0)
