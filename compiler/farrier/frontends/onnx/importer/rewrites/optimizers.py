"""Rewrite training steps (ai.onnx.preview.training): Adagrad, Adam, Momentum.

Inputs are the learning rate r, the number of earlier steps t, and for each of several tensors its
value, its gradient, and the optimizer's state. Outputs are the new values, then the new states.
"""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.scope import ImportScope


class _Formula:
    """Arithmetic for the formula of an optimizer. Operands are tensors of one dtype, or numbers.
    `tensors` has one tuple for each optimized tensor: its value, its gradient, and `kept`
    states."""

    def __init__(self, scope: ImportScope, node: RawNode, kept: int) -> None:
        self.scope, self.attrs = scope, node.attrs
        self.rate, self.steps, *tensors = node.inputs
        self.dtype = scope.dtype(tensors[0])
        count = len(tensors) // (2 + kept)
        lists = [tensors[i : i + count] for i in range(0, len(tensors), count)]
        self.tensors = list(zip(*lists, strict=True))

    def number(self, value: float) -> str:
        return self.scope.constant(np.array(value, self.dtype.numpy))

    def attr(self, name: str, default: float) -> str:
        return self.number(self.attrs.get(name, default))

    def __call__(self, op: str, *operands: str) -> str:
        return self.scope.add(op, *operands)

    def regularized(self, x: str, gradient: str, attribute: str = "norm_coefficient") -> str:
        """Return the gradient plus the gradient of the L2 penalty ½·c·x², where c is the
        attribute."""
        return self("Add", self("Mul", self.attr(attribute, 0.0), x), gradient)

    def time(self) -> str:
        """Return the number of earlier steps, converted to the tensors' dtype."""
        return self.scope.add("Cast", self.steps, to=str(self.dtype))


def _results(node: RawNode, columns: list[list[str]]) -> list[RawNode]:
    values = [value for column in zip(*columns, strict=True) for value in column]
    return [
        RawNode("Identity", [value], [name], {}, node.origin)
        for value, name in zip(values, node.outputs, strict=True)
        if name
    ]


def adagrad(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Adagrad: h += g²; x −= r / (1 + t·decay) · g / (√h + ε)."""
    f = _Formula(scope, node, kept=1)
    slowed = f("Add", f.number(1), f("Mul", f.time(), f.attr("decay_factor", 0.0)))
    rate = f("Div", f.rate, slowed)
    updates = []
    for x, gradient, squares in f.tensors:
        g = f.regularized(x, gradient)
        total = f("Add", squares, f("Mul", g, g))
        root = f("Add", f("Sqrt", total), f.attr("epsilon", 0.0))
        updates.append([f("Sub", x, f("Div", f("Mul", rate, g), root)), total])
    return _results(node, updates)


def momentum(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Momentum: v = α·v + β·g with β = 1 at the first step; x −= r·v, or r·(g + α·v) after
    Nesterov."""
    f = _Formula(scope, node, kept=1)
    alpha, beta, unit = f.attr("alpha", 0.0), f.attr("beta", 0.0), f.number(1)
    is_first = f("Equal", f.time(), f.number(0))
    beta = f("Where", is_first, unit, beta)
    updates = []
    for x, gradient, velocity in f.tensors:
        g = f.regularized(x, gradient)
        v = f("Add", f("Mul", alpha, velocity), f("Mul", beta, g))
        step = f("Add", g, f("Mul", alpha, v)) if node.attrs["mode"] == "nesterov" else v
        updates.append([f("Sub", x, f("Mul", f.rate, step)), v])
    return _results(node, updates)


def adam(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Adam: v = α·v + (1 − α)·g, h = β·h + (1 − β)·g²; x −= r·√(1 − βᵗ) / (1 − αᵗ) · v /
    (√h + ε), with the correction from the first step on."""
    f = _Formula(scope, node, kept=2)
    alpha, beta = (node.attrs.get(n, d) for n, d in (("alpha", 0.9), ("beta", 0.999)))
    unit, time = f.number(1), f.time()

    def left(base: float) -> str:
        return f("Sub", unit, f("Pow", f.number(base), time))

    corrected = f("Mul", f.rate, f("Div", f("Sqrt", left(beta)), left(alpha)))
    rate = f("Where", f("Equal", time, f.number(0)), f.rate, corrected)
    updates = []
    for x, gradient, velocity, squares in f.tensors:
        g = f.regularized(x, gradient)
        v = f("Add", f("Mul", f.number(alpha), velocity), f("Mul", f.number(1 - alpha), g))
        square = f("Mul", f.number(1 - beta), f("Mul", g, g))
        h = f("Add", f("Mul", f.number(beta), squares), square)
        step = f("Div", f("Mul", rate, v), f("Add", f("Sqrt", h), f.attr("epsilon", 0.0)))
        new = f("Sub", x, step)
        shrunk = f("Mul", f.attr("norm_coefficient_post", 0.0), new)
        updates.append([f("Sub", new, shrunk), v, h])
    return _results(node, updates)
