"""Tensor intrinsics of x86-64."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.intrinsics.declare import RowRegisters, TensorIntrinsic, Writer
from farrier.intrinsics.dot import Dot, EmitDot
from farrier.intrinsics.table import TableLookup
from farrier.intrinsics.tile_product import TileProduct, declared
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Var
from farrier.ir.loop import For, Function, LoopKind, Store
from farrier.ir.types import DType


def _broadcast_fma(name: str, lanes: int, feature: str) -> TensorIntrinsic:
    """c[l] = c[l] + a * b[l] for `lanes` f32 lanes, rounded once: one vfmadd231ps."""
    c, a, b = (
        Buffer("c", DType.F32, (lanes,)),
        Buffer("a", DType.F32, ()),
        Buffer("b", DType.F32, (lanes,)),
    )
    lane: tuple[Expr, ...] = (Var("l"),)
    product = Binary(BinaryOp.MUL, Load(a, ()), Load(b, lane))
    update = Store(c, lane, Binary(BinaryOp.ADD, Load(c, lane), product))
    semantics = Function(name, (c, a, b), For("l", lanes, LoopKind.SERIAL, update))

    def emit(writer: Writer, operands: Sequence[str]) -> str:
        total, scalar, vector = operands
        kind = f"<{lanes} x float>"
        arguments = ((kind, scalar), (kind, vector), (kind, total))
        return writer.call(f"llvm.fma.v{lanes}f32", kind, *arguments)

    return TensorIntrinsic(name, semantics, frozenset({feature}), emit)


def _accumulating(instruction: str, element: str, group: int, sum_type: str) -> EmitDot:
    """An instruction that adds to a total the products of `group` neighbours a lane."""

    def emit(writer: Writer, lanes: int, total: str, a: str, b: str) -> str:
        sums, groups = f"<{lanes} x {sum_type}>", f"<{group * lanes} x {element}>"
        left, right = _as_groups(writer, lanes, groups, a, b)
        name = f"llvm.x86.{instruction}.{32 * lanes}"
        return writer.call(name, sums, (sums, total), (groups, left), (groups, right))

    return emit


def _multiply_add_i16(writer: Writer, lanes: int, total: str, a: str, b: str) -> str:
    """What vpdpwssd does: one pmaddwd, whose only sum beyond i32 (of four least factors) wraps
    around as well, and one paddd."""
    sums, pairs = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"
    left, right = _as_groups(writer, lanes, pairs, a, b)
    name = f"llvm.x86.{_MULTIPLY_ADD_I16[lanes]}"
    products = writer.call(name, sums, (pairs, left), (pairs, right))
    return writer.pure(f"add {sums} {total}, {products}")


def _as_groups(writer: Writer, lanes: int, groups: str, a: str, b: str) -> tuple[str, str]:
    """Operands of 32 bits a lane as vectors of their neighbours."""
    left, right = (writer.pure(f"bitcast <{lanes} x i32> {side} to {groups}") for side in (a, b))
    return left, right


_MULTIPLY_ADD_I16 = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def _i16(*values: int) -> list[tuple[str, str]]:
    return [("i16", str(value)) for value in values]


def _load_rows(writer: Writer, rows: int, row_bytes: int, pointer: str, pitch: str) -> str:
    name = "llvm.x86.tileloadd64.internal"
    return writer.effect(name, "x86_amx", *_i16(rows, row_bytes), ("ptr", pointer), ("i64", pitch))


def _store_rows(
    writer: Writer, rows: int, row_bytes: int, pointer: str, pitch: str, value: str
) -> None:
    at = ("ptr", pointer), ("i64", pitch), ("x86_amx", value)
    writer.effect("llvm.x86.tilestored64.internal", "void", *_i16(rows, row_bytes), *at)


_AMX_TILES = RowRegisters("x86_amx", _load_rows, _store_rows)
_ROW_BYTES = 64  # of a tile register
_DEPTH_BYTES = (64, 32, 16, 8)  # of a row of the left operand; vectors take fewer as fast


def _zero_rows(writer: Writer, rows: int) -> str:
    # Each total is a register of its own, so none may be another's value.
    return writer.effect("llvm.x86.tilezero.internal", "x86_amx", *_i16(rows, _ROW_BYTES))


def _keep_awake(writer: Writer) -> None:
    """One addition of floats. A core that has made none for 2,000 cycles takes 800 to store a
    tile (docs/performance.md, "bf16"); LLVM leaves out what no result depends on."""
    add = r"vxorps $0, $0, $0\0A\09vaddss $0, $0, $0"
    writer.emit(f'call float asm sideeffect "{add}", "=x"()')


def _tile_product(
    name: str, left: DType, right: DType, total: DType, instruction: str, feature: str
) -> TileProduct:
    """One instruction for up to 16 rows of 16 totals. That of bf16 flushes subnormal numbers to
    zero; sums of i32 wrap around."""

    def emit(writer: Writer, rows: int, depth: int, *operands: str) -> str:
        tiles = [("x86_amx", operand) for operand in operands]
        shape = _i16(rows, _ROW_BYTES, depth * left.nbytes)
        _keep_awake(writer)
        return writer.call(f"llvm.x86.{instruction}.internal", "x86_amx", *shape, *tiles)

    return TileProduct(
        family="amx",
        name=name,
        left=left,
        right=right,
        total=total,
        rows=range(2, 17),  # one row is a product of a vector
        lanes=_ROW_BYTES // total.nbytes,
        depths=tuple(size // left.nbytes for size in _DEPTH_BYTES),
        group=total.nbytes // right.nbytes,
        features=frozenset({"amx_tile", feature}),
        registers=lambda rows: _AMX_TILES,
        zero=_zero_rows,
        product=emit,
    )


def _vnni(prefix: str, feature: str, lanes: tuple[int, ...]) -> tuple[Dot, Dot]:
    """u8 times i8 by fours and i16 by pairs, whose sums wrap around. LLVM has one intrinsic for the
    encodings of both extensions."""
    bytes_of = _accumulating("avx512.vpdpbusd", "i8", 4, "i32")
    words_of = _accumulating("avx512.vpdpwssd", "i16", 2, "i32")
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
    emit=_accumulating("avx512bf16.dpbf16ps", "bfloat", 2, "float"),  # rounds each sum
)
AVX512_BROADCAST_FMA = _broadcast_fma("avx512_broadcast_fma", 16, "x86-64-v4")
AVX2_BROADCAST_FMA = _broadcast_fma("avx2_broadcast_fma", 8, "x86-64-v3")
BROADCASTS = (AVX512_BROADCAST_FMA, AVX2_BROADCAST_FMA)
TILE_PRODUCTS = (
    _tile_product("amx_dot_bf16", DType.BF16, DType.BF16, DType.F32, "tdpbf16ps", "amx_bf16"),
    _tile_product("amx_dot_u8_i8", DType.U8, DType.I8, DType.I32, "tdpbusd", "amx_int8"),
)
INTRINSICS = (*BROADCASTS, *declared(TILE_PRODUCTS))
DOTS = (  # the best first
    AVX512_DOT_BF16,
    *_vnni("avx512", "avx512_vnni", (4, 8, 16)),
    *_vnni("avx", "avx_vnni", (4, 8)),
    SSE2_DOT_I16,
)


def _permute_bytes(writer: Writer, table: str, indices: str) -> str:
    """A vpermi2b for each half of the table. Bit 6 of an index says which of its two registers, and
    bit 7 which half."""
    kind = "<64 x i8>"
    places = (_at(writer, table, 64 * row) for row in range(4))
    rows = [writer.pure(f"load {kind}, ptr {place}, align 64") for place in places]
    halves = [
        writer.call(_VPERMI2B, kind, (kind, rows[at]), (kind, indices), (kind, rows[at + 1]))
        for at in (0, 2)
    ]
    is_upper = writer.pure(f"icmp slt {kind} {indices}, zeroinitializer")
    return writer.pure(f"select <64 x i1> {is_upper}, {kind} {halves[1]}, {kind} {halves[0]}")


def _at(writer: Writer, pointer: str, offset: int) -> str:
    return writer.pure(f"getelementptr i8, ptr {pointer}, i64 {offset}")


_VPERMI2B = "llvm.x86.avx512.vpermi2var.qi.512"
TABLE_LOOKUPS = (TableLookup("avx512_vpermi2b", 64, "avx512vbmi", _permute_bytes),)


def scale(b: Writer, kind: str, x: str, exponent: str, lanes: int, mask: str) -> str:
    """x * 2 ** exponent of whole numbers, rounded once: one vscalefps. 0 where no bit of `mask` is
    set, an i16."""
    typed = [(kind, operand) for operand in (x, exponent, "zeroinitializer")]
    rounding = 4  # as the control register says
    name = f"llvm.x86.avx512.mask.scalef.ps.{32 * lanes}"
    return b.call(name, kind, *typed, ("i16", mask), ("i32", str(rounding)))
