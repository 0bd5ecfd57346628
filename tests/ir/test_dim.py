"""Arithmetic on dims means what it means on the numbers that they stand for."""

from __future__ import annotations

import functools
import itertools
import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.ir.dim import (
    Dim,
    Extent,
    Symbol,
    Undecided,
    as_extent,
    atoms,
    bounds,
    ceildiv,
    common_factor,
    dim,
    evaluate,
    maximum,
    minimum,
    product,
    substitute,
    symbols,
    typical,
    upper,
)
from farrier.ir.instr import index
from farrier.ir.text.extents import parse_extent
from farrier.targets.llvm.extents import emit_extent

N, H, W = dim("n", 1, 8), dim("h", 1, 512, 224), dim("w", 3, 512, 224)
K = dim("k", 0, N * 100)
T, U = dim("t", 0, 9, 4), dim("u", 0, 9, 4)  # Both may be 0, as the lengths of sequences may.

_VALUES = st.fixed_dictionaries({"n": st.integers(1, 8), "h": st.integers(1, 512)}).flatmap(
    lambda v: st.fixed_dictionaries(
        {
            "n": st.just(v["n"]),
            "h": st.just(v["h"]),
            "w": st.integers(3, 512),
            "k": st.integers(0, v["n"] * 100),
        }
    )
)
_LEAVES = st.one_of(st.sampled_from([N, H, W, K]), st.integers(-9, 9))


