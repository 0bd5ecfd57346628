"""Operators on strings as arrays of code points (`farrier/ir/strings.py`): concatenation,
splitting, change of case, lookup, regular expressions.

Operands are u32; their last axis is the width, and a shorter string is padded with zeros.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import numpy as np

from farrier.ir.dim import Extent, maximum, product
from farrier.ir.dim import number as number_of
from farrier.ir.graph import Node
from farrier.ir.strings import codes_of, fitted, strings_of
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops.builder import attributes_of
from farrier.ops.nest import LoopBuilder, Tensor, Variable
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    as_ints,
    int_attr,
    present,
    required,
    static_extents,
)
from farrier.ops.pointwise import broadcast_shapes
from farrier.ops.scalar import (
    Scalar,
    both,
    cast,
    either,
    equal,
    guarded,
    invert,
    number,
    remainder,
    unequal,
    where,
)

# A table of cases has an element for each code point, in pages. Code point plus element, modulo
# ELEMENTS, is the converted code point; a sum from LONGER on is LONGER plus the number of an entry
# of several code points. Two bits of an element mark letters that have a case, and marks that are
# ignored next to one.
PAGE = 256
LONGER, ELEMENTS = 1 << 21, 1 << 22
CASED, IGNORABLE = 1 << 30, 1 << 31
_SIGMA, _FINAL_SIGMA = ord("Σ"), ord("ς")


def _codes(types: Types, position: int) -> TensorType:
    """Return the type of an operand of code points; raises Mismatch if it is not u32 with at least
    one axis."""
    codes = required(types, position)
    if codes.dtype is not DType.U32 or not codes.rank:
        raise Mismatch(f"code points are u32 with an axis, not {codes.dtype}{list(codes.shape)}")
    return codes


def _rows(nest: LoopBuilder, position: int) -> Tensor:
    """Return an operand of code points with shape [strings, width]."""
    *shape, width = nest.shape(position)
    return nest.input(position, (product(shape), width))


def _count(nest: LoopBuilder, initial: Scalar | int = 0, name: str = "at") -> Variable:
    if isinstance(initial, int):
        initial = number(initial, DType.I64)
    return nest.variable(initial, name)


def _holds(nest: LoopBuilder, initial: Scalar | bool, name: str) -> Variable:
    return nest.variable(
        number(initial, DType.BOOL) if isinstance(initial, bool) else initial, name
    )


def _inside(at: Scalar, width: Extent) -> Scalar:
    return at < number(width, DType.I64)


def _has_character(x: Tensor, row: Scalar, at: Scalar) -> Scalar:
    """Check whether string `row` is longer than the position `at`, which is not negative."""
    return guarded(_inside(at, x.shape[-1]), unequal(x[row, at], 0))


def _fill(nest: LoopBuilder, out: Tensor, start: Scalar, width: Extent) -> None:
    """Write the empty string: `width` zeros from flat position `start` on."""
    with nest.for_(width, "lane") as lane:
        out[start + lane] = 0


# Concatenation -----------------------------------------------------------------------------------


def _concat_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, y = _codes(types, 0), _codes(types, 1)
    shape = broadcast_shapes(x.shape[:-1], y.shape[:-1])
    return (TensorType(DType.U32, (*shape, x.shape[-1] + y.shape[-1])),)


def _concat_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, y = present(arrays, 0), present(arrays, 1)
    joined = np.char.add(strings_of(x), strings_of(y))
    return (fitted(codes_of(joined), x.shape[-1] + y.shape[-1]),)


def _row_of(at: tuple[Scalar, ...], shape: Shape) -> Scalar:
    """Return the row number that an operand of shape `shape`, broadcast to the result, has at the
    result's index `at`."""
    row = number(0, DType.I64)
    for index, extent in zip(at[len(at) - len(shape) :], shape, strict=True):
        row = row * extent + (0 if extent == 1 else index)
    return row


def _concat_nest(nest: LoopBuilder, node: Node) -> None:
    first, second = _rows(nest, 0), _rows(nest, 1)
    shapes = [nest.shape(position)[:-1] for position in range(2)]
    shape = broadcast_shapes(*shapes)
    width = first.shape[-1] + second.shape[-1]
    out = nest.output(0, (product(shape) * width,))
    with nest.independent(product(shape), "string") as string:
        at = nest.unravel(string, shape)
        start = nest.let(string * width)
        _fill(nest, out, start, width)
        to = _count(nest, start, "to")
        for part, own in zip((first, second), shapes, strict=True):
            row = nest.let(_row_of(at, own), "row")
            taken = _count(nest)
            with nest.while_(_has_character(part, row, taken.value)):
                out[to.value] = part[row, taken.value]
                taken.value += 1
                to.value += 1


# Splitting ---------------------------------------------------------------------------------------


