"""The tensor intrinsics of x86-64."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.intrinsics.declare import RowRegisters, TensorIntrinsic, Writer
from farrier.intrinsics.dot import Dot, EmitDot
from farrier.intrinsics.table import TableLookup
from farrier.intrinsics.tile_product import TileProduct, declared
from farrier.ir import instr
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Var
from farrier.ir.instr import Operand, Type, vector
from farrier.ir.loop import For, Function, LoopKind, Store
from farrier.ir.types import DType


def _broadcast_fma(name: str, lanes: int, feature: str) -> TensorIntrinsic:
    """Return the intrinsic c[l] = c[l] + a * b[l] for `lanes` f32 lanes, rounded once: a single
    vfmadd231ps."""
    c, a, b = (
        Buffer("c", DType.F32, (lanes,)),
        Buffer("a", DType.F32, ()),
        Buffer("b", DType.F32, (lanes,)),
    )
    lane: tuple[Expr, ...] = (Var("l"),)
    product = Binary(BinaryOp.MUL, Load(a, ()), Load(b, lane))
    update = Store(c, lane, Binary(BinaryOp.ADD, Load(c, lane), product))
    semantics = Function(name, (c, a, b), For("l", lanes, LoopKind.SERIAL, update))

    def emit(writer: Writer, operands: Sequence[Operand]) -> Operand:
        total, scalar, row = operands
        return writer.call(f"llvm.fma.v{lanes}f32", total.type, scalar, row, total)

    return TensorIntrinsic(name, semantics, frozenset({feature}), emit)


def _accumulating(instruction: str, element: str, group: int) -> EmitDot:
    """Return the emitter for a dot-product instruction that multiplies `group` neighbouring
    elements in each lane and adds the products to the lane's total."""

    def emit(writer: Writer, lanes: int, total: Operand, a: Operand, b: Operand) -> Operand:
        left, right = _as_groups(writer, vector(element, group * lanes), a, b)
        name = f"llvm.x86.{instruction}.{32 * lanes}"
        return writer.call(name, total.type, total, left, right)

    return emit


def _multiply_add_i16(
    writer: Writer, lanes: int, total: Operand, a: Operand, b: Operand
) -> Operand:
    """Emit the instructions pmaddwd and paddd, which together compute the same as vpdpwssd. pmaddwd
    adds two products of i16, which exceeds i32 only if all four factors are -32768; the sum then
    wraps around, as it does in vpdpwssd."""
    left, right = _as_groups(writer, vector("i16", 2 * lanes), a, b)
    name = f"llvm.x86.{_MULTIPLY_ADD_I16[lanes]}"
    products = writer.call(name, total.type, left, right)
    return writer.op(instr.ADD, total, products)


