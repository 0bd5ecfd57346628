"""Einsum without an ellipsis: products of the operands, summed over the labels that the output
lacks.
"""

from __future__ import annotations

import functools

import numpy as np

from farrier.ir.dim import Extent
from farrier.ir.expr import Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops.builder import Builder, total
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Mismatch,
    NotSupported,
    Operator,
    Types,
    differ,
    present,
    required,
)
from farrier.ops.pointwise import first_dtype
from farrier.ops.scalar import Scalar


def parse_equation(equation: str) -> tuple[list[str], str]:
    """Return the labels of each operand and of the output. An equation without "->" has as output
    the labels that occur once, in alphabetical order."""
    if "..." in equation:
        raise NotSupported(f"an ellipsis in the equation {equation!r}")
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow:
        right = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    return left.split(","), right


def _extents(operands: list[str], types: Types) -> dict[str, Extent]:
    if len(operands) != len(types):
        raise Mismatch(f"{len(operands)} operands in the equation and {len(types)} inputs")
    extents: dict[str, Extent] = {}
    for position, labels in enumerate(operands):
        shape = required(types, position).shape
        if len(shape) != len(labels):
            raise Mismatch(f"labels {labels!r} for input {position} of shape {shape}")
        for label, extent in zip(labels, shape, strict=True):
            if differ(extents.setdefault(label, extent), extent):
                raise Mismatch(f"label {label!r} is both {extents[label]} and {extent} long")
    return extents


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    operands, output = parse_equation(str(attrs["equation"]))
    extents = _extents(operands, types)
    unknown = set(output) - set(extents)
    if unknown:
        raise Mismatch(f"the output has labels {sorted(unknown)} that no input has")
    if len(set(output)) < len(output):
        raise Mismatch(f"the output's labels {output!r} repeat one")
    return (TensorType(first_dtype(types, attrs), tuple(extents[label] for label in output)),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    operands, output = parse_equation(str(attrs["equation"]))
    operand_arrays = [present(arrays, i) for i in range(len(arrays))]
    equation = f"{','.join(operands)}->{output}"
    return (np.asarray(np.einsum(equation, *operand_arrays, optimize=True)),)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    operands, output = parse_equation(str(node.attr("equation")))
    extents = _extents(operands, [v.type if v else None for v in node.inputs])
    factors = [builder.operand(node, inputs, i) for i in range(len(operands))]
    summed = {f"r_{label}": extents[label] for label in extents if label not in output}

    def body(*at: Expr) -> Scalar | Reduce:
        outer = dict(zip(output, at, strict=True))

        def product(*reduced: Expr) -> Scalar:
            inner = zip((name[2:] for name in summed), reduced, strict=True)
            index = {**outer, **dict(inner)}
            loads = (
                f(*(index[c] for c in labels)) for f, labels in zip(factors, operands, strict=True)
            )
            return functools.reduce(Scalar.__mul__, loads)

        return total(summed, product) if summed else product()

    return (builder.output(node, body, axes=tuple(f"i_{label}" for label in output)),)


OPERATORS: tuple[Operator, ...] = (
    Operator("Einsum", Kind.CONTRACTION, _infer, _reference, _compute),
)
