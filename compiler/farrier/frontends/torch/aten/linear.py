"""Rules of matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ops import NotSupported


@aten("aten.linear.default")
def linear(s: Scope, x: str, weight: str, bias: str | None = None) -> str:
    y = s.node("MatMul", x, s.swapped(weight, 0, 1) if s.rank(weight) == 2 else weight)
    return y if bias is None else s.node("Add", y, bias)


@aten(
    "aten.matmul.default",
    "aten.mm.default",
    "aten.bmm.default",
    "aten.mv.default",
    "aten.dot.default",
)
def matmul(s: Scope, x: str, y: str) -> str:
    return s.node("MatMul", x, y)


@aten("aten.addmm.default", "aten.baddbmm.default")
def addmm(s: Scope, c: str, x: str, y: str, beta: float = 1, alpha: float = 1) -> str:
    product = s.node("MatMul", x, y)
    if alpha != 1:
        product = s.node("Mul", product, s.scalar(alpha, s.result))
    if beta == 0:
        return product
    return s.node("Add", product, c if beta == 1 else s.node("Mul", c, s.scalar(beta, s.result)))


@aten("aten.einsum.default")
def einsum(s: Scope, equation: str, tensors: Sequence[str], path: object = None) -> str:
    if len(tensors) > 2:
        raise NotSupported(f"einsum of {len(tensors)} operands")
    return s.node("Einsum", *tensors, equation=equation.replace(" ", ""))


@aten("aten.outer.default")
def outer(s: Scope, x: str, y: str) -> str:
    return s.node("Mul", s.unsqueeze(x, 1), y)
