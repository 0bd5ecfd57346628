"""Declared traits and rules, held to the references of the operators that declare them."""

from __future__ import annotations

import collections
import importlib
import pkgutil

import ml_dtypes
import numpy as np
import pytest

from farrier import ops
from farrier.ir.graph import Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import Kind, Moves, Trait, lookup, names, run_node

RNG = np.random.default_rng(7)
BOTH = {False: RNG.permutation(48).reshape(2, 3, 4, 2) - 20.0, True: RNG.random((2, 3, 4, 2)) < 0.5}


def _having(trait):
    return sorted(name for name in names() if lookup(name).has(trait))


def _apply(op, *arrays, shapes=None, **attrs):
    """Return the first result of a node with these operands, whose output has the right type."""
    types = [TensorType(DType.from_numpy(array.dtype), array.shape) for array in arrays]
    constants = {at: arrays[at] for at in lookup(op).static if at < len(arrays)}
    inputs = tuple(Value(f"x{at}", kind) for at, kind in enumerate(types))
    kinds = lookup(op).infer(types, constants, attrs)
    outputs = tuple(Value(f"y{at}", kind) for at, kind in enumerate(kinds))
    node = Node(op, inputs, outputs, attributes(**attrs))
    return node, run_node(node, list(arrays))[0]


def _operand(op, seed=0):
    """Return numbers, or booleans for an operator that takes no others."""
    data = BOTH[op in ("And", "Or", "Xor")]
    return np.random.default_rng(seed).permutation(data.reshape(-1)).reshape(data.shape)


@pytest.mark.parametrize("op", _having(Trait.COMMUTATIVE))
def test_operands_of_a_commutative_operator_may_change_places(op):
    left, right = _operand(op), _operand(op, 1)
    np.testing.assert_array_equal(_apply(op, left, right)[1], _apply(op, right, left)[1])


@pytest.mark.parametrize("op", _having(Trait.AFFINE))
def test_an_affine_operator_is_affine_in_each_operand(op):
    left, right, other = (_operand(op, seed) for seed in range(3))
    middle = _apply(op, (left + other) / 2, right)[1]
    ends = _apply(op, left, right)[1], _apply(op, other, right)[1]
    np.testing.assert_allclose(middle, (ends[0] + ends[1]) / 2, atol=1e-12)
    middle = _apply(op, right, (left + other) / 2)[1]
    ends = _apply(op, right, left)[1], _apply(op, right, other)[1]
    np.testing.assert_allclose(middle, (ends[0] + ends[1]) / 2, atol=1e-12)


@pytest.mark.parametrize("op", sorted(n for n in names() if lookup(n).neutral is not None))
def test_a_neutral_operand_changes_nothing(op):
    x = _operand(op)
    neutral = np.array(lookup(op).neutral)
    np.testing.assert_array_equal(_apply(op, x, neutral)[1], x)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "BatchNormalization"])
def test_an_affine_map_is_the_operator(op):
    x = _operand(op)
    parts = [RNG.random(3) + 0.5 for _ in range(4)]
    if op != "BatchNormalization":
        parts = [parts[0].reshape(3, 1, 1)]
    node, result = _apply(op, x, *parts)
    content = {f"x{at}": part for at, part in enumerate(parts, start=1)}
    scale, shift = lookup(op).affine(node, lambda value: content.get(value.name))
    scale, shift = (each.reshape(3, 1, 1) for each in (scale, shift))
    np.testing.assert_allclose(result, x * scale + shift, rtol=1e-12)


@pytest.mark.parametrize("op", sorted(name for name in names() if lookup(name).joined_by))
def test_results_of_parts_are_joined_to_that_of_the_whole(op):
    x = RNG.random((6, 4)) + 0.5
    rows = _apply(op, x, np.array([1]), keepdims=0)[1]
    joined = _apply(lookup(op).joined_by, rows, np.array([0]), keepdims=0)[1]
    whole = _apply(op, x, np.array([0, 1]), keepdims=0)[1]
    np.testing.assert_allclose(joined, whole, rtol=1e-12)


