"""Rules of reductions, scans and sorts along axes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ir.dim import product
from farrier.ir.types import DType

Dims: TypeAlias = int | Sequence[int] | None


def _reduce(
    op: str, s: Scope, x: str, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> str:
    x = s.cast(x, s.result)
    return s.node(op, x, s.ints(s.axes(x, dim)), keepdims=int(keepdim)) if s.rank(x) else x


def _whole(op: str, s: Scope, x: str, dtype: DType | None = None) -> str:
    return _reduce(op, s, x)


for _name, _op in {"sum": "ReduceSum", "mean": "ReduceMean"}.items():
    aten(f"aten.{_name}.dim", f"aten.{_name}.dim_IntList")(functools.partial(_reduce, _op))
    aten(f"aten.{_name}.default")(functools.partial(_whole, _op))
_OVER_AXES = {"amax": "ReduceMax", "amin": "ReduceMin", "logsumexp": "ReduceLogSumExp"}
for _name, _op in _OVER_AXES.items():
    aten(f"aten.{_name}.default")(functools.partial(_reduce, _op))
for _name, _op in {"max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}.items():
    aten(f"aten.{_name}.default")(functools.partial(_whole, _op))
aten("aten.prod.dim_int")(functools.partial(_reduce, "ReduceProd"))


def _with_places(
    ops: tuple[str, str], s: Scope, x: str, dim: int, keepdim: bool = False
) -> tuple[str, str]:
    axis = s.axis(x, dim)
    best = s.node(ops[0], x, s.ints([axis]), keepdims=int(keepdim))
    return best, s.node(ops[1], x, axis=axis, keepdims=int(keepdim))


aten("aten.max.dim")(functools.partial(_with_places, ("ReduceMax", "ArgMax")))
aten("aten.min.dim")(functools.partial(_with_places, ("ReduceMin", "ArgMin")))


def _arg(op: str, s: Scope, x: str, dim: int | None = None, keepdim: bool = False) -> str:
    if dim is not None:
        return s.node(op, x, axis=s.axis(x, dim), keepdims=int(keepdim))
    return s.node(op, s.reshape(x, [-1]), axis=0, keepdims=0)


aten("aten.argmax.default")(functools.partial(_arg, "ArgMax"))
aten("aten.argmin.default")(functools.partial(_arg, "ArgMin"))


def _truth(op: str, s: Scope, x: str, dim: Dims = None, keepdim: bool = False) -> str:
    truth = s.cast(s.truth(x), DType.I32)
    return s.cast(s.node(op, truth, s.ints(s.axes(x, dim)), keepdims=int(keepdim)), DType.BOOL)


for _name, _op in {"any": "ReduceMax", "all": "ReduceMin"}.items():
    _names = [f"aten.{_name}.{kind}" for kind in ("default", "dim", "dims")]
    aten(*_names)(functools.partial(_truth, _op))


@aten("aten.var.correction", "aten.var.dim", "aten.var.default")
def var(
    s: Scope,
    x: str,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: float | None = None,
) -> str:
    if isinstance(dim, bool):  # aten.var(x, unbiased)
        dim, unbiased = None, dim
    axes = s.axes(x, dim)
    places = s.ints(axes)
    centred = s.node("Sub", x, s.node("ReduceMean", x, places, keepdims=1))
    squares = s.node("Mul", centred, centred)
    less = float(unbiased) if correction is None else float(correction)
    if not less:
        return s.node("ReduceMean", squares, places, keepdims=int(keepdim))
    total = s.node("ReduceSum", squares, places, keepdims=int(keepdim))
    count = s.tensor(product([s.shape(x)[axis] for axis in axes]), s.dtype(x))
    return s.node("Div", total, s.node("Sub", count, s.scalar(less, s.dtype(x))))


@aten("aten.std.correction", "aten.std.dim", "aten.std.default")
def std(s: Scope, *arguments: Any, **keywords: Any) -> str:
    return s.node("Sqrt", var(s, *arguments, **keywords))


@aten("aten.var_mean.correction", "aten.var_mean.dim")
def var_mean(
    s: Scope,
    x: str,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: float | None = None,
) -> tuple[str, str]:
    mean = s.node("ReduceMean", x, s.ints(s.axes(x, dim)), keepdims=int(keepdim))
    return var(s, x, dim, unbiased, keepdim, correction), mean


def _running(op: str, s: Scope, x: str, dim: int, dtype: DType | None = None) -> str:
    x = s.cast(x, s.result)
    return s.node(op, x, s.scalar(s.axis(x, dim), DType.I64)) if s.rank(x) else x


aten("aten.cumsum.default")(functools.partial(_running, "CumSum"))
aten("aten.cumprod.default")(functools.partial(_running, "CumProd"))


@aten("aten.topk.default")
def topk(
    s: Scope, x: str, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[str, ...]:
    return s.nodes("TopK", [x, [k]], 2, axis=s.axis(x, dim), largest=int(largest))


@aten("aten.sort.default")
def sort(s: Scope, x: str, dim: int = -1, descending: bool = False) -> tuple[str, ...]:
    axis = s.axis(x, dim)
    return s.nodes("TopK", [x, [s.shape(x)[axis]]], 2, axis=axis, largest=int(descending))


@aten("aten.sort.stable")
def sort_stable(s: Scope, x: str, stable: bool = False, **keywords: Any) -> tuple[str, ...]:
    return sort(s, x, **keywords)


@aten("aten.argsort.default")
def argsort(s: Scope, x: str, dim: int = -1, descending: bool = False) -> str:
    return sort(s, x, dim, descending)[1]


@aten("aten.argsort.stable")
def argsort_stable(s: Scope, x: str, stable: bool = False, **keywords: Any) -> str:
    return sort(s, x, **keywords)[1]


@aten("aten.nonzero.default")
def nonzero(s: Scope, x: str) -> str:
    return s.swapped(s.node("NonZero", x), 0, 1)