def _blanks() -> list[tuple[int, int]]:
    """Return the ranges (first, last) of code points that Python's str.split() treats as white
    space."""
    ranges: list[tuple[int, int]] = []
    for code in (c for c in range(0x3001) if chr(c).isspace()):
        first = ranges.pop()[0] if ranges and ranges[-1][1] == code - 1 else code
        ranges.append((first, code))
    return ranges


_BLANKS = _blanks()


def _split(x: Array, attrs: Attrs) -> list[list[str]]:
    """Return the substrings that StringSplit produces for each string."""
    delimiter = "".join(map(chr, as_ints(attrs["delimiter"]))) or None
    most = int_attr(attrs, "maxsplit")
    return [text.split(delimiter, most) for text in strings_of(x).reshape(-1).tolist()]


def _count_pieces_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    """Infer the type of the number of substrings of each string. The attribute `delimiter` is a
    list of code points; if it is empty, strings are split at runs of white space."""
    return (TensorType(DType.I64, _codes(types, 0).shape[:-1]),)


def _count_pieces_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    counts = np.array([len(pieces) for pieces in _split(x, attrs)], np.int64)
    return (counts.reshape(x.shape[:-1]),)


def _count_pieces_nest(nest: LoopBuilder, node: Node) -> None:
    x, attrs = _rows(nest, 0), attributes_of(node)
    counts = nest.output(0, (x.shape[0],))
    with nest.for_(x.shape[0], "row") as row:
        pieces = _count(nest, name="found")
        with _pieces(nest, attrs, x, row):
            pieces.value += 1
        counts[row] = pieces.value


def _split_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    """Infer the type of the substrings, [..., count, width]: the first `count` (operand 1) of each
    string, padded with empty strings."""
    *shape, width = _codes(types, 0).shape
    (most,) = static_extents(types, constants, 1, "number of pieces") or (0,)
    return (TensorType(DType.U32, (*shape, most, width)),)


def _split_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, most = present(arrays, 0), int(present(arrays, 1).item())
    shape, width, pieces = x.shape[:-1], x.shape[-1], _split(x, attrs)
    padded = np.zeros((len(pieces), most), f"U{width}")
    for row, strings in enumerate(pieces):
        padded[row, : len(strings)] = strings[:most]
    return (fitted(codes_of(padded), width).reshape(*shape, most, width),)


def _split_nest(nest: LoopBuilder, node: Node) -> None:
    x, attrs = _rows(nest, 0), attributes_of(node)
    strings, width = x.shape
    (most,) = nest.extents(1)
    out = nest.output(0, (strings * most * width,))
    with nest.independent(strings, "row") as row:
        first = nest.let(row * (most * width))
        _fill(nest, out, first, most * width)
        place = _count(nest, first, "place")
        with _pieces(nest, attrs, x, row) as (start, end):
            taken = _count(nest, start)
            with nest.while_(both(taken.value < end, place.value < first + most * width)):
                out[place.value + taken.value - start] = x[row, taken.value]
                taken.value += 1
            place.value += number(width, DType.I64)


@contextlib.contextmanager
def _pieces(
    nest: LoopBuilder, attrs: Attrs, x: Tensor, row: Scalar
) -> Iterator[tuple[Scalar, Scalar]]:
    """Run the block for each substring into which a string is split, and pass it the start and the
    end of the substring."""
    delimiter, most = as_ints(attrs["delimiter"]), int_attr(attrs, "maxsplit")
    start, end, splits = (_count(nest, name=name) for name in ("start", "end", "splits"))

    def skip_blanks() -> None:
        with nest.while_(guarded(_has_character(x, row, start.value), is_blank(start.value))):
            start.value += 1

    def is_blank(at: Scalar) -> Scalar:
        code = x[row, at]
        tests = (both(code >= low, code <= high) for low, high in _BLANKS)
        return functools.reduce(either, tests)

    def is_delimiter(at: Scalar) -> Scalar:
        """Check whether the delimiter begins at `at`. It is compared one character at a time, so
        that nothing beyond the end of the string is read."""
        last = at + (len(delimiter) - 1)
        matches: Scalar = equal(x[row, last], delimiter[-1])
        for position in reversed(range(len(delimiter) - 1)):
            matches = guarded(equal(x[row, at + position], delimiter[position]), matches)
        return guarded(_inside(last, x.shape[-1]), matches)

    def ends_piece(at: Scalar) -> Scalar:
        is_end = is_delimiter(at) if delimiter else is_blank(at)
        return is_end if most < 0 else guarded(splits.value < most, is_end)

    if not delimiter:
        skip_blanks()
    more = _holds(nest, True if delimiter else _has_character(x, row, start.value), "more")
    with nest.while_(more.value):
        end.value = start.value
        with nest.while_(guarded(_has_character(x, row, end.value), invert(ends_piece(end.value)))):
            end.value += 1
        yield start.value, end.value
        splits.value += 1
        if delimiter:
            more.value = _has_character(x, row, end.value)
            start.value = end.value + len(delimiter)
        else:
            start.value = end.value
            skip_blanks()
            more.value = _has_character(x, row, start.value)


