"""ai.onnx.preview.training's Gradient: derivatives as further nodes, in reverse mode.

The nodes that lead from `xs` to `y` are walked backwards; each operator's rule takes the gradient
of its result to those of its operands. Where y has more than one element, it is the gradient of
their sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import Extent, product
from farrier.ir.graph import Node, Value
from farrier.ir.types import Shape
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import normal_axis

Gradients: TypeAlias = Sequence[str | None]  # of a node's operands, in order; None: no share
Rule: TypeAlias = Callable[["_Step"], Gradients]


def gradient(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Raises NotSupported for an operator without a rule, and for operands that are other tensors
    than the attributes name."""
    xs, zs = node.attrs["xs"], node.attrs.get("zs", ())
    if [scope.entry(n) for n in (*xs, *zs)] != [scope.entry(n) for n in node.inputs]:
        raise NotSupported("a gradient at other values than those of the tensors it names")
    sources, target = [_value(scope, name) for name in xs], _value(scope, node.attrs["y"])
    for name, value in zip(xs, sources, strict=True):
        if scope.known(value) is not None:
            raise NotSupported(f"a gradient by {name!r}, which is a constant and no input,")
    found = _differentiated(scope, sources, target)
    for name, value in zip(node.outputs, sources, strict=False):
        if name:
            result = found.get(value.name) or _filled(scope, value, 0)
            scope.bind(name, scope.entry(result))
    return []


def _value(scope: ImportScope, name: str) -> Value:
    entry = scope.entry(name)
    if not isinstance(entry, Value) or not entry.type.dtype.is_float:
        raise Mismatch(f"{name!r} is no tensor of floats")
    return entry


def _filled(scope: ImportScope, like: Value, number: float) -> str:
    one = scope.constant(np.array(number, like.type.dtype.numpy))
    return scope.add("Expand", one, scope.constant(ints(like.type.shape)))


def _differentiated(scope: ImportScope, sources: Sequence[Value], target: Value) -> dict[str, str]:
    """The gradient of `target` by each value between it and the sources, by the value's name."""
    depends = {value.name for value in sources}
    path = []
    for node in scope.nodes():
        is_new = all(value.name not in depends for value in node.outputs)
        if is_new and any(value is not None and value.name in depends for value in node.inputs):
            path.append(node)
            depends.update(value.name for value in node.outputs)
    found: dict[str, str] = {}
    if target.name in depends:
        found[target.name] = _filled(scope, target, 1)
    for node in reversed(path):
        if not any(value.name in found for value in node.outputs):
            continue
        if len(node.outputs) > 1 or node.op not in _RULES:
            raise NotSupported(f"the gradient of {node.op} ({node.origin!r})")
        step = _Step(scope, node, found[node.outputs[0].name])
        for value, share in zip(node.inputs, _RULES[node.op](step), strict=False):
            if value is None or share is None or value.name not in depends:
                continue
            share = step.summed_to(share, value.type.shape)
            known = found.get(value.name)
            found[value.name] = share if known is None else scope.add("Add", known, share)
    return found


class _Step:
    """A node whose result has the gradient `by`; arithmetic on names."""

    def __init__(self, scope: ImportScope, node: Node, by: str) -> None:
        self._scope = scope
        self.node, self.by = node, by
        self.dtype = node.outputs[0].type.dtype
        self.kinds = [v.type for v in node.inputs if v is not None]
        self.shapes = [kind.shape for kind in self.kinds]
        self.operands = ["" if v is None else scope.bind("", v) for v in node.inputs]
        self.result = scope.bind("", node.outputs[0])

    def __call__(self, op: str, *operands: str | float, **attrs: object) -> str:
        """A node in the newest form; numbers are constants of the result's dtype."""
        names = [o if isinstance(o, str) else self.number(o) for o in operands]
        return self._scope.add(op, *names, **attrs)

    def number(self, value: float) -> str:
        return self._scope.constant(np.array(value, self.dtype.numpy))

    def ints(self, values: Sequence[object]) -> str:
        return self._scope.constant(ints(values))

    def shape(self, name: str) -> Shape:
        return self._scope.shape(name)

    def reshaped(self, name: str, shape: Shape) -> str:
        return self("Reshape", name, self.ints(shape)) if self.shape(name) != shape else name

    def summed_to(self, name: str, shape: Shape) -> str:
        """A gradient by what was broadcast from `shape`."""
        own = self.shape(name)
        extra = len(own) - len(shape)
        axes = [
            axis
            for axis, extent in enumerate(own)
            if axis < extra or (shape[axis - extra] == 1 and extent != 1)
        ]
        if axes:
            name = self("ReduceSum", name, self.ints(axes), keepdims=1)
        return self.reshaped(name, shape)

    def static(self, position: int) -> list[int] | None:
        """An operand of integers that is known; None where it is omitted."""
        value = self.node.inputs[position] if position < len(self.node.inputs) else None
        data = None if value is None else self._scope.known(value)
        return None if data is None else [int(v) for v in data.reshape(-1)]


