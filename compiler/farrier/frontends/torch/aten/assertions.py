"""Rules of assertions: `torch._check`, and the ranges of data-dependent sizes.

Assertions that hold for all sizes are left out, and the others become checks at run time. Notices
name assertions that are never true at the sizes of the import, and assertions that cannot be
expressed as a check.
"""

from __future__ import annotations

import re
from typing import Any

from farrier.frontends.torch.aten.sizes import Later
from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ir.dim import Dim, Extent, bounds
from farrier.ir.sizes import Demand
from farrier.ir.types import DType
from farrier.ops import Mismatch

_MOST_SHOWN = 200  # Characters of an assertion in a message.
_EXPRESSION = re.compile(r"for expression (.+) on node")
# The relation of the left side to the right side, and a number to add to the right side.
_DEMANDS = {
    "ge": (Demand.LEAST, 0),
    "gt": (Demand.LEAST, 1),
    "le": (Demand.MOST, 0),
    "lt": (Demand.MOST, -1),
    "eq": (Demand.EXACT, 0),
}
_MIRRORED = {"ge": "le", "le": "ge", "gt": "lt", "lt": "gt", "eq": "eq", "ne": "ne"}


@aten("aten._assert_scalar.default")
def assert_scalar(s: Scope, truth: Any, message: str = "") -> None:
    _check(s, truth, _shown(message))


@aten("aten._assert_async.default", "aten._assert_async.msg", "aten._functional_assert_async.msg")
def assert_tensor(s: Scope, truth: str, message: str = "", token: str | None = None) -> str | None:
    condition = s.reshape(s.cast(s.truth(truth), DType.I64), [])
    _require(s, condition, 1, Demand.EXACT, _shown(message) or "a tensor is true")
    return token


@aten("aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default")
def constrain_range(s: Scope, size: Any, min: int | None = None, max: int | None = None) -> None:
    for op, limit in (("ge", min), ("le", max)):
        if limit is not None:
            words = "at least" if op == "ge" else "at most"
            _check(s, Later(op, size, limit), f"a size is {words} {limit}")


@aten("aten._assert_tensor_metadata.default")
def assert_metadata(s: Scope, x: str, *arguments: Any, **keywords: Any) -> None:
    """Raise Mismatch if a tensor's dtype differs from the dtype that the exporter recorded."""
    dtype = keywords.get("dtype", arguments[2] if len(arguments) > 2 else None)
    if isinstance(dtype, DType) and s.dtype(x) is not dtype:
        raise Mismatch(f"the module asserts that a tensor of {s.dtype(x)} is of {dtype}")


def _check(s: Scope, truth: Any, message: str) -> None:
    """Add checks that end a run with the error `message` unless the condition `truth` holds. A
    condition that cannot be expressed as a check is reported as a notice."""
    match truth:
        case Later("and_", x, y):
            _check(s, x, message)
            _check(s, y, message)
        case Later(op, x, y) if op in _MIRRORED and _is_size(x) and _is_size(y):
            _compare(s, op, x, y, message)
        case Later():
            s.notices.append(f"the assertion {message!r} is not checked{_line(s)}")
        case str():
            assert_tensor(s, truth, message)
        case _ if not truth:
            _require(s, 0, 1, Demand.EXACT, message)


def _compare(s: Scope, op: str, x: Any, y: Any, message: str) -> None:
    if isinstance(y, str) and s.numbers.known(y) is None:
        op, x, y = _MIRRORED[op], y, x  # A check compares a run-time value with an extent.
    right = s.numbers.known(y)
    if op == "ne" or right is None:
        x, right = s.numbers("Sub", x, y), 0
    if op == "ne":  # The square of a number other than 0 is positive.
        op, x, right = "gt", s.numbers("Mul", x, x), 0
    demand, more = _DEMANDS[op]
    _require(s, x, right + more, demand, message)


def _require(s: Scope, value: Any, limit: Extent, demand: Demand, message: str) -> None:
    """Add a check that ends a run unless the size `value` is in the relation `demand` to `limit`.
    No check is added if the relation always holds."""
    left = s.numbers.known(value)
    holds = None if left is None else _holds(left - limit, demand)
    if holds is False:
        s.notices.append(f"the module asserts {message}, which no call fulfils{_line(s)}")
    if not holds:
        s.b.require(s.b.unknown(value), [limit], demand, f"the module asserts {message}")


def _holds(distance: Extent, demand: Demand) -> bool | None:
    """Check whether a size that exceeds a limit by `distance` is in the relation `demand` to the
    limit. Return None if the answer depends on open dims."""
    low, high = bounds(distance)
    match demand:
        case Demand.LEAST:
            always, never = low >= 0, high < 0
        case Demand.MOST:
            always, never = high <= 0, low > 0
        case Demand.EXACT:
            always, never = low == high == 0, low > 0 or high < 0
    return True if always else False if never else None


def _is_size(value: Any) -> bool:
    return isinstance(value, int | str | Dim)


def _shown(message: str) -> str:
    """Return the expression in an exporter's message, or the entire message if there is none."""
    expression = _EXPRESSION.search(message)
    text = " ".join((expression[1] if expression else message).split())
    return "".join(c if c.isprintable() else "?" for c in text[:_MOST_SHOWN])


def _line(s: Scope) -> str:
    return f", at {s.call.line}" if s.call.line else ""