# Case --------------------------------------------------------------------------------------------


def _case_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    """Infer the type of a change of case with the operands (x, pages, elements, longer). The
    attribute `to` is "lower" or "upper".

    The table entry of a code point is elements[pages[code // PAGE], code % PAGE], or 0 if there is
    no such page. For a code point that becomes several code points, the entry is the number of a
    row of `longer`, which lists them.
    """
    x, pages, elements, longer = (_codes(types, position) for position in range(4))
    if attrs.get("to") not in ("lower", "upper"):
        raise Mismatch(f"the case {attrs.get('to')!r}")
    if (pages.rank, elements.rank, longer.rank) != (1, 2, 2) or elements.shape[1] != PAGE:
        raise Mismatch(f"tables of {pages.shape}, {elements.shape} and {longer.shape}")
    return (TensorType(DType.U32, (*x.shape[:-1], x.shape[-1] * longer.shape[-1])),)


def _case_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, longer = present(arrays, 0), present(arrays, 3)
    change = np.char.lower if attrs["to"] == "lower" else np.char.upper
    return (fitted(codes_of(change(strings_of(x))), x.shape[-1] * longer.shape[-1]),)


def _case_nest(nest: LoopBuilder, node: Node) -> None:
    x, pages, elements, longer = _rows(nest, 0), nest.input(1), nest.input(2), nest.input(3)
    strings, width = x.shape
    parts = number_of(longer.shape[-1])
    out = nest.output(0, (strings, width * parts))

    def element(code: Scalar) -> Scalar:
        page = code / PAGE
        entry = elements[cast(pages[page], DType.I64), remainder(code, PAGE)]
        return where(page < pages.shape[0], entry, 0)

    def character(row: Scalar, at: Scalar) -> Scalar:
        return nest.let(cast(x[row, at], DType.I64), "code")

    def is_near(row: Scalar, at: Scalar, step: int) -> Scalar:
        """Check whether the nearest character in direction `step` (1 or -1) that is not
        case-ignorable is a cased letter."""
        near = _count(nest, at + step, "near")
        looks = _holds(nest, True, "looks")
        is_cased = _holds(nest, False, "found")
        with nest.while_(looks.value):
            looks.value = False
            there = guarded(near.value >= 0, _has_character(x, row, near.value))
            with nest.if_(there):
                said = nest.let(element(character(row, near.value)))
                with nest.if_(said >= IGNORABLE):
                    near.value += step
                    looks.value = True
                with nest.else_():
                    is_cased.value = said >= CASED
        return is_cased.value

    with nest.for_(strings, "row") as row:
        with nest.for_(width * parts, "lane") as lane:
            out[row, lane] = 0
        at, to = _count(nest), _count(nest, name="to")
        with nest.while_(_has_character(x, row, at.value)):
            code = character(row, at.value)
            changed = nest.let(remainder(code + cast(element(code), DType.I64), ELEMENTS))
            with nest.if_(changed < LONGER):
                out[row, to.value] = cast(changed, DType.U32)
                to.value += 1
            with nest.else_():
                line = nest.let(changed - LONGER)
                for part in range(parts):
                    with nest.if_(unequal(longer[line, part], 0)):
                        out[row, to.value] = longer[line, part]
                        to.value += 1
            if node.attr("to") == "lower":
                with nest.if_(equal(code, _SIGMA)):
                    before = nest.let(is_near(row, at.value, -1))
                    behind = nest.let(is_near(row, at.value, 1))
                    with nest.if_(both(before, invert(behind))):
                        out[row, to.value - 1] = _FINAL_SIGMA
            at.value += 1


# Tables ------------------------------------------------------------------------------------------


def _find_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    """Infer the type of a lookup with operands (x, keys): the index of the key that equals each
    string of x, or the number of keys if none does. Keys are sorted and distinct. Strings of
    different widths are compared without the padding zeros."""
    x, keys = required(types, 0), required(types, 1)
    if x.dtype is not keys.dtype or not x.dtype.is_integer or not x.rank or keys.rank != 2:
        raise Mismatch(f"keys {keys.dtype}{list(keys.shape)} for {x.dtype}{list(x.shape)}")
    return (TensorType(DType.I64, x.shape[:-1]),)


def _find_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, keys = present(arrays, 0), present(arrays, 1)
    width = max(x.shape[-1], keys.shape[-1])
    places = {row.tobytes(): place for place, row in enumerate(_filled(keys, width))}
    rows = _filled(x, width).reshape(-1, width)
    indices = [places.get(row.tobytes(), len(keys)) for row in rows]
    return (np.array(indices, np.int64).reshape(x.shape[:-1]),)