# Elementwise -------------------------------------------------------------------------------------


def _times(formula: Callable[[_Step, str, str], str]) -> Rule:
    """The rule of a function of one operand: its derivative, of the operand and the result."""
    return lambda s: [s("Mul", s.by, formula(s, s.operands[0], s.result))]


def _mul(s: _Step) -> Gradients:
    x, y = s.operands
    return [s("Mul", s.by, y), s("Mul", s.by, x)]


def _div(s: _Step) -> Gradients:
    share = s("Div", s.by, s.operands[1])
    return [share, s("Neg", s("Mul", share, s.result))]


def _pow(s: _Step) -> Gradients:
    """The exponent's is that of log x, where there is one."""
    x, y = s.operands[0], s("Cast", s.operands[1], to=str(s.dtype))
    slope = s("Mul", y, s("Pow", x, s("Sub", y, 1.0)))
    by_x = s("Mul", s.by, s("Where", s("Equal", y, 0.0), 0.0, slope))
    log = s("Log", s("Where", s("Greater", x, 0.0), x, 1.0))
    return [by_x, s("Mul", s.by, s("Mul", s.result, log))]


def _where(s: _Step) -> Gradients:
    condition = s.operands[0]
    return [None, s("Where", condition, s.by, 0.0), s("Where", condition, 0.0, s.by)]


def _square(s: _Step, x: str) -> str:
    return s("Mul", x, x)


def _sigmoid(s: _Step, x: str, y: str) -> str:
    return s("Mul", y, s("Sub", 1.0, y))


def _erf(s: _Step, x: str, y: str) -> str:
    return s("Mul", 2.0 / math.sqrt(math.pi), s("Exp", s("Neg", _square(s, x))))


# Sums --------------------------------------------------------------------------------------------


def _kept(s: _Step) -> Shape:
    """The shape of a reduction's result with the axes that it lost."""
    shape = s.shapes[0]
    given = s.static(1)
    none = not given and s.node.attr("noop_with_empty_axes", 0)
    axes = {normal_axis(a, len(shape)) for a in given or (() if none else range(len(shape)))}
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


def _spread(s: _Step, name: str) -> str:
    """What belongs to a reduction's result, in the shape of its operand."""
    return s("Expand", s.reshaped(name, _kept(s)), s.ints(s.shapes[0]))


def _reduce_mean(s: _Step) -> Gradients:
    count = product(s.shapes[0]) // product(s.shape(s.result))
    return [_spread(s, s("Div", s.by, s("Cast", s.ints([count]), to=str(s.dtype))))]


def _softmax(s: _Step) -> Gradients:
    axis = s.ints([s.node.attr("axis", -1)])
    share = s("Mul", s.by, s.result)
    return [s("Sub", share, s("Mul", s.result, s("ReduceSum", share, axis, keepdims=1)))]


def _log_softmax(s: _Step) -> Gradients:
    axis = s.ints([s.node.attr("axis", -1)])
    total = s("ReduceSum", s.by, axis, keepdims=1)
    return [s("Sub", s.by, s("Mul", s("Exp", s.result), total))]


# Products ----------------------------------------------------------------------------------------


def _turned(s: _Step, name: str) -> str:
    """A matrix, or each of many, transposed."""
    rank = len(s.shape(name))
    return s("Transpose", name, perm=(*range(rank - 2), rank - 1, rank - 2))