ATTRS = {
    "Cast": {"to": "f32"},
    "DequantizeLinear": None,
    "QuantizeLinear": None,
    "Hardmax": {"axis": -1},
    "MaxPool": {"kernel_shape": (2, 2)},
}
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
OPERANDS = {"Where": 3, "Clip": 3, "Max": 2, "Min": 2} | dict.fromkeys(COMPARISONS, 2)


@pytest.mark.parametrize(
    "op", [name for name in _having(Trait.EXACT) if ATTRS.get(name, {}) is not None]
)
def test_what_an_exact_operator_computes_of_narrow_floats_needs_no_more_bits(op):
    x, y = (RNG.standard_normal((2, 3, 4, 4)).astype(ml_dtypes.bfloat16) for _ in range(2))
    operands = [x.astype(np.float64)] * OPERANDS.get(op, 1)
    if op == "Where":
        operands = [x > 0, x.astype(np.float64), y.astype(np.float64)]
    if op == "Clip":
        operands[1:] = [np.float64(-0.5), np.float64(0.5)]
    if op in ("Max", "Min"):
        operands[1] = y.astype(np.float64)
    if op in ("ReduceMax", "ReduceMin"):
        operands.append(np.array([2]))
    result = _apply(op, *operands, **ATTRS.get(op, {}))[1]
    if result.dtype.kind == "f":
        narrow = result.astype(ml_dtypes.bfloat16).astype(result.dtype)
        np.testing.assert_array_equal(narrow, result)


MOVING = {
    "Concat": ([None, None], {"axis": 1}),
    "DepthToSpace": ([None], {"blocksize": 2}),
    "Expand": ([None, np.array([5, 2, 4, 2, 2])], {}),
    "Flatten": ([None], {"axis": 2}),
    "Gather": ([None, np.array([0, 2, 2])], {"axis": 2}),
    "MaxPool": ([None], {"kernel_shape": (2, 1), "pads": (1, 0, 0, 0)}),
    "Reshape": ([None, np.array([8, 4])], {}),
    "Resize": ([None, np.zeros(0), np.array([1, 1, 3, 2.0])], {"mode": "nearest"}),
    "Slice": ([None, np.array([1]), np.array([4]), np.array([1]), np.array([2])], {}),
    "SpaceToDepth": ([None], {"blocksize": 2}),
    "Split": ([None, np.array([1, 3])], {"axis": 1}),
    "Tile": ([None, np.array([2, 1, 1, 3])], {}),
    "Transpose": ([None], {"perm": (3, 1, 0, 2)}),
}


@pytest.mark.parametrize("op", sorted(MOVING))
def test_an_operator_that_moves_elements_returns_elements_of_its_operands(op):
    arrays, attrs = MOVING[op]
    fresh = iter(range(0, 400, 40))
    operands = [
        next(fresh) + RNG.permutation(32).reshape(2, 4, 2, 2).astype(np.float64)
        if each is None
        else each
        for each in arrays
    ]
    node, result = _apply(op, *operands, **attrs)
    moves, read = lookup(op).moved(node), lookup(op).data_operands(node)
    elements = np.concatenate([operands[int(value.name[1:])].reshape(-1) for value in read])
    assert np.isin(result, elements).all()
    if moves is Moves.ONCE:
        assert len(np.unique(result)) == result.size
    if moves is Moves.EXTREME:
        rising = _apply(op, operands[0] ** 3, **attrs)[1]
        np.testing.assert_array_equal(rising, result**3)


def test_each_operator_is_declared_once():
    modules = pkgutil.iter_modules(ops.__path__, f"{ops.__name__}.")
    declared = collections.Counter(
        operator.name
        for module in modules
        for operator in getattr(importlib.import_module(module.name), "OPERATORS", ())
    )
    assert set(declared) == names()
    assert set(declared.values()) == {1}


def test_a_contraction_of_two_factors_declares_its_product():
    without = {n for n in names() if lookup(n).kind is Kind.CONTRACTION and not lookup(n).product}
    assert without == {"BlockMatMul", "Einsum", "PackedMatMul"}
