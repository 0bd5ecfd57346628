"""The canonical form has the value of what it stands for, and the forms that schedules rely on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.ir.affine import Simplifier, affine, bounds, simplify
from farrier.ir.dim import dim, evaluate
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    extent_of,
    index,
)
from farrier.ir.substitute import variables
from farrier.ir.types import DType

A, B, C = Var("a"), Var("b"), Var("c")
OPS = {"+": "add", "-": "sub", "*": "mul", "//": "div", "%": "mod", "<": "lt", "<=": "le"}


def _e(left: Expr | int, op: str, right: Expr | int) -> Expr:
    return Binary(BinaryOp(OPS[op]), index(left), index(right))


def _value(expr: Expr, env: dict[str, int]) -> int:
    match expr:
        case Const(value, _):
            return int(value)
        case Var(name):
            return env[name]
        case Select(condition, then, otherwise):
            return _value(then if _value(condition, env) else otherwise, env)
        case Binary(op, left, right):
            a, b = _value(left, env), _value(right, env)
            return int(
                {
                    BinaryOp.ADD: lambda: a + b,
                    BinaryOp.SUB: lambda: a - b,
                    BinaryOp.MUL: lambda: a * b,
                    BinaryOp.DIV: lambda: a // b,
                    BinaryOp.MOD: lambda: a % b,
                    BinaryOp.MIN: lambda: min(a, b),
                    BinaryOp.MAX: lambda: max(a, b),
                    BinaryOp.LT: lambda: a < b,
                    BinaryOp.LE: lambda: a <= b,
                    BinaryOp.EQ: lambda: a == b,
                    BinaryOp.NE: lambda: a != b,
                    BinaryOp.AND: lambda: a and b,
                    BinaryOp.OR: lambda: a or b,
                }[op]()
            )
        case _:
            raise AssertionError(expr)


def _indices() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.sampled_from([A, B, C]), st.integers(-9, 40).map(index))

    def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        linear = st.builds(
            Binary,
            st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MIN, BinaryOp.MAX]),
            inner,
            inner,
        )
        constant = st.integers(1, 24).map(index)
        scaled = st.builds(
            Binary, st.sampled_from([BinaryOp.MUL, BinaryOp.DIV, BinaryOp.MOD]), inner, constant
        )
        comparison = st.builds(
            Binary,
            st.sampled_from([BinaryOp.LT, BinaryOp.LE, BinaryOp.EQ, BinaryOp.NE]),
            inner,
            inner,
        )
        return st.one_of(linear, scaled, scaled, st.builds(Select, comparison, inner, inner))

    return st.recursive(leaves, extend, max_leaves=12)


@settings(max_examples=300, deadline=None)
@given(_indices(), st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.data())
def test_the_canonical_form_has_the_same_value_within_the_bounds(expr, a, b, c, data):
    ranges = {"a": a, "b": b, "c": c}
    compared = Binary(
        data.draw(st.sampled_from([BinaryOp.LT, BinaryOp.LE, BinaryOp.EQ])), expr, index(3)
    )
    canonical, condition = simplify(expr, ranges), simplify(compared, ranges)
    low, high = bounds(expr, ranges)
    for point in itertools.product(range(a), range(b), range(c)):
        env = dict(zip("abc", point, strict=True))
        value = _value(expr, env)
        assert _value(canonical, env) == value
        assert _value(condition, env) == _value(compared, env)
        assert low <= value <= high


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (_e(_e(_e(A, "*", 16), "+", B), "//", 16), A),
        (_e(_e(_e(A, "*", 16), "+", B), "%", 16), B),
        (_e(_e(_e(A, "//", 7), "*", 7), "+", _e(A, "%", 7)), A),
        (_e(_e(_e(A, "//", 7), "*", 112), "+", _e(_e(A, "%", 7), "*", 16)), _e(A, "*", 16)),
        (_e(_e(_e(A, "//", 2), "//", 5), "%", 100), _e(A, "//", 10)),
        (_e(_e(_e(_e(A, "*", 32), "+", _e(C, "*", 16)), "+", B), "<", 48),
         _e(_e(_e(A, "*", 2), "+", C), "<", 3)),
        (_e(B, "<", 16), Const(True, DType.BOOL)),
        (_e(_e(B, "+", 1), "<=", 0), Const(False, DType.BOOL)),
    ],
)  # fmt: skip
def test_forms_that_schedules_rely_on(expr, expected):
    assert simplify(expr, {"a": 40, "b": 16, "c": 2}) == expected


def test_chunks_of_an_open_image_that_hold_rows_of_it():
    width = dim("w", 1, 9)
    walk = _e(_e(C, "*", 64), "+", A)
    ranges = {"c": width * 24, "a": 64}
    assert simplify(_e(walk, "//", width * 512), ranges) == _e(C, "//", width * 8)
    within = _e(A, "+", _e(_e(C, "%", width * 8), "*", 64))
    assert simplify(_e(walk, "%", width * 512), ranges) == within


@given(st.sampled_from([1, 2, 4]), st.sampled_from([8, 16]), st.integers(1, 200), st.integers(0, 7))
def test_behind_whole_blocks_of_an_open_extent_a_block_stays_in_its_panel(count, block, n, lane):
    """The lanes of the last, partly filled block, which begins at a multiple of an open size."""
    extent = dim("n", 1, 1 << 16, 128)
    at = _e(_e(index(block * (extent // block)), "+", Var("a")), "//", count * block)
    form = simplify(at, {"a": 8})
    assert "a" not in variables(form)
    assert evaluate(extent_of(form), {"n": n}) == (block * (n // block) + lane) // (count * block)


def test_flattened_pixels_of_a_line_number_are_the_line_number():
    line = Binary(BinaryOp.ADD, _e(A, "*", 3), B)
    q = _e(line, "//", 2)
    channel = _e(q, "//", 9)
    row, column = _e(_e(q, "//", 3), "%", 3), _e(q, "%", 3)
    address = _e(_e(channel, "*", 9 * 32), "+", _e(row, "*", 3 * 32))
    address = _e(_e(address, "+", _e(column, "*", 32)), "+", _e(_e(line, "%", 2), "*", 16))
    assert simplify(address, {"a": 100, "b": 3}) == _e(_e(A, "*", 48), "+", _e(B, "*", 16))


@pytest.mark.parametrize("shape", [(7, 14, 14), (8, 40, 15), (32, 28, 28), (5, 20, 12), (2, 5, 7)])
@pytest.mark.parametrize("width", [8, 64])
def test_axes_walked_as_one_give_the_address_of_the_walk(shape, width):
    depth, height, length = shape
    walk = _e(_e(C, "*", width), "+", A)
    image, row = height * length, length
    planes = _e(_e(walk, "//", image), "*", image)
    rows = _e(_e(_e(walk, "%", image), "//", row), "*", row)
    address = _e(_e(planes, "+", rows), "+", _e(walk, "%", row))
    ranges = {"c": depth * image // width, "a": width}
    assert affine(address, ranges) == affine(walk, ranges)


def test_a_sum_around_a_division_is_divided_at_once():
    nested = _e(_e(_e(A, "*", 14), "+", _e(B, "//", 6)), "//", 3)
    assert simplify(nested, {"a": 9, "b": 50}) == _e(_e(_e(A, "*", 84), "+", B), "//", 18)
    digits = _e(_e(nested, "*", 3), "+", _e(nested.left, "%", 3))
    assert simplify(digits, {"a": 9, "b": 50}) == _e(_e(A, "*", 14), "+", _e(B, "//", 6))


def test_affine_names_coefficients_and_refuses_what_is_not():
    expr = _e(_e(A, "*", 3), "-", _e(B, "-", 5))
    assert affine(expr, {"a": 4, "b": 4}) == ({"a": 3, "b": -1}, 5)
    assert affine(_e(A, "//", 3), {"a": 7}) is None


def test_facts_bound_an_atom_within_a_branch():
    digit = _e(A, "%", 5)
    tight = Simplifier({"a": 20}, {digit: (4, 4)})
    assert tight.simplify(_e(_e(digit, "*", 8), "+", B)) == _e(B, "+", 32)
    assert Simplifier({"a": 20}, {digit: (0, 3)}).truth(_e(digit, "<", 4)) is True


def test_a_condition_on_numbers_alone_teaches_nothing():
    simplifier = Simplifier({"i": 8})
    assert simplifier.knowing({}, 0, 0) is simplifier


def test_a_known_sum_bounds_its_multiples_and_what_they_stand_in():
    total = _e(_e(A, "*", 3), "+", B)
    simplifier = Simplifier({"a": 2, "b": 3, "c": 3})
    for low, high in ((0, 3), (2, 2), (4, 5)):
        inside = simplifier.knowing(
            simplifier.linear(_e(total, "*", -2)).terms, -2 * high, -2 * low
        )
        assert inside.bounds(total) == (low, high)
        assert inside.bounds(_e(_e(total, "*", 3), "+", _e(C, "+", 7))) == (
            3 * low + 7,
            3 * high + 9,
        )
        assert inside.bounds(_e(C, "-", total)) == (-high, 2 - low)
        assert inside.bounds(_e(A, "-", B)) == (-2, 1)  # This is not a multiple of the sum.
        again = inside.knowing(simplifier.linear(_e(total, "*", 5)).terms, 5 * low, 5 * low + 4)
        assert again.bounds(total) == (low, low)
        assert again.simplify(_e(_e(total, "*", 2), "+", C)) == again.simplify(_e(C, "+", 2 * low))


def test_an_atom_with_a_value_tells_of_the_sums_it_stands_in():
    simplifier = Simplifier({"a": 9, "b": 9, "c": 9})
    fewer = simplifier.knowing({A: 1, B: -1}, -8, -1).knowing({A: 1, B: 2, C: -1}, 3, 30)  # a < b
    inside = fewer.knowing({A: -2}, -10, -10)
    assert inside.bounds(A) == (5, 5)
    assert inside.bounds(B) == (6, 8)
    assert inside.truth(_e(B, "<", 6)) is False
    assert inside.bounds(_e(_e(B, "*", 2), "-", C)) == (4, 16)
    last = inside.knowing({B: 1}, 7, 7)
    assert last.bounds(C) == (0, 8)
    assert last.knowing({C: 1}, 8, 8).simplify(_e(_e(A, "+", B), "+", C)) == index(20)
    assert fewer.truth(_e(B, "<", 6)) is None


def test_what_a_loop_shortens_or_a_branch_knows_is_known_there_alone():
    total = _e(_e(_e(A, "*", 4), "+", B), "//", 4)
    simplifier = Simplifier({"a": 5})
    inside = simplifier.over({"b": 4})
    assert inside is simplifier
    assert inside.simplify(total) == A
    longer = inside.over({"b": 5})
    assert longer.simplify(total) != A
    assert longer.over({"b": 5}) is longer
    assert longer.over({"b": 1}).simplify(total) == A
    assert longer.over({"b": 1}).simplify(B) == index(0)
    assert longer.knowing({B: 1}, 4, 4).simplify(total) == _e(A, "+", 1)
    assert inside.simplify(total) == A
    assert inside.knowing({A: 1}, 2, 2).simplify(total) == index(2)
    doubled = _e(B, "*", 2)
    before = inside.linear(doubled)
    assert inside.knowing({A: 1}, 2, 2).linear(doubled) is before


def test_what_an_expression_has_twice_its_canonical_form_has_so():
    buffer = Buffer("x", DType.F32, (8,))
    read = Load(buffer, (_e(_e(A, "+", 2), "-", 2),))
    chosen = Simplifier({"a": 4}).simplify(Select(_e(B, "<", C), read, Unary(UnaryOp.NEG, read)))
    plain = Load(buffer, (A,))
    assert chosen == Select(_e(B, "<", C), plain, Unary(UnaryOp.NEG, plain))
    assert chosen.then is chosen.otherwise.operand