def _matmul(s: _Step) -> Gradients:
    """A vector is a matrix of one row, or behind another of one column."""
    (a, b), (left, right) = s.operands, s.shapes
    by_shape = s.shape(s.by)
    if len(right) == 1:
        b, by_shape = s.reshaped(b, (right[0], 1)), (*by_shape, 1)
    if len(left) == 1:
        a, by_shape = s.reshaped(a, (1, left[0])), (*by_shape[:-1], 1, by_shape[-1])
    by = s.reshaped(s.by, by_shape)
    by_a, by_b = s("MatMul", by, _turned(s, b)), s("MatMul", _turned(s, a), by)
    by_a, by_b = s.summed_to(by_a, s.shape(a)), s.summed_to(by_b, s.shape(b))
    return [s.reshaped(by_a, left), s.reshaped(by_b, right)]


def _gemm(s: _Step) -> Gradients:
    a, b = s.operands[:2]
    turns = [bool(s.node.attr(name, 0)) for name in ("transA", "transB")]
    by = s("Mul", s.by, float(s.node.attr("alpha", 1.0)))
    by_a = s("MatMul", by, b if turns[1] else _turned(s, b))
    by_b = s("MatMul", a if turns[0] else _turned(s, a), by)
    shares = [
        _turned(s, share) if is_turned else share
        for share, is_turned in zip((by_a, by_b), turns, strict=True)
    ]
    return [*shares, s("Mul", s.by, float(s.node.attr("beta", 1.0)))]


# Shapes ------------------------------------------------------------------------------------------


def _reshaped(s: _Step) -> Gradients:
    return [s.reshaped(s.by, s.shapes[0])]


def _transpose(s: _Step) -> Gradients:
    perm = s.node.attr("perm")
    rank = len(s.shapes[0])
    back = np.argsort(perm if perm is not None else range(rank)[::-1])
    return [s("Transpose", s.by, perm=tuple(back.tolist()))]


def _concat(s: _Step) -> Gradients:
    axis = normal_axis(s.node.attr("axis"), len(s.shapes[0]))
    shares: list[str] = []
    start: Extent = 0
    for shape in s.shapes:
        end = start + shape[axis]
        shares.append(s("Slice", s.by, s.ints([start]), s.ints([end]), s.ints([axis])))
        start = end
    return shares


_RULES: dict[str, Rule] = {
    "Add": lambda s: [s.by, s.by],
    "Sub": lambda s: [s.by, s("Neg", s.by)],
    "Mul": _mul,
    "Div": _div,
    "Pow": _pow,
    "Sum": lambda s: [s.by] * len(s.operands),
    "Mean": lambda s: [s("Div", s.by, float(len(s.operands)))] * len(s.operands),
    "Where": _where,
    "Cast": lambda s: [s("Cast", s.by, to=str(s.kinds[0].dtype))],
    "Neg": lambda s: [s("Neg", s.by)],
    "Abs": _times(lambda s, x, y: s("Sign", x)),
    "Reciprocal": _times(lambda s, x, y: s("Neg", _square(s, y))),
    "Sqrt": _times(lambda s, x, y: s("Div", 0.5, y)),
    "Exp": _times(lambda s, x, y: y),
    "Log": lambda s: [s("Div", s.by, s.operands[0])],
    "Sin": _times(lambda s, x, y: s("Cos", x)),
    "Cos": _times(lambda s, x, y: s("Neg", s("Sin", x))),
    "Tanh": _times(lambda s, x, y: s("Sub", 1.0, _square(s, y))),
    "Erf": _times(_erf),
    "Sigmoid": _times(_sigmoid),
    "Softplus": _times(lambda s, x, y: s("Sigmoid", x)),
    "Relu": lambda s: [s("Where", s("Greater", s.operands[0], 0.0), s.by, 0.0)],
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "ReduceSum": lambda s: [_spread(s, s.by)],
    "ReduceMean": _reduce_mean,
    "ReduceSumSquare": lambda s: [s("Mul", s("Mul", s.operands[0], 2.0), _spread(s, s.by))],
    "MatMul": _matmul,
    "Gemm": _gemm,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshaped),
    "Transpose": _transpose,
    "Expand": lambda s: [s.by],
    "Concat": _concat,
}
