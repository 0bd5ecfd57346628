"""Dot products of aarch64, and products of tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from farrier.intrinsics.declare import RowRegisters, Writer
from farrier.intrinsics.dot import Dot, EmitDot
from farrier.intrinsics.tile_product import TileProduct, declared
from farrier.ir.types import DType


def _bytes(instruction: str) -> EmitDot:
    """An instruction that adds to a total the products of four bytes a lane, and wraps around. LLVM
    takes one lane of a register for a factor that is the same in every lane: of USDOT the u8
    (SUDOT), of the others, whose factors may be exchanged, the second."""

    def emit(writer: Writer, lanes: int, total: str, a: str, b: str) -> str:
        sums, groups = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
        left, right = (
            writer.pure(f"bitcast <{lanes} x i32> {side} to {groups}") for side in (a, b)
        )
        factors = (left, right) if instruction == "usdot" else (right, left)
        name = f"llvm.aarch64.neon.{instruction}.v{lanes}i32.v{4 * lanes}i8"
        return writer.call(name, sums, (sums, total), *((groups, factor) for factor in factors))

    return emit


def _pairs_of_bf16(writer: Writer, lanes: int, total: str, a: str, b: str) -> str:
    """A BFDOT. Its sums are rounded to odd and its denormals are zeros, but on processors with
    FEAT_EBF16 that are told otherwise: a sum may differ from one of f32 by an f32's rounding for
    each pair, which is far below that of bf16 operands."""
    sums, pairs = f"<{lanes} x float>", f"<{2 * lanes} x bfloat>"
    left, right = (writer.pure(f"bitcast <{lanes} x i32> {side} to {pairs}") for side in (a, b))
    name = f"llvm.aarch64.neon.bfdot.v{lanes}f32.v{2 * lanes}bf16"
    return writer.call(name, sums, (sums, total), (pairs, left), (pairs, right))


def _dot_of_bytes(left: DType, right: DType, feature: str, instruction: str) -> Dot:
    return Dot(
        name=f"neon_dot_{left.value}_{right.value}",
        group=4,
        left=left,
        right=right,
        total=DType.I32,
        lanes=(2, 4),
        feature=feature,
        emit=_bytes(instruction),
    )


DOTS = (
    _dot_of_bytes(DType.U8, DType.I8, "i8mm", "usdot"),
    _dot_of_bytes(DType.I8, DType.I8, "asimddp", "sdot"),
    _dot_of_bytes(DType.U8, DType.U8, "asimddp", "udot"),
    Dot(
        name="neon_dot_bf16",
        group=2,
        left=DType.BF16,
        right=DType.BF16,
        total=DType.F32,
        lanes=(2, 4),
        feature="bf16",
        emit=_pairs_of_bf16,
    ),
)


ROW_BYTES = 8  # of a tile that one instruction multiplies
_PAIR = "<2 x i64>"  # a register: two rows
_PAIRS = "<4 x i64>"  # two registers, as long rows of points lie, or as two tiles of lanes do


def _load_rows(writer: Writer, rows: int, row_bytes: int, pointer: str, pitch: str) -> str:
    """Two short rows are a register; rows of 16 bytes are one each."""
    at = [pointer]
    if rows > 1:
        at.append(writer.pure(f"getelementptr i8, ptr {pointer}, i64 {pitch}"))
    if row_bytes == ROW_BYTES:
        return _joined(writer, [writer.emit(f"load i64, ptr {row}, align 1") for row in at])
    first, *rest = (writer.emit(f"load {_PAIR}, ptr {row}, align 1") for row in at)
    if not rest:
        return first
    return writer.pure(f"shufflevector {_PAIR} {first}, {_PAIR} {rest[0]}, {_lanes(0, 1, 2, 3)}")


def _joined(writer: Writer, rows: Sequence[str]) -> str:
    tile = "poison"
    for place, row in enumerate(rows):
        tile = writer.pure(f"insertelement {_PAIR} {tile}, i64 {row}, i64 {place}")
    return tile


def _lanes(*numbers: int) -> str:
    return f"<{len(numbers)} x i32> <{', '.join(f'i32 {number}' for number in numbers)}>"


def _taken(writer: Writer, pairs: str, *numbers: int) -> str:
    """Two rows of two registers, as one."""
    return writer.pure(f"shufflevector {_PAIRS} {pairs}, {_PAIRS} poison, {_lanes(*numbers)}")


def _store_rows(
    writer: Writer, rows: int, row_bytes: int, pointer: str, pitch: str, value: str
) -> None:
    at = pointer
    for row in range(rows):
        if row:
            at = writer.pure(f"getelementptr i8, ptr {pointer}, i64 {pitch}")
        part = writer.pure(f"extractelement {_PAIR} {value}, i64 {row}")
        writer.put(f"store i64 {part}, ptr {at}, align 4")


_MATRIX = RowRegisters(_PAIR, _load_rows, _store_rows)


def _matrix_product(
    left: DType, right: DType, total: DType, instruction: str, operands: str, feature: str
) -> TileProduct:
    """One instruction for 2 × 2 totals of 32 bits and rows of 8 bytes, whose LLVM type is
    `operands`, or two for rows of 16. Its sums are those of the dot product of such operands."""
    totals = "<4 x float>" if total.is_float else "<4 x i32>"
    name = f"llvm.aarch64.neon.{instruction}" + ("" if total.is_float else ".v4i32.v16i8")
    neighbours = ROW_BYTES // left.nbytes

    def add(writer: Writer, *tiles: str) -> str:
        typed = [
            (kind, writer.pure(f"bitcast {_PAIR} {tile} to {kind}"))
            for kind, tile in zip((totals, operands, operands), tiles, strict=True)
        ]
        return writer.pure(f"bitcast {totals} {writer.call(name, totals, *typed)} to {_PAIR}")

    def emit(writer: Writer, rows: int, depth: int, total: str, a: str, b: str) -> str:
        if depth == neighbours:
            return add(writer, total, a, b)
        for half in (0, 1):  # of each row of a, and the tiles of b one after the other
            left = _taken(writer, a, half, half + 2)
            total = add(writer, total, left, _taken(writer, b, 2 * half, 2 * half + 1))
        return total

    return TileProduct(
        family="neon",
        name=f"neon_matrix_{left.value}_{right.value}",
        left=left,
        right=right,
        total=total,
        rows=range(2, 3),
        lanes=2,
        depths=(2 * neighbours, neighbours),
        group=neighbours,
        features=frozenset({feature}),
        registers=lambda rows: _MATRIX,
        zero=lambda writer, rows: "zeroinitializer",
        product=emit,
    )


MATRIX_PRODUCTS = (
    _matrix_product(DType.U8, DType.I8, DType.I32, "usmmla", "<16 x i8>", "i8mm"),
    _matrix_product(DType.I8, DType.I8, DType.I32, "smmla", "<16 x i8>", "i8mm"),
    _matrix_product(DType.BF16, DType.BF16, DType.F32, "bfmmla", "<8 x bfloat>", "bf16"),
)


REGISTER_BYTES = 16
_HALVES = "<8 x half>"


def _pieces(count: int) -> str:
    return f"[{count} x {_PAIR}]"


def _load_pieces(writer: Writer, rows: int, row_bytes: int, pointer: str, pitch: str) -> str:
    """Rows of whole registers, one after the other."""
    count = rows * (row_bytes // REGISTER_BYTES)
    tile, kind = "poison", _pieces(count)
    for place, at in enumerate(_places(writer, rows, row_bytes, pointer, pitch)):
        loaded = writer.emit(f"load {_PAIR}, ptr {at}, align 2")
        tile = writer.pure(f"insertvalue {kind} {tile}, {_PAIR} {loaded}, {place}")
    return tile


def _store_pieces(
    writer: Writer, rows: int, row_bytes: int, pointer: str, pitch: str, value: str
) -> None:
    kind = _pieces(rows * (row_bytes // REGISTER_BYTES))
    for place, at in enumerate(_places(writer, rows, row_bytes, pointer, pitch)):
        piece = writer.pure(f"extractvalue {kind} {value}, {place}")
        writer.put(f"store {_PAIR} {piece}, ptr {at}, align 4")


def _places(writer: Writer, rows: int, row_bytes: int, pointer: str, pitch: str) -> Iterator[str]:
    """The address of each register of each row."""
    row = pointer
    for number in range(rows):
        if number:
            row = writer.pure(f"getelementptr i8, ptr {row}, i64 {pitch}")
        yield row
        for offset in range(REGISTER_BYTES, row_bytes, REGISTER_BYTES):
            yield writer.pure(f"getelementptr i8, ptr {row}, i64 {offset}")


def _add_halves(writer: Writer, rows: int, depth: int, total: str, a: str, b: str) -> str:
    """Sums of `depth` products in half precision, added to totals of f32. The sums of all rows go
    side by side, as each waits for its last product."""
    lanes, registers = _HALF_LANES, depth // _HALF_LANES

    def halves(tile: str, count: int, place: int) -> str:
        piece = writer.pure(f"extractvalue {_pieces(count)} {tile}, {place}")
        return writer.pure(f"bitcast {_PAIR} {piece} to {_HALVES}")

    sums: list[str] = []
    for k in range(depth):
        weights = halves(b, depth, k)
        for row in range(rows):
            points = halves(a, rows * registers, row * registers + k // lanes)
            lane = _lanes(*(k % lanes,) * lanes)
            point = writer.pure(f"shufflevector {_HALVES} {points}, {_HALVES} poison, {lane}")
            if k == 0:
                sums.append(writer.pure(f"fmul {_HALVES} {weights}, {point}"))
            else:
                typed = [(_HALVES, factor) for factor in (weights, point, sums[row])]
                sums[row] = writer.call("llvm.fma.v8f16", _HALVES, *typed)
    made, kind = "poison", _pieces(2 * rows)
    for place in range(2 * rows):
        row, first = place // 2, place % 2 * 4
        part = _lanes(*range(first, first + 4))
        short = writer.pure(f"shufflevector {_HALVES} {sums[row]}, {_HALVES} poison, {part}")
        wide = writer.pure(f"fpext <4 x half> {short} to <4 x float>")
        piece = writer.pure(f"extractvalue {kind} {total}, {place}")
        before = writer.pure(f"bitcast {_PAIR} {piece} to <4 x float>")
        added = writer.pure(f"fadd <4 x float> {before}, {wide}")
        after = writer.pure(f"bitcast <4 x float> {added} to {_PAIR}")
        made = writer.pure(f"insertvalue {kind} {made}, {_PAIR} {after}, {place}")
    return made


_HALF_LANES = 8
HALF_PRODUCT = TileProduct(
    family="neon_half",
    name="neon_half_product",
    left=DType.F16,
    right=DType.F16,
    total=DType.F32,
    rows=range(2, 8),
    lanes=_HALF_LANES,
    depths=(32, 16, 8),
    group=1,
    features=frozenset({"asimdhp"}),
    registers=lambda rows: RowRegisters(_pieces(2 * rows), _load_pieces, _store_pieces),
    zero=lambda writer, rows: "zeroinitializer",
    product=_add_halves,
)
INTRINSICS = declared((*MATRIX_PRODUCTS, HALF_PRODUCT))
