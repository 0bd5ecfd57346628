"""The dot-product instructions and matrix-product instructions of aarch64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from farrier.intrinsics.declare import RowRegisters, Writer
from farrier.intrinsics.dot import Dot, EmitDot
from farrier.intrinsics.tile_product import TileProduct, declared
from farrier.ir import instr
from farrier.ir.instr import BF16, F16, F32, I8, I32, I64, Operand, Type, array_of
from farrier.ir.types import DType


def _bytes(instruction: str) -> EmitDot:
    """Return the emitter for `instruction`, a dot product that multiplies four pairs of bytes in
    each lane and adds the products to a 32-bit total, which wraps around on overflow.

    If one factor is equal in all lanes, LLVM can encode it as a single lane of a register, but only
    in certain positions: for "usdot" it must be the u8 factor (LLVM then emits SUDOT), for other
    instructions the second factor. The emitter therefore exchanges the factors of the other
    instructions.
    """

    def emit(writer: Writer, lanes: int, total: Operand, a: Operand, b: Operand) -> Operand:
        left, right = (writer.bitcast(side, I8.of(4 * lanes)) for side in (a, b))
        factors = (left, right) if instruction == "usdot" else (right, left)
        name = f"llvm.aarch64.neon.{instruction}.v{lanes}i32.v{4 * lanes}i8"
        return writer.call(name, total.type, total, *factors)

    return emit


def _pairs_of_bf16(writer: Writer, lanes: int, total: Operand, a: Operand, b: Operand) -> Operand:
    """Emit BFDOT, which rounds sums to odd and flushes denormals to zero, except on processors with
    FEAT_EBF16 in another mode. A sum may differ from the f32 sum by one f32 rounding for each pair,
    which is far less than the rounding of the bf16 operands."""
    left, right = (writer.bitcast(side, BF16.of(2 * lanes)) for side in (a, b))
    name = f"llvm.aarch64.neon.bfdot.v{lanes}f32.v{2 * lanes}bf16"
    return writer.call(name, total.type, total, left, right)


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


ROW_BYTES = 8  # The bytes of a row that one instruction multiplies.
# A register holds two rows of 8 bytes. For rows of 16 bytes, a tile takes two registers.
_PAIR = I64.of(2)


def _load_rows(
    writer: Writer, rows: int, row_bytes: int, pointer: Operand, pitch: Operand
) -> Operand:
    """Load rows `pitch` bytes apart into one register: two rows of 8 bytes, or one row of 16."""
    at = [pointer]
    if rows > 1:
        at.append(writer.offset(pointer, pitch))
    if row_bytes == ROW_BYTES:
        return _joined(writer, [writer.load(I64, row, 1) for row in at])
    first, *rest = (writer.load(_PAIR, row, 1) for row in at)
    return writer.shuffle(first, rest[0], range(4)) if rest else first


def _joined(writer: Writer, rows: Sequence[Operand]) -> Operand:
    tile: Operand = instr.poison(_PAIR)
    for place, row in enumerate(rows):
        tile = writer.insert(tile, row, place)
    return tile


def _store_rows(
    writer: Writer, rows: int, row_bytes: int, pointer: Operand, pitch: Operand, value: Operand
) -> None:
    at = pointer
    for row in range(rows):
        if row:
            at = writer.offset(pointer, pitch)
        writer.store(writer.extract(value, row), at, 4)


_MATRIX = RowRegisters(_PAIR, _load_rows, _store_rows)


def _matrix_product(
    left: DType, right: DType, total: DType, instruction: str, operands: Type, feature: str
) -> TileProduct:
    """Return the tile product that the LLVM intrinsic `instruction` computes: 2 × 2 totals of 32
    bits from rows of 8 bytes. For rows of 16 bytes, two instructions are emitted. `operands` is the
    LLVM type of both factors. The sums equal those of the dot-product instruction for the same
    dtypes."""
    totals = F32.of(4) if total.is_float else I32.of(4)
    name = f"llvm.aarch64.neon.{instruction}" + ("" if total.is_float else ".v4i32.v16i8")
    neighbours = ROW_BYTES // left.nbytes

    def add(writer: Writer, *tiles: Operand) -> Operand:
        typed = [
            writer.bitcast(tile, kind)
            for kind, tile in zip((totals, operands, operands), tiles, strict=True)
        ]
        return writer.bitcast(writer.call(name, totals, *typed), _PAIR)

    def emit(
        writer: Writer, rows: int, depth: int, total: Operand, a: Operand, b: Operand
    ) -> Operand:
        if depth == neighbours:
            return add(writer, total, a, b)
        # The first and the second 8 bytes of each row are multiplied separately.
        for half in (0, 1):
            left = writer.shuffle(a, None, (half, half + 2))
            right = writer.shuffle(b, None, (2 * half, 2 * half + 1))
            total = add(writer, total, left, right)
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
        zero=lambda writer, rows: instr.zero(_PAIR),
        product=emit,
    )


MATRIX_PRODUCTS = (
    _matrix_product(DType.U8, DType.I8, DType.I32, "usmmla", I8.of(16), "i8mm"),
    _matrix_product(DType.I8, DType.I8, DType.I32, "smmla", I8.of(16), "i8mm"),
    _matrix_product(DType.BF16, DType.BF16, DType.F32, "bfmmla", BF16.of(8), "bf16"),
)


REGISTER_BYTES = 16
_HALVES = F16.of(8)


def _load_pieces(
    writer: Writer, rows: int, row_bytes: int, pointer: Operand, pitch: Operand
) -> Operand:
    """Load `rows` rows, whose starts are `pitch` bytes apart in memory, as an array of 16-byte
    vectors in row order. `row_bytes`, the length of a row, must be a multiple of 16."""
    tile: Operand = instr.poison(array_of(_PAIR, rows * (row_bytes // REGISTER_BYTES)))
    for place, at in enumerate(_piece_addresses(writer, rows, row_bytes, pointer, pitch)):
        tile = writer.with_part(tile, writer.load(_PAIR, at, 2), place)
    return tile


def _store_pieces(
    writer: Writer, rows: int, row_bytes: int, pointer: Operand, pitch: Operand, value: Operand
) -> None:
    for place, at in enumerate(_piece_addresses(writer, rows, row_bytes, pointer, pitch)):
        writer.store(writer.part(value, place), at, 4)


def _piece_addresses(
    writer: Writer, rows: int, row_bytes: int, pointer: Operand, pitch: Operand
) -> Iterator[Operand]:
    """Yield the address of each 16-byte piece of the rows, row after row. Rows have `row_bytes`
    bytes, and start at `pointer`, `pointer + pitch`, and so on."""
    row = pointer
    for number in range(rows):
        if number:
            row = writer.offset(row, pitch)
        yield row
        for offset in range(REGISTER_BYTES, row_bytes, REGISTER_BYTES):
            yield writer.offset(row, offset)


def _add_halves(
    writer: Writer, rows: int, depth: int, total: Operand, a: Operand, b: Operand
) -> Operand:
    """Sum `depth` products in f16 for each element, then add the sums to f32 totals. Instructions
    for all rows are interleaved, as each product of a row waits for the product before it."""
    lanes, registers = _HALF_LANES, depth // _HALF_LANES

    def halves(tile: Operand, place: int) -> Operand:
        return writer.bitcast(writer.part(tile, place), _HALVES)

    sums: list[Operand] = []
    for k in range(depth):
        weights = halves(b, k)
        for row in range(rows):
            points = halves(a, row * registers + k // lanes)
            point = writer.shuffle(points, None, (k % lanes,) * lanes)
            if k == 0:
                sums.append(writer.op(instr.FMUL, weights, point))
            else:
                factors = weights, point, sums[row]
                sums[row] = writer.call("llvm.fma.v8f16", _HALVES, *factors)
    totals: Operand = instr.poison(total.type)
    for place in range(2 * rows):
        row, first = place // 2, place % 2 * 4
        short = writer.shuffle(sums[row], None, range(first, first + 4))
        wide = writer.convert(instr.FPEXT, short, F32.of(4))
        before = writer.bitcast(writer.part(total, place), F32.of(4))
        after = writer.bitcast(writer.op(instr.FADD, before, wide), _PAIR)
        totals = writer.with_part(totals, after, place)
    return totals


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
    registers=lambda rows: RowRegisters(array_of(_PAIR, 2 * rows), _load_pieces, _store_pieces),
    zero=lambda writer, rows: instr.zero(array_of(_PAIR, 2 * rows)),
    product=_add_halves,
)
INTRINSICS = declared((*MATRIX_PRODUCTS, HALF_PRODUCT))