def _filled(rows: Array, width: int) -> Array:
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, width - rows.shape[-1])])


def _find_nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops: a binary search for each string among the sorted keys."""
    x, keys = _rows(nest, 0), nest.input(1)
    strings, width = x.shape
    count = keys.shape[0]
    out = nest.output(0, (strings,))
    longest = maximum(width, keys.shape[1])

    def element(t: Tensor, row: Scalar, at: Scalar) -> Scalar:
        return where(_inside(at, t.shape[1]), t[row, at], 0)

    def compared(key: Scalar, row: Scalar) -> tuple[Scalar, Scalar]:
        """Check whether the key is less than the string of `row`, and whether both are equal."""
        at = _count(nest)
        left, right = (nest.variable(number(0, x.dtype), name) for name in ("key", "own"))
        goes = _holds(nest, True, "goes")
        with nest.while_(goes.value):
            left.value, right.value = element(keys, key, at.value), element(x, row, at.value)
            at.value += 1
            goes.value = both(equal(left.value, right.value), _inside(at.value, longest))
        return left.value < right.value, equal(left.value, right.value)

    with nest.for_(strings, "row") as row:
        low, high = _count(nest, name="low"), _count(nest, number(count, DType.I64), "high")
        with nest.while_(low.value < high.value):
            middle = nest.let((low.value + high.value) / 2)
            is_less, _ = compared(middle, row)
            with nest.if_(is_less):
                low.value = middle + 1
            with nest.else_():
                high.value = middle
        out[row] = count
        with nest.if_(_inside(low.value, count)):
            _, is_same = compared(low.value, row)
            with nest.if_(is_same):
                out[row] = low.value


# Automata ----------------------------------------------------------------------------------------


def _match_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    """Infer the type of a match by a finite automaton with operands (x, starts, next, accepts): a
    bool for each string. `starts` are the sorted first code points of character ranges, beginning
    with 0. next[state, range] is the state after a character of the range, or -1 if no match is
    possible any more. State 0 is the initial one, and accepts[state] marks accepting states."""
    x, starts = _codes(types, 0), _codes(types, 1)
    following, accepts = required(types, 2), required(types, 3)
    if following.shape != (*accepts.shape, *starts.shape) or accepts.rank != 1:
        raise Mismatch(f"tables of {starts.shape}, {following.shape} and {accepts.shape}")
    return (TensorType(DType.BOOL, x.shape[:-1]),)


def _match_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, starts, following, accepts = (present(arrays, position) for position in range(4))
    states = np.zeros(x.shape[:-1], np.int64)
    for codes in np.moveaxis(x, -1, 0):
        place = np.searchsorted(starts, codes, side="right") - 1
        after = np.where(states < 0, -1, following[states, place])
        states = np.where(codes == 0, states, after)
    return ((states >= 0) & accepts[states],)


def _match_nest(nest: LoopBuilder, node: Node) -> None:
    x, starts, following, accepts = _rows(nest, 0), nest.input(1), nest.input(2), nest.input(3)
    (strings, _), ranges = x.shape, starts.shape[0]
    out = nest.output(0, (strings,))
    with nest.for_(strings, "row") as row:
        state, at = _count(nest, name="state"), _count(nest)
        with nest.while_(guarded(state.value >= 0, _has_character(x, row, at.value))):
            code = nest.let(x[row, at.value], "code")
            low, high = _count(nest, name="low"), _count(nest, number(ranges, DType.I64), "high")
            with nest.while_(low.value + 1 < high.value):
                middle = nest.let((low.value + high.value) / 2)
                with nest.if_(starts[middle] <= code):
                    low.value = middle
                with nest.else_():
                    high.value = middle
            state.value = cast(following[state.value, low.value], DType.I64)
            at.value += 1
        out[row] = guarded(state.value >= 0, accepts[state.value])


OPERATORS: tuple[Operator, ...] = (
    Operator("StringConcat", Kind.NEST, _concat_infer, _concat_reference, None, nest=_concat_nest),
    Operator(
        "CountPieces",
        Kind.NEST,
        _count_pieces_infer,
        _count_pieces_reference,
        None,
        nest=_count_pieces_nest,
    ),
    Operator(
        "StringSplit",
        Kind.NEST,
        _split_infer,
        _split_reference,
        None,
        frozenset({1}),
        nest=_split_nest,
    ),
    Operator("ChangeCase", Kind.NEST, _case_infer, _case_reference, None, nest=_case_nest),
    Operator("FindRow", Kind.NEST, _find_infer, _find_reference, None, nest=_find_nest),
    Operator("MatchAutomaton", Kind.NEST, _match_infer, _match_reference, None, nest=_match_nest),
)