def _binary(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    plain = st.sampled_from([operator.add, operator.sub, operator.mul, minimum, maximum])
    division = st.sampled_from([operator.floordiv, operator.mod, ceildiv])
    divisor = st.one_of(st.integers(1, 9), st.sampled_from([N, H, W * 2, H * W]))
    return st.tuples(plain, inner, inner) | st.tuples(division, inner, divisor)


_TREES = st.recursive(_LEAVES, _binary, max_leaves=6)


def _build(tree: Any) -> Extent:
    if isinstance(tree, tuple):
        function, left, right = tree
        return function(_build(left), _build(right))
    return tree


def _compute(tree: Any, values: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        function, left, right = tree
        return function(_compute(left, values), _compute(right, values))
    return evaluate(tree, values)


@given(tree=_TREES, values=_VALUES)
def test_arithmetic_is_that_of_numbers(tree: Any, values: dict[str, int]) -> None:
    extent, expected = _build(tree), _compute(tree, values)
    assert evaluate(extent, values) == expected
    low, high = bounds(extent)
    assert low <= expected <= high


@given(left=_TREES, right=_TREES, values=_VALUES)
def test_a_decided_order_holds(left: Any, right: Any, values: dict[str, int]) -> None:
    first, second = _build(left), _build(right)
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        try:
            decided = compare(first, second)
        except Undecided:
            continue
        assert decided == compare(evaluate(first, values), evaluate(second, values))


_CUT = st.recursive(
    st.one_of(st.sampled_from([T, U]), st.integers(-4, 4)),
    lambda inner: st.one_of(
        st.tuples(
            st.sampled_from([operator.add, operator.sub, minimum, maximum, minimum, maximum]),
            inner,
            inner,
        ),
        st.tuples(st.sampled_from([operator.mul, operator.floordiv]), inner, st.integers(1, 3)),
        st.tuples(st.sampled_from([operator.mul]), inner, st.sampled_from([T, U])),
    ),
    max_leaves=8,
)


@settings(max_examples=200)
@given(tree=_CUT, other=_CUT)
def test_lengths_of_what_is_cut_are_right_at_every_size(tree: Any, other: Any) -> None:
    """Forms, bounds and decisions hold for all values of the symbols, 0 among them."""
    extent, than = _build(tree), _build(other)
    low, high = bounds(extent)
    for t, u in itertools.product(range(10), repeat=2):
        values = {"t": t, "u": u}
        expected = _compute(tree, values)
        assert evaluate(extent, values) == expected
        assert low <= expected <= high
        for compare in (operator.lt, operator.le, operator.eq):
            try:
                decided = compare(extent, than) if compare is not operator.eq else extent == than
            except Undecided:
                continue
            if decided or compare is not operator.eq:
                assert decided == compare(expected, _compute(other, values))


@settings(max_examples=200)
@given(tree=_CUT)
def test_what_is_made_of_the_same_parts_is_the_same(tree: Any) -> None:
    """As a text that is read again, and as a dim whose symbols are replaced by themselves."""
    extent = _build(tree)
    assert parse_extent(str(extent), {"t": T, "u": U}) == extent
    assert (
        substitute(extent, {symbol: as_extent(symbol) for symbol in symbols((extent,))}) == extent
    )


@given(values=st.lists(_CUT, min_size=3, max_size=3), op=st.sampled_from([minimum, maximum]))
def test_extremes_commute_and_move_with_what_is_added(values: list[Any], op: Any) -> None:
    first, second, third = map(_build, values)
    assert op(first, second) == op(second, first)
    if not isinstance(first - second, Dim) or not any(map(_is_made, atoms((first, second, third)))):
        assert op(first + third, second + third) == op(first, second) + third


def _is_made(atom: Any) -> bool:
    return not isinstance(atom, Symbol)


@given(trees=st.lists(_TREES, max_size=3), values=_VALUES, factor=st.integers(1, 9))
def test_a_common_factor_divides_whatever_the_symbols(
    trees: list[Any], values: dict[str, int], factor: int
) -> None:
    extents = [_build(tree) * factor for tree in trees]
    actual = common_factor(extents)
    assert actual % factor == 0 or all(extent == 0 for extent in extents)
    assert all(evaluate(extent, values) % actual == 0 for extent in extents)


@given(tree=_TREES, values=_VALUES)
def test_substitution_is_evaluation(tree: Any, values: dict[str, int]) -> None:
    extent = _build(tree)
    numbers = {symbol: values[symbol.name] for symbol in symbols((extent,))}
    assert substitute(extent, numbers) == evaluate(extent, values)


@pytest.mark.parametrize(
    ("extent", "text"),
    [
        ((2 * H + 6) // 2, "h + 3"),
        (-(-H // 2), "(h + 1) // 2"),
        (ceildiv(H, 2), "(h + 1) // 2"),
        (N * H * W * 64 // (H * W), "64*n"),
        ((H // 2) * 2 + H % 2, "h"),
        ((N * H * 3) % N, "0"),
        ((H + 1) // 2 * W * N // ((H + 1) // 2 * W), "n"),
        ((H // 2 + 1) * W * N // ((H // 2 + 1) * W), "n"),
        ((H // 2) // 2, "h // 4"),
        ((H * 16 + 5) // 16, "h"),
        ((H * 16 + 5) % 16, "5"),
        ((H * W + 2) // W, "h"),
        (product((N, 3, H)), "3*h*n"),
        (maximum(H, 600), "600"),
        (H + (32 - H % 32) % 32, "32*((h + 31) // 32)"),
        ((32 - H % 32) % 32 // 32, "0"),
        ((H % 64 + 5) % 32, "(h + 5) % 32"),
        ((H % W * N + H % W) % W, "(n*(h % w) + h) % w"),
        (minimum(H, 100), "min(100, h)"),
        (N - N, "0"),
        (maximum(0, T - 2), "max(2, t) - 2"),
        (T - minimum(2, T), "max(2, t) - 2"),
        (minimum(T, maximum(0, T - 2)), "max(2, t) - 2"),
        (-minimum(T, maximum(0, T - 2)) + maximum(0, T - 2), "0"),
        (T - maximum(0, T - 2), "min(2, t)"),
        (maximum(0, T - 2) + minimum(2, T), "t"),
        (maximum(T, U) - minimum(T, U), "2*max(t, u) - u - t"),
        (4 - maximum(2, T), "-max(2, t) + 4"),
        (N * T - N * minimum(T, 2), "n*max(2, t) - 2*n"),
        (maximum(N * T, N * 2), "n*max(2, t)"),
        (maximum(maximum(2, T), U), "max(2, max(t, u))"),
        (maximum(U, maximum(T, 2)), "max(2, max(t, u))"),
        (minimum(T, maximum(U, 0)), "min(t, u)"),
        (minimum(minimum(T, 9), 5), "min(5, t)"),
        (maximum(0, 6 - maximum(4, T)), "max(6, t) - max(4, t)"),
        ((3 * H * W) % (6 * W), "3*w*(h % 2)"),
        ((3 * H * W) // (6 * W), "h // 2"),
        ((H * W * N + W) % (2 * W), "w*((h*n + 1) % 2)"),
    ],
)
def test_forms_are_canonical(extent: Extent, text: str) -> None:
    assert str(extent) == text


def test_what_a_remainder_leaves_divides() -> None:
    """Frames of a signal, as a model cuts them: the incomplete frame at the end is dropped
    first."""
    cut = N * (H - (H + 80) % 160 - 240)
    assert cut % (160 * N) == 0
    assert cut // (160 * N) == (H + 80) // 160 - 2
    assert ((H + 80) // 160 * 160 + (H + 80) % 160) * N == (H + 80) * N


def test_equal_forms_are_equal() -> None:
    assert (H + 1) * (W + N) == H * W + W + N * H + N
    assert hash(H + W) == hash(W + H)
    assert H != 224
    assert H != W


def test_sizes_rounded_up_again_and_again_stay_one_form() -> None:
    size = H
    for _ in range(40):
        size = size + (32 - size % 32) % 32 + 3
    assert str(size) == "32*((h + 31) // 32) + 1251"


def test_order_heeds_what_hangs_together() -> None:
    assert (H - 1) // 2 + 1 <= H
    assert K <= N * 100
    assert minimum(H, W) <= W
    # A signal resampled from 44.1 to 32 kHz has no more samples than its last whole second allows.
    assert minimum((320 * H + 440) // 441, H // 441 * 320 + 320) == (320 * H + 440) // 441
    assert (W - 2) * (W + 1 - 3) > 0
    assert N * ((W + 2) // 5) >= N
    # A quotient of a quotient loses what the inner one has lost, and no more.
    assert 2 * ((H + 1) // 2) >= 18 * ((H + 1) // 18)
    assert 18 * ((H + 17) // 18) >= 2 * ((H + 1) // 2)
    assert H + (32 - H % 32) % 32 > 31
    assert H - H % 32 + W > 2
    with pytest.raises(Undecided, match=r"h > w depends on h in 1\.\.512, w in 3\.\.512"):
        assert H > W


def test_truth_is_that_of_a_size() -> None:
    assert H
    with pytest.raises(Undecided, match="k in 0"):
        bool(K)


def test_a_range_of_one_is_a_number() -> None:
    assert dim("n", 4, 4) == 4
    with pytest.raises(ValueError, match="empty"):
        dim("n", 5, 4)


def test_typical_values() -> None:
    assert typical(N * H + 1) == 8 * 224 + 1
    assert typical(7) == 7


@given(
    tree=st.recursive(
        _LEAVES.filter(lambda leaf: not isinstance(leaf, int) or leaf > 0),
        lambda inner: st.tuples(st.sampled_from([operator.add, operator.mul]), inner, inner),
        max_leaves=5,
    ),
    values=_VALUES,
)
def test_upper_is_over_known_symbols(tree: Any, values: dict[str, int]) -> None:
    extent = _build(tree)
    limit = upper(extent, lambda symbol: symbol.name != "k")
    assert "k" not in {symbol.name for symbol in symbols((limit,))}
    assert evaluate(limit, values) >= evaluate(extent, values)


def test_a_number_is_no_index() -> None:
    assert isinstance(H, Dim)
    with pytest.raises(TypeError):
        range(H)  # type: ignore[call-overload]


def test_a_divisor_must_be_positive() -> None:
    with pytest.raises(ZeroDivisionError):
        H // 0
    with pytest.raises(Undecided, match="positive"):
        H // K


def _nested(name: str, steps: int) -> Extent:
    """Each step holds the one before it twice: as a tree it has 2 ** steps leaves."""
    extent = dim(name, 64, 1000)
    for _ in range(steps):
        extent = extent // 2 + extent
    return extent


def _calls(work: Callable[[], object]) -> int:
    """The number of calls of Python functions that some work makes."""
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "work",
    [
        lambda extent: extent // 3 + extent * 2,
        lambda extent: evaluate(extent, {symbol.name: 100 for symbol in symbols((extent,))}),
        lambda extent: substitute(extent, dict.fromkeys(symbols((extent,)), H)),
        lambda extent: list(symbols((extent,))),
        lambda extent: upper(extent, lambda symbol: False),
        lambda extent: emit_extent(extent, lambda symbol: index(1), lambda *parts: index(2)),
    ],
)
def test_what_an_extent_holds_twice_is_visited_once(work: Callable[[Extent], object]) -> None:
    first_line = work.__code__.co_firstlineno
    # No other test uses these names.
    names = {steps: f"n{first_line}_{steps}" for steps in (12, 24)}
    few, many = (_calls(functools.partial(_apply, work, names[n], n)) for n in names)
    assert many < 12 * few


def _apply(work: Callable[[Extent], object], name: str, steps: int) -> None:
    work(_nested(name, steps))


@pytest.mark.parametrize("divisor", [2, 3, 6])
@pytest.mark.parametrize(
    "extent", [maximum(T, U) - T, minimum(6, T + U) - U, minimum(T, 2) - T * U, -minimum(5, T * 3)]
)
def test_quotients_of_a_sum_and_its_negation_are_one_form(extent: Extent, divisor: int) -> None:
    """Loops are cut where a quotient says, and again where its other form would differ."""
    assert extent // divisor == -((divisor - 1 - extent) // divisor)


def test_quotients_of_one_value_are_one_extent():
    """Common factors of numerator and divisor are taken out of both."""
    assert (8 * H + 1) // 12 == (4 * H) // 6 == (2 * H) // 3
    assert (8 * H + 7) // 12 == (2 * H + 1) // 3
    assert (8 * H + 7) % 12 == (2 * H + 1) % 3 * 4 + 3
    assert (6 * H * W + 4 * N) // 10 == (3 * H * W + 2 * N) // 5


def test_what_is_doubled_and_cut_again_and_again_keeps_one_form():
    extent = T
    for _ in range(20):
        extent = minimum(4, 2 * extent)
    assert extent == 4 * minimum(1, T)
    assert maximum(3, 5 * T + U) == 2 * T + maximum(3, 3 * T + U)
    assert evaluate(minimum(4, 6 * T + 3 * U), {"t": 0, "u": 1}) == 3
