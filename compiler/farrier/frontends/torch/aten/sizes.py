"""Rules of sizes: reading them from tensors, arithmetic, and comparisons."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ir.dim import Dim, ceildiv, product
from farrier.ir.types import DType
from farrier.ops import NotSupported

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": operator.floordiv,
    "Mod": operator.mod,
}
_NAMES = {"add": "Add", "sub": "Sub", "mul": "Mul", "floordiv": "Div", "mod": "Mod"}
_OPPOSITES = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_")


@dataclasses.dataclass(frozen=True, slots=True)
class Later:
    """A condition on sizes that is known only at run time. `op` is a comparison, "and_", "or_" or
    "not", and `x` and `y` are its operands."""

    op: str
    x: Any
    y: Any = None


class Quotient:
    """A quotient of two sizes, not rounded yet."""

    def __init__(self, dividend: Any, divisor: Any) -> None:
        self.dividend, self.divisor = dividend, divisor


def _arithmetic(op: str, s: Scope, x: Any, y: Any) -> Any:
    if isinstance(x, float | Quotient) or isinstance(y, float | Quotient):
        if not (isinstance(x, int | float) and isinstance(y, int | float)):
            raise NotSupported("arithmetic of floats and sizes that are open")
    elif isinstance(x, str) or isinstance(y, str):
        return s.numbers(op, x, y)
    return _ARITHMETIC[op](x, y)


for _name, _op in _NAMES.items():
    aten(f"_operator.{_name}")(functools.partial(_arithmetic, _op))


def _comparison(name: str, s: Scope, x: Any, y: Any) -> Any:
    if isinstance(x, int | float) and isinstance(y, int | float):
        return getattr(operator, name)(x, y)
    return Later(name, x, y)


for _name in _COMPARISONS:
    aten(f"_operator.{_name}")(functools.partial(_comparison, _name))


@aten("torch.sym_not")
def sym_not(s: Scope, x: Any) -> Any:
    if isinstance(x, Later) and x.op in _OPPOSITES:
        return Later(_OPPOSITES[x.op], x.x, x.y)
    return not x if isinstance(x, bool) else Later("not", x)


@aten("_operator.neg")
def neg(s: Scope, x: Any) -> Any:
    return s.numbers("Sub", 0, x) if isinstance(x, str) else -x


@aten("_operator.truediv")
def truediv(s: Scope, x: Any, y: Any) -> Any:
    if isinstance(x, int | float) and isinstance(y, int | float):
        return x / y
    return Quotient(x, y)


@aten("_operator.pow")
def power(s: Scope, x: Any, y: Any) -> Any:
    if isinstance(x, int | float) and isinstance(y, int | float):
        return x**y
    if not isinstance(y, int) or y < 0 or isinstance(x, str):
        raise NotSupported("a power of sizes that are open")
    return product([x] * y)


@aten("math.ceil", "math.floor", "math.trunc", "torch.sym_int")
def rounded(s: Scope, x: Any) -> Any:
    up = s.call.target == "math.ceil"
    if isinstance(x, Quotient):
        return ceildiv(x.dividend, x.divisor) if up else x.dividend // x.divisor
    if isinstance(x, float):
        return math.ceil(x) if up else int(x) if s.call.target != "math.floor" else math.floor(x)
    return x


@aten("torch.sym_float")
def sym_float(s: Scope, x: Any) -> Any:
    return float(x) if isinstance(x, int) else x


@aten("torch.sym_max", "torch.sym_min")
def extreme(s: Scope, x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return max(x, y) if s.call.target.endswith("max") else min(x, y)
    return s.numbers("Max" if s.call.target.endswith("max") else "Min", x, y)


@aten("torch.sym_sum")
def total(s: Scope, *arguments: Any) -> Any:
    parts = arguments[0] if len(arguments) == 1 else list(arguments)
    return functools.reduce(lambda x, y: _arithmetic("Add", s, x, y), parts)


@aten("aten.sym_size.int")
def size(s: Scope, x: str, dim: int) -> Any:
    return s.shape(x)[s.axis(x, dim)]


@aten("aten.sym_numel.default")
def numel(s: Scope, x: str) -> Any:
    return product(s.shape(x))


@aten("aten.item.default", "aten._local_scalar_dense.default")
def item(s: Scope, x: str) -> Any:
    if not s.dtype(x).is_integer:
        raise NotSupported(f"item() of {s.dtype(x)}, which is not a size,")
    constant = s.b.data(x)
    if constant is not None and constant.size == 1 and isinstance(constant.item(), int | Dim):
        return constant.item()
    return s.node("Reshape", s.cast(x, DType.I64), s.ints([]))