def _as_groups(writer: Writer, groups: Type, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Return `a` and `b` reinterpreted as vectors of the type `groups`: each of their 32-bit lanes
    is a group of narrower elements, for example four bytes."""
    return writer.bitcast(a, groups), writer.bitcast(b, groups)


_MULTIPLY_ADD_I16 = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def _i16(*values: int) -> list[Operand]:
    return [instr.number_of(instr.I16, value) for value in values]


def _load_rows(
    writer: Writer, rows: int, row_bytes: int, pointer: Operand, pitch: Operand
) -> Operand:
    name = "llvm.x86.tileloadd64.internal"
    return writer.effect(name, _TILE, *_i16(rows, row_bytes), pointer, pitch)


def _store_rows(
    writer: Writer, rows: int, row_bytes: int, pointer: Operand, pitch: Operand, value: Operand
) -> None:
    shape = _i16(rows, row_bytes)
    writer.effect("llvm.x86.tilestored64.internal", instr.VOID, *shape, pointer, pitch, value)


_TILE = vector("x86_amx")
_AMX_TILES = RowRegisters(_TILE, _load_rows, _store_rows)
_ROW_BYTES = 64  # The bytes of a row of a tile register.
# The bytes of a row of the left operand; vectors multiply shorter rows as fast.
_DEPTH_BYTES = (64, 32, 16, 8)


def _zero_rows(writer: Writer, rows: int) -> Operand:
    # Each sum is a register of its own, so none may be another's value.
    return writer.effect("llvm.x86.tilezero.internal", _TILE, *_i16(rows, _ROW_BYTES))


def _keep_awake(writer: Writer) -> None:
    """Emit one floating-point addition. A core that has executed none for 2,000 cycles takes 800
    cycles to store a tile (bench/notes/2026-11-25-bf16.md). It is inline assembly, because LLVM
    would delete an addition with an unused result."""
    add = r"vxorps $0, $0, $0\0A\09vaddss $0, $0, $0"
    writer.assembly(add, "=x", instr.F32)


def _tile_product(
    name: str, left: DType, right: DType, total: DType, instruction: str, feature: str
) -> TileProduct:
    """Return the AMX product that the instruction `instruction` computes, for up to 16 rows of 16
    totals. Products of bf16 flush subnormal numbers to zero; totals of i32 wrap around."""

    def emit(writer: Writer, rows: int, depth: int, *operands: Operand) -> Operand:
        shape = _i16(rows, _ROW_BYTES, depth * left.nbytes)
        _keep_awake(writer)
        return writer.call(f"llvm.x86.{instruction}.internal", _TILE, *shape, *operands)

    return TileProduct(
        family="amx",
        name=name,
        left=left,
        right=right,
        total=total,
        rows=range(2, 17),  # One row is a product of a vector.
        lanes=_ROW_BYTES // total.nbytes,
        depths=tuple(size // left.nbytes for size in _DEPTH_BYTES),
        group=total.nbytes // right.nbytes,
        features=frozenset({"amx_tile", feature}),
        registers=lambda rows: _AMX_TILES,
        zero=_zero_rows,
        product=emit,
    )


def _vnni(prefix: str, feature: str, lanes: tuple[int, ...]) -> tuple[Dot, Dot]:
    """Return the VNNI dot products: u8 times i8 in groups of four, and i16 in pairs. Totals wrap
    around. LLVM's intrinsics are the same for the encodings of AVX-VNNI and AVX512-VNNI."""
    bytes_of = _accumulating("avx512.vpdpbusd", "i8", 4)
    words_of = _accumulating("avx512.vpdpwssd", "i16", 2)
    u8, i8, i16, i32 = DType.U8, DType.I8, DType.I16, DType.I32
    return (
        Dot(f"{prefix}_dot_u8_i8", 4, u8, i8, i32, lanes, feature, bytes_of),
        Dot(f"{prefix}_dot_i16", 2, i16, i16, i32, lanes, feature, words_of),
    )


SSE2_DOT_I16 = Dot(
    name="sse2_dot_i16",
    group=2,
    left=DType.I16,
    right=DType.I16,
    total=DType.I32,
    lanes=(4, 8, 16),
    feature="ssse3",
    emit=_multiply_add_i16,
)
AVX512_DOT_BF16 = Dot(
    name="avx512_dot_bf16",
    group=2,
    left=DType.BF16,
    right=DType.BF16,
    total=DType.F32,
    lanes=(4, 8, 16),
    feature="avx512_bf16",
    emit=_accumulating("avx512bf16.dpbf16ps", "bf16", 2),  # The instruction rounds each sum.
)
AVX512_BROADCAST_FMA = _broadcast_fma("avx512_broadcast_fma", 16, "x86-64-v4")
AVX2_BROADCAST_FMA = _broadcast_fma("avx2_broadcast_fma", 8, "x86-64-v3")
BROADCASTS = (AVX512_BROADCAST_FMA, AVX2_BROADCAST_FMA)
TILE_PRODUCTS = (
    _tile_product("amx_dot_bf16", DType.BF16, DType.BF16, DType.F32, "tdpbf16ps", "amx_bf16"),
    _tile_product("amx_dot_u8_i8", DType.U8, DType.I8, DType.I32, "tdpbusd", "amx_int8"),
)
INTRINSICS = (*BROADCASTS, *declared(TILE_PRODUCTS))
DOTS = (  # The best first.
    AVX512_DOT_BF16,
    *_vnni("avx512", "avx512_vnni", (4, 8, 16)),
    *_vnni("avx", "avx_vnni", (4, 8)),
    SSE2_DOT_I16,
)


def _permute_bytes(writer: Writer, table: Operand, indices: Operand) -> Operand:
    """Emit a lookup in a table of 256 bytes: one vpermi2b for each half of the table, and a
    selection by bit 7 of the index. Bit 6 selects one of the two registers that vpermi2b reads."""
    places = (writer.offset(table, 64 * row) for row in range(4))
    rows = [writer.load(indices.type, place, 64, is_constant=True) for place in places]
    halves = [
        writer.call(_VPERMI2B, indices.type, rows[at], indices, rows[at + 1]) for at in (0, 2)
    ]
    is_upper = writer.icmp("slt", indices, instr.zero(indices.type))
    return writer.choose(is_upper, halves[1], halves[0])


_VPERMI2B = "llvm.x86.avx512.vpermi2var.qi.512"
TABLE_LOOKUPS = (TableLookup("avx512_vpermi2b", 64, "avx512vbmi", _permute_bytes),)


def scale(b: Writer, x: Operand, exponent: Operand, mask: Operand) -> Operand:
    """Emit x * 2 ** exponent for integral exponents, rounded once, by a single vscalefps. Lanes
    whose bit in the i16 `mask` is not set become 0."""
    rounding = instr.number_of(instr.I32, 4)  # Rounds as the control register specifies.
    name = f"llvm.x86.avx512.mask.scalef.ps.{32 * x.type.lanes}"
    return b.call(name, x.type, x, exponent, instr.zero(x.type), mask, rounding)
