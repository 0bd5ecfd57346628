"""The schedule primitive `attend_fragments`: compute attention in one GPU launch with the matrix
instructions of subgroups."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from farrier.intrinsics import lookup
from farrier.intrinsics.exchanges import MASKS
from farrier.intrinsics.fragments import factor_name, own_name, put_name, zero_name
from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, ceildiv, number
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    MemoryScope,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.loop import Alloc, For, Function, Intrinsic, LoopKind, Stmt, Store, Tile
from farrier.ir.statements import block
from farrier.ir.substitute import Indices, Substitution, loads, variables
from farrier.ir.threads import SUBGROUP_SIZE
from farrier.ir.types import DType
from farrier.schedule.accesses import touches
from farrier.schedule.attend import check_rows
from farrier.schedule.launching import with_launch
from farrier.schedule.nest import NestView, allocated, outermost_block
from farrier.schedule.share_rows import Part, Rows
from farrier.schedule.subgroup_product import Declared, FragmentLaunch, as_held
from farrier.schedule.tile_product import Product, variables_of
from farrier.schedule.tiling_parts import (
    ZERO,
    digits,
    only_store,
    product_of,
    simplified,
    under,
    unrolled,
    within,
)

_Names: TypeAlias = tuple[str, str]
_EXPONENTIALS = (UnaryOp.EXP, UnaryOp.EXP_NONPOSITIVE)
_LOWEST = e.ReduceOp.MAX.identity(DType.F32)
_NOTHING = Const(0.0, DType.F32)


def attend_fragments(
    function: Function,
    first: _Names,
    between: Sequence[str],
    last: _Names,
    intrinsic: str,
    subgroups: int,
    keys: int,
) -> Function:
    """Compute two products and the softmax between them as one GPU launch, whose subgroups multiply
    fragments with matrix instructions.

    before:
        @function
        def attention(q: f16[16, 16], k: f16[16, 40], v: f16[40, 8], y: f32[16, 8]):
            with alloc(f32[16, 40] in workspace) as s:
                with alloc(f32[16] in workspace) as high:
                    with alloc(f32[16, 40] in workspace) as p:
                        with alloc(f32[16] in workspace) as t:
                            for s_init_m in serial(16):
                                for s_init_n in serial(40):
                                    s[s_init_m, s_init_n] = 0.0
                            for s_m in serial(16):
                                for s_n in serial(40):
                                    for s_k in serial(16):
                                        s[s_m, s_n] = s[s_m, s_n] + cast(f32, q[s_m, s_k]) * \
cast(f32, k[s_k, s_n])
                            for high_init_m in serial(16):
                                high[high_init_m] = -inf
                            for high_m in serial(16):
                                for high_n in serial(40):
                                    high[high_m] = max(high[high_m], s[high_m, high_n])
                            for p_m in serial(16):
                                for p_n in serial(40):
                                    p[p_m, p_n] = exp_nonpositive(s[p_m, p_n] - high[p_m])
                            for t_init_m in serial(16):
                                t[t_init_m] = 0.0
                            for t_m in serial(16):
                                for t_n in serial(40):
                                    t[t_m] = t[t_m] + p[t_m, t_n]
                            for y_init_m in serial(16):
                                for y_init_n in serial(8):
                                    y[y_init_m, y_init_n] = 0.0
                            for y_m in serial(16):
                                for y_n in serial(8):
                                    for y_k in serial(40):
                                        y[y_m, y_n] = y[y_m, y_n] + cast(f32, cast(f16, p[y_m, \
y_k] / t[y_m])) * cast(f32, v[y_k, y_n])
    after attend_fragments(("s", "s"), ("high", "p", "t"), ("y", "y"), "mma_f16", 1, 32):
        @function
        def attention(q: f16[16, 16], k: f16[16, 40], v: f16[40, 8], y: f32[16, 8]):
            for s_by in block(1):
                with alloc(f32[1, 32, 2] in register) as s_total:
                    with alloc(f32[1, 32, 2] in register) as s_scale:
                        with alloc(f32[1, 32, 2] in register) as s_base:
                            with alloc(f32[1, 32, 2] in register) as s_other:
                                with alloc(f32[1, 32, 2] in register) as s_higher:
                                    with alloc(f32[1, 32, 2] in register) as s_most:
                                        with alloc(f32[1, 32, 8] in register) as y_own:
                                            with alloc(f32[1, 32, 16] in register) as s_own:
                                                with alloc(f32[1, 1, 16, 16] in subgroup) as y_sums:
                                                    with alloc(f32[1, 2, 16, 16] in subgroup) as \
s_sums:
                                                        with alloc(f16[1, 1, 16, 16] in subgroup) \
as s_queries:
                                                            with alloc(f16[32, 16] in workgroup) \
as y_columns:
                                                                with alloc(f16[16, 32] in \
workgroup) as s_columns:
                                                                    with alloc(f16[16, 16] in \
workgroup) as s_rows:
                                                                        for s_t3 in thread(32):
                                                                            for s_turn3 in \
serial(1):
                                                                                for s_e4_0 in \
unrolled(8):
                                                                                    s_rows[s_t3 // \
2, s_t3 % 2 * 8 + s_e4_0] = q[s_t3 // 2, s_t3 % 2 * 8 + s_e4_0]
                                                                        for s_as37 in subgroup(1):
                                                                            for s_ae38 in \
unrolled(1):
                                                                                \
intrinsic('mma_f16_a', tile(s_queries[s_as37, 0, 0, 0], 2, 3), tile(s_rows[0, 0], 0, 1))
                                                                            for s_ae39 in \
unrolled(1):
                                                                                \
intrinsic('mma_f16_zero', tile(y_sums[s_as37, 0, 0, 0], 2, 3))
                                                                        for s_ag40 in thread(1):
                                                                            for s_al40 in \
thread(32):
                                                                                for s_ae41 in \
unrolled(2):
                                                                                    s_most[s_ag40, \
s_al40, s_ae41] = -inf
                                                                                    \
s_total[s_ag40, s_al40, s_ae41] = 0.0
                                                                        for s_slice in serial(2):
                                                                            for s_t0 in thread(32):
                                                                                for s_turn0 in \
serial(2):
                                                                                    if s_slice * 4 \
+ s_t0 % 4 < 5:
                                                                                        for s_e1_0 \
in unrolled(8):
                                                                                            \
s_columns[s_turn0 * 8 + s_t0 // 4, s_t0 % 4 * 8 + s_e1_0] = k[s_turn0 * 8 + s_t0 // 4, s_slice * \
32 + s_t0 % 4 * 8 + s_e1_0]
                                                                                    else:
                                                                                        for s_e2_0 \
in unrolled(8):
                                                                                            \
s_columns[s_turn0 * 8 + s_t0 // 4, s_t0 % 4 * 8 + s_e2_0] = f16(0.0)
                                                                            for y_t0 in thread(32):
                                                                                for y_turn0 in \
serial(2):
                                                                                    if y_t0 % 2 < \
1 and s_slice * 32 + y_turn0 * 16 + y_t0 // 2 < 40:
                                                                                        for y_e1_0 \
in unrolled(8):
                                                                                            \
y_columns[y_turn0 * 16 + y_t0 // 2, y_t0 % 2 * 8 + y_e1_0] = v[s_slice * 32 + y_turn0 * 16 + y_t0 \
// 2, y_t0 % 2 * 8 + y_e1_0]
                                                                                    else:
                                                                                        for y_e2_0 \
in unrolled(8):
                                                                                            \
y_columns[y_turn0 * 16 + y_t0 // 2, y_t0 % 2 * 8 + y_e2_0] = f16(0.0)
                                                                            for s_as0 in \
subgroup(1):
                                                                                for s_ae1 in \
unrolled(2):
                                                                                    \
intrinsic('mma_f16_zero', tile(s_sums[s_as0, s_ae1, 0, 0], 2, 3))
                                                                                for s_ae2 in \
unrolled(1):
                                                                                    for s_ae3 in \
unrolled(2):
                                                                                        with \
alloc(f16[1, 16, 16] in subgroup) as s_b4:
                                                                                            \
intrinsic('mma_f16_b_across', tile(s_b4[0, 0, 0], 1, 2), tile(s_columns[0, s_ae3 * 16], 0, 1))
                                                                                            \
intrinsic('mma_f16', tile(s_sums[s_as0, s_ae3, 0, 0], 2, 3), tile(s_queries[s_as0, 0, 0, 0], 2, \
3), tile(s_b4[0, 0, 0], 1, 2))
                                                                                for s_ae5 in \
unrolled(2):
                                                                                    \
intrinsic('mma_f16_own', tile(s_own[s_as0, 0, s_ae5 * 8], 1, 2), tile(s_sums[s_as0, s_ae5, 0, 0], \
2, 3))
                                                                                for s_ae6 in \
unrolled(1):
                                                                                    \
intrinsic('mma_f16_own', tile(y_own[s_as0, 0, 0], 1, 2), tile(y_sums[s_as0, 0, 0, 0], 2, 3))
                                                                            for s_ag7 in thread(1):
                                                                                for s_al7 in \
thread(32):
                                                                                    for s_ae8 in \
unrolled(2):
                                                                                        \
s_higher[s_ag7, s_al7, s_ae8] = s_most[s_ag7, s_al7, s_ae8]
                                                                                    for s_ae9 in \
unrolled(2):
                                                                                        for s_ae10 \
in unrolled(2):
                                                                                            for \
s_ae11 in unrolled(2):
                                                                                                \
for s_ae12 in unrolled(2):
                                                                                                   \
 if s_slice * 4 + s_ae9 * 2 + s_ae10 < 5:
                                                                                                   \
     s_own[s_ag7, s_al7, s_ae9 * 8 + s_ae10 * 4 + s_ae11 * 2 + s_ae12] = s_own[s_ag7, s_al7, s_ae9 \
* 8 + s_ae10 * 4 + s_ae11 * 2 + s_ae12]
                                                                                                   \
 else:
                                                                                                   \
     s_own[s_ag7, s_al7, s_ae9 * 8 + s_ae10 * 4 + s_ae11 * 2 + s_ae12] = -inf
                                                                                                   \
 s_higher[s_ag7, s_al7, s_ae11] = max(s_higher[s_ag7, s_al7, s_ae11], s_own[s_ag7, s_al7, s_ae9 * \
8 + s_ae10 * 4 + s_ae11 * 2 + s_ae12])
                                                                            for s_ag13 in thread(1):
                                                                                for s_al13 in \
thread(32):
                                                                                    \
s_other[s_ag13, s_al13, 0] = s_higher[s_ag13, bit_xor(s_al13, 1), 0]
                                                                            for s_ag14 in thread(1):
                                                                                for s_al14 in \
thread(32):
                                                                                    \
s_other[s_ag14, s_al14, 1] = s_higher[s_ag14, bit_xor(s_al14, 1), 1]
                                                                            for s_ag15 in thread(1):
                                                                                for s_al15 in \
thread(32):
                                                                                    for s_ae16 in \
unrolled(2):
                                                                                        \
s_higher[s_ag15, s_al15, s_ae16] = max(s_higher[s_ag15, s_al15, s_ae16], s_other[s_ag15, s_al15, \
s_ae16])
                                                                            for s_ag17 in thread(1):
                                                                                for s_al17 in \
thread(32):
                                                                                    \
s_other[s_ag17, s_al17, 0] = s_higher[s_ag17, bit_xor(s_al17, 2), 0]
                                                                            for s_ag18 in thread(1):
                                                                                for s_al18 in \
thread(32):
                                                                                    \
s_other[s_ag18, s_al18, 1] = s_higher[s_ag18, bit_xor(s_al18, 2), 1]
                                                                            for s_ag19 in thread(1):
                                                                                for s_al19 in \
thread(32):
                                                                                    for s_ae20 in \
unrolled(2):
                                                                                        \
s_higher[s_ag19, s_al19, s_ae20] = max(s_higher[s_ag19, s_al19, s_ae20], s_other[s_ag19, s_al19, \
s_ae20])
                                                                            for s_ag21 in thread(1):
                                                                                for s_al21 in \
thread(32):
                                                                                    for s_ae22 in \
unrolled(2):
                                                                                        \
s_base[s_ag21, s_al21, s_ae22] = 0.0 if s_higher[s_ag21, s_al21, s_ae22] == -inf else \
s_higher[s_ag21, s_al21, s_ae22]
                                                                                        \
s_scale[s_ag21, s_al21, s_ae22] = exp_nonpositive(s_most[s_ag21, s_al21, s_ae22] - s_base[s_ag21, \
s_al21, s_ae22])
                                                                                        \
s_total[s_ag21, s_al21, s_ae22] = s_total[s_ag21, s_al21, s_ae22] * s_scale[s_ag21, s_al21, s_ae22]
                                                                                        \
s_most[s_ag21, s_al21, s_ae22] = s_higher[s_ag21, s_al21, s_ae22]
                                                                                    for s_ae23 in \
unrolled(2):
                                                                                        for s_ae24 \
in unrolled(2):
                                                                                            for \
s_ae25 in unrolled(2):
                                                                                                \
for s_ae26 in unrolled(2):
                                                                                                   \
 s_own[s_ag21, s_al21, s_ae23 * 8 + s_ae24 * 4 + s_ae25 * 2 + s_ae26] = \
exp_nonpositive(s_own[s_ag21, s_al21, s_ae23 * 8 + s_ae24 * 4 + s_ae25 * 2 + s_ae26] - \
s_base[s_ag21, s_al21, s_ae25])
                                                                                                   \
 s_total[s_ag21, s_al21, s_ae25] = s_total[s_ag21, s_al21, s_ae25] + s_own[s_ag21, s_al21, s_ae23 \
* 8 + s_ae24 * 4 + s_ae25 * 2 + s_ae26]
                                                                                    for s_ae27 in \
unrolled(1):
                                                                                        for s_ae28 \
in unrolled(2):
                                                                                            for \
s_ae29 in unrolled(2):
                                                                                                \
for s_ae30 in unrolled(2):
                                                                                                   \
 y_own[s_ag21, s_al21, s_ae28 * 4 + s_ae29 * 2 + s_ae30] = y_own[s_ag21, s_al21, s_ae28 * 4 + \
s_ae29 * 2 + s_ae30] * s_scale[s_ag21, s_al21, s_ae29]
                                                                            for s_as31 in \
subgroup(1):
                                                                                for s_ae32 in \
unrolled(1):
                                                                                    \
intrinsic('mma_f16_put', tile(y_sums[s_as31, 0, 0, 0], 2, 3), tile(y_own[s_as31, 0, 0], 1, 2))
                                                                                for s_ae33 in \
unrolled(2):
                                                                                    with \
alloc(f16[1, 16, 16] in subgroup) as s_a34:
                                                                                        \
intrinsic('mma_f16_factor', tile(s_a34[0, 0, 0], 1, 2), tile(s_own[s_as31, 0, s_ae33 * 8], 1, 2))
                                                                                        for s_ae35 \
in unrolled(1):
                                                                                            with \
alloc(f16[1, 16, 16] in subgroup) as s_b36:
                                                                                                \
intrinsic('mma_f16_b_across', tile(s_b36[0, 0, 0], 1, 2), tile(y_columns[s_ae33 * 16, 0], 0, 1))
                                                                                                \
intrinsic('mma_f16', tile(y_sums[s_as31, 0, 0, 0], 2, 3), tile(s_a34[0, 0, 0], 1, 2), \
tile(s_b36[0, 0, 0], 1, 2))
                                                                        for s_ag42 in thread(1):
                                                                            for s_al42 in \
thread(32):
                                                                                s_other[s_ag42, \
s_al42, 0] = s_total[s_ag42, bit_xor(s_al42, 1), 0]
                                                                        for s_ag43 in thread(1):
                                                                            for s_al43 in \
thread(32):
                                                                                s_other[s_ag43, \
s_al43, 1] = s_total[s_ag43, bit_xor(s_al43, 1), 1]
                                                                        for s_ag44 in thread(1):
                                                                            for s_al44 in \
thread(32):
                                                                                for s_ae45 in \
unrolled(2):
                                                                                    \
s_total[s_ag44, s_al44, s_ae45] = s_total[s_ag44, s_al44, s_ae45] + s_other[s_ag44, s_al44, s_ae45]
                                                                        for s_ag46 in thread(1):
                                                                            for s_al46 in \
thread(32):
                                                                                s_other[s_ag46, \
s_al46, 0] = s_total[s_ag46, bit_xor(s_al46, 2), 0]
                                                                        for s_ag47 in thread(1):
                                                                            for s_al47 in \
thread(32):
                                                                                s_other[s_ag47, \
s_al47, 1] = s_total[s_ag47, bit_xor(s_al47, 2), 1]
                                                                        for s_ag48 in thread(1):
                                                                            for s_al48 in \
thread(32):
                                                                                for s_ae49 in \
unrolled(2):
                                                                                    \
s_total[s_ag48, s_al48, s_ae49] = s_total[s_ag48, s_al48, s_ae49] + s_other[s_ag48, s_al48, s_ae49]
                                                                        for s_as50 in subgroup(1):
                                                                            for s_ae51 in \
unrolled(1):
                                                                                \
intrinsic('mma_f16_own', tile(y_own[s_as50, 0, 0], 1, 2), tile(y_sums[s_as50, 0, 0, 0], 2, 3))
                                                                        for s_ag52 in thread(1):
                                                                            for s_al52 in \
thread(32):
                                                                                for s_ae53 in \
unrolled(1):
                                                                                    for s_ae54 in \
unrolled(2):
                                                                                        for s_ae55 \
in unrolled(2):
                                                                                            for \
s_ae56 in unrolled(2):
                                                                                                if \
s_ae54 < 1:
                                                                                                   \
 y[s_al52 // 4 + s_ae55 * 8, s_al52 % 4 * 2 + s_ae54 * 8 + s_ae56] = y_own[s_ag52, s_al52, s_ae54 \
* 4 + s_ae55 * 2 + s_ae56] / s_total[s_ag52, s_al52, s_ae55]

    The names are those of `attend`. Each subgroup computes the rows of scores of one row of
    fragments. A block goes through the columns of the scores (keys) in slices of
    `keys`, whose factors it copies to workgroup memory, and never holds whole rows (online softmax:
    M. Milakov, N. Gimelshein, arXiv:1805.02867). The threads of a subgroup have the scores in
    registers, and for each row the maximum and the sum of the exponentials so far. If a slice
    raises the maximum, the sums of the last product are scaled accordingly. The exponentials are
    rounded to the type of the factors, and become a factor of the last product in the registers in
    which they are; the division by their sum comes last.
    """
    nest = NestView(function, "attend_fragments")
    return _Attention(nest, first, between, last, intrinsic, subgroups, keys).function()


@dataclasses.dataclass(frozen=True)
class _Softmax:
    """The softmax between the products. Its results are exponentials times `share` (divided by it
    if `divides`), which is an expression of the buffer `sum`. `score` is what the exponentials are
    of, before the maximum is subtracted, at the element `_row(0), _row(1), …, _KEY`."""

    score: Expr
    sum: str
    share: Expr
    divides: bool

    @classmethod
    def of(cls, nest: NestView, rows: Rows, product: Product, extent: Extent) -> _Softmax:
        """Return the softmax that the nests `rows` compute and `product` reads; fail if they
        compute something else."""
        if len(rows.parts) < 3:
            nest.fail("no softmax stands between the products")
        highest, power, total, *rest = rows.parts
        score, summed = _operand(highest, BinaryOp.MAX), _operand(total, BinaryOp.ADD)
        own = _element(power)
        if score is None or summed != own or power.first is not None:
            nest.fail(f"{own.buffer.name} is not summed after its maximum is subtracted")
        if _of_element(power, power.store.value) not in [
            Unary(op, Binary(BinaryOp.SUB, score, _element(highest))) for op in _EXPONENTIALS
        ]:
            nest.fail(f"{own.buffer.name} is not an exponential of {highest.store.buffer.name}")
        if not all(_length(part) == extent for part in (highest, power, total)):
            nest.fail(f"the rows of {own.buffer.name} are others")
        stored = {part.store.buffer.name: part for part in rest}
        weights = _of_rows(product, _resolved(as_held(as_held(product.rows.value)), stored))
        reader, name = product.total.name, total.store.buffer.name
        if not isinstance(weights, Binary) or weights.op not in (BinaryOp.MUL, BinaryOp.DIV):
            nest.fail(f"{reader} does not read exponentials over their sum")
        read = {load.buffer.name for load in loads(weights.right)}
        if weights.left != own or read != {name}:
            nest.fail(f"{reader} does not read {own.buffer.name} over {name}")
        return cls(score, name, weights.right, weights.op is BinaryOp.DIV)


_KEY = Var("key")


def _row(axis: int) -> Var:
    return Var(f"row{axis}")


def _length(part: Part) -> Extent:
    return part.inner[0][1] if len(part.inner) == 1 else 0


def _of_element(part: Part, value: Expr) -> Expr:
    """Return an expression of the loops of a nest at the element `_row(0), _row(1), …, _KEY`."""
    named: dict[str, Expr] = dict.fromkeys(variables(value), ZERO)  # Loops of one iteration.
    named |= {name: _row(axis) for axis, name in enumerate(part.rows)}
    named |= {name: _KEY for name, _ in part.inner}
    return Substitution(named).expr(value)


def _element(part: Part) -> Load:
    """Return the load of what a nest stores."""
    load = _of_element(part, Load(part.store.buffer, part.store.indices))
    assert isinstance(load, Load)
    return load


def _of_rows(product: Product, value: Expr) -> Expr:
    """Return an expression of the loops of a product at `_row(0), _row(1), …, _KEY`, as
    `_of_element` does for a nest."""
    axes = (*product.batch, *product.rows.axes)
    rows = [name for name, extent in axes if extent != 1]
    named: dict[str, Expr] = dict.fromkeys(variables(value), ZERO)
    named |= {name: _row(axis) for axis, name in enumerate(rows)}
    named |= {name: _KEY for name, extent in product.sums if extent != 1}
    return Substitution(named).expr(value)


def _operand(part: Part, op: BinaryOp) -> Expr | None:
    """Return the expression that a reduction joins by `op`; None if the nest is another
    statement."""
    value = part.store.value
    if part.first is None or not isinstance(value, Binary) or value.op is not op:
        return None
    return _of_element(part, value.right)


def _resolved(value: Expr, parts: Mapping[str, Part]) -> Expr:
    """Return an expression in which the stored value of a nest replaces each load of its buffer.
    The nests are in `parts`, by the names of their buffers."""

    def read(part: Part) -> Callable[[Indices], Expr]:
        def stored(indices: Indices) -> Expr:
            named: dict[str, Expr] = dict.fromkeys(variables(part.store.value), ZERO)
            for own, index in zip(part.store.indices, indices, strict=True):
                named |= {own.name: index} if isinstance(own, Var) else {}
            return _resolved(Substitution(named).expr(part.store.value), parts)

        return stored

    return Substitution(reads={name: read(part) for name, part in parts.items()}).expr(value)


class _Attention:
    """The builder of the launch of `attend_fragments`."""

    def __init__(
        self,
        nest: NestView,
        first: _Names,
        between: Sequence[str],
        last: _Names,
        intrinsic: str,
        subgroups: int,
        keys: int,
    ) -> None:
        self._nest, self._groups, self._keys = nest, subgroups, keys
        scores, values = self._products = Product.of(nest, *first), Product.of(nest, *last)
        self._rows = Rows.of(nest, between, (first[1],))
        check_rows(nest, self._products, self._rows)
        self._count = scores.columns.extent
        self._softmax = _Softmax.of(nest, self._rows, values, self._count)
        self._scores_name, self._name = first[1], scores.total.name
        declared = self._declared = Declared.of(nest, intrinsic)
        if why := declared.why_not(scores) or declared.why_not(values):
            nest.fail(why)
        self._places = _Places.of(nest, declared)
        depth = product_of(extent for _, extent in scores.sums)
        width = values.columns.extent
        if not isinstance(depth, int) or not isinstance(width, int):
            nest.fail(f"{depth} terms or {width} columns are not a number")
        if keys % declared.columns or keys % declared.depth or min(subgroups, keys) < 1:
            nest.fail(f"a slice of {keys} columns for {subgroups} subgroups")
        self._steps = number(ceildiv(depth, declared.depth))
        self._parts = keys // declared.columns, number(ceildiv(width, declared.columns))
        self._launches = tuple(
            FragmentLaunch(product, declared, (subgroups, 1), (1, part), terms, 1)
            for product, part, terms in zip(
                self._products, self._parts, (self._steps * declared.depth, keys), strict=True
            )
        )
        self._numbers = itertools.count()
        self._buffers: list[Buffer] = []
        rows, columns = declared.rows, declared.columns
        of_factor = rows, declared.depth
        dtype = declared.factors[0][0]
        self._queries = self._fragments(f"{self._name}_queries", dtype, self._steps, of_factor)
        self._sums = tuple(
            self._fragments(f"{product.total.name}_sums", DType.F32, count, (rows, columns))
            for product, count in zip(self._products, self._parts, strict=True)
        )
        each = rows * columns // SUBGROUP_SIZE
        self._own = tuple(
            self._registers(f"{product.total.name}_own", count * each)
            for product, count in zip(self._products, self._parts, strict=True)
        )
        few = len(self._places.rows)
        names = ("most", "higher", "other", "base", "scale", "total")
        self._of_rows = {name: self._registers(f"{self._name}_{name}", few) for name in names}

    # -- memory

    def _buffer(self, name: str, dtype: DType, shape: Sequence[int], scope: MemoryScope) -> Buffer:
        buffer = Buffer(name, dtype, (self._groups, *shape), None, scope)
        self._buffers.append(buffer)
        return buffer

    def _fragments(self, name: str, dtype: DType, count: int, shape: tuple[int, int]) -> Buffer:
        return self._buffer(name, dtype, (count, *shape), MemoryScope.SUBGROUP)

    def _registers(self, name: str, count: int) -> Buffer:
        return self._buffer(name, DType.F32, (SUBGROUP_SIZE, count), MemoryScope.REGISTER)

    # -- loops

    def _var(self, name: str) -> Var:
        return Var(f"{self._name}_{name}")

    def _threads(self, body: Callable[[Var, Var], Stmt]) -> Stmt:
        """Return a phase in which each thread of a block runs a statement."""
        at = next(self._numbers)
        group, lane = self._var(f"ag{at}"), self._var(f"al{at}")
        inner = For(lane.name, SUBGROUP_SIZE, LoopKind.THREAD, body(group, lane))
        return For(group.name, self._groups, LoopKind.THREAD, inner)

    def _subgroups(self, body: Callable[[Var], Stmt]) -> Stmt:
        group = self._var(f"as{next(self._numbers)}")
        return For(group.name, self._groups, LoopKind.SUBGROUP, body(group))

    def _unrolled(self, extent: int, body: Callable[[Var], Stmt]) -> Stmt:
        return unrolled([(self._var(f"ae{next(self._numbers)}").name, extent)], body)

    def _elements(self, own: Buffer, body: Callable[[Expr], Stmt]) -> Stmt:
        """Return the unrolled loops over the elements of a thread. Each digit of a number has a
        loop of its own, so that places are sums of loop variables and neighbours are known to be
        neighbours."""
        each = self._places.each
        extents = [number(own.shape[-1]) // each, *[2] * (each.bit_length() - 1)]
        axes = [(self._var(f"ae{next(self._numbers)}").name, extent) for extent in extents]

        def element(*of_digits: Var) -> Stmt:
            at: Expr = ZERO
            for digit, extent in zip(of_digits, extents, strict=True):
                at = e.add(e.mul(at, extent), digit)
            return body(at)

        return unrolled(axes, element)

    # -- the launch

    def function(self) -> Function:
        nest, products = self._nest, self._products
        nests = (*products[0].nests, *self._rows.nests, *products[1].nests)
        inside = {self._name, self._scores_name, *self._rows.places}
        others = [s for s in outermost_block(nest.function.body) if not any(s is n for n in nests)]
        local = {buffer.name for buffer in allocated(nest.function.body)}
        for name in inside:
            if name not in local or any(touches(stmt, name) for stmt in others):
                nest.fail(f"other nests need {name}")
        if products[1].store.buffer.name != products[1].total.name:
            inside.add(products[1].total.name)
        return with_launch(nest.function, nests, self._launch(), inside)

    def _launch(self) -> Stmt:
        scores, values = self._launches
        turn = self._var("slice")
        product = self._products[0]
        copies = [scores.copy(1, ZERO), values.copy(1, turn)]
        loop = For(
            turn.name,
            ceildiv(self._count, self._keys),
            LoopKind.SERIAL,
            block([*copies, *self._turn(turn)]),
        )
        body = block([scores.copy(0, ZERO), self._begin(), loop, *self._joined(), self._results()])
        for buffer in (*scores.staged, values.staged[1], *self._buffers):
            body = Alloc(buffer, body)
        named: dict[str, Expr] = {f"{self._name}_bx": turn}
        last = self._products[1]
        named |= {f"{last.total.name}_bx": ZERO, f"{last.total.name}_by": self._var("by")}
        long = [f"{name}_b" for name, extent in product.batch if extent != 1]
        for of in self._products:
            named |= {f"{name}_b": ZERO for name, extent in of.batch if extent == 1}
        own = [f"{name}_b" for name, extent in last.batch if extent != 1]
        named |= dict(zip(own, map(Var, long), strict=True))
        body = Substitution(named).stmt(body)
        blocks = ceildiv(product.rows.extent, self._groups * self._declared.rows)
        body = For(self._var("by").name, blocks, LoopKind.BLOCK, body)
        for name, extent in reversed(product.batch):
            if extent != 1:
                body = For(f"{name}_b", extent, LoopKind.BLOCK, body)
        return simplified(body)

    def _tile(self, fragments: Buffer, group: Expr, at: Expr) -> Tile:
        return Tile(fragments, (group, at, ZERO, ZERO), (2, 3))

    def _lanes(self, own: Buffer, group: Expr, at: Expr) -> Tile:
        """Return the elements of all threads of a subgroup from number `at` on."""
        return Tile(own, (group, ZERO, at), (1, 2))

    def _begin(self) -> Stmt:
        """Return the phases before the first slice: load the rows, and clear the sums."""
        scores, _ = self._launches
        zero = zero_name(self._declared.name)

        def subgroup(group: Var) -> Stmt:
            load = self._unrolled(
                self._steps,
                lambda at: scores.loaded(0, self._tile(self._queries, group, at), group, at),
            )
            clear = self._unrolled(
                self._parts[1], lambda at: Intrinsic(zero, (self._tile(self._sums[1], group, at),))
            )
            return block([load, clear])

        def thread(group: Var, lane: Var) -> Stmt:
            most, total = self._of_rows["most"], self._of_rows["total"]
            return self._unrolled(
                len(self._places.rows),
                lambda row: block(
                    [
                        Store(most, (group, lane, row), _LOWEST),
                        Store(total, (group, lane, row), _NOTHING),
                    ]
                ),
            )

        return block([self._subgroups(subgroup), self._threads(thread)])

    def _turn(self, turn: Var) -> list[Stmt]:
        """Return the phases of a slice after the copies of its factors."""
        return [
            self._subgroups(self._score),
            self._threads(lambda group, lane: self._mask(turn, group, lane)),
            *self._exchanged("higher", BinaryOp.MAX),
            self._threads(self._weigh),
            self._subgroups(self._sum_up),
        ]

    def _score(self, group: Var) -> Stmt:
        """Return the products of a slice, which threads then have in registers, with the sums."""
        name, (scores, _) = self._declared.name, self._launches
        sums = self._sums[0]
        clear = self._unrolled(
            self._parts[0],
            lambda at: Intrinsic(zero_name(name), (self._tile(sums, group, at),)),
        )

        def multiply(step: Var, at: Var) -> Stmt:
            factor, tile = self._columns()
            left = self._tile(self._queries, group, step)
            load = scores.loaded(1, tile, at, step)
            product = Intrinsic(name, (self._tile(sums, group, at), left, tile))
            return Alloc(factor, block([load, product]))

        multiplied = self._unrolled(
            self._steps,
            lambda step: self._unrolled(self._parts[0], lambda at: multiply(step, at)),
        )
        return block([clear, multiplied, self._taken(group, 0), self._taken(group, 1)])

    def _taken(self, group: Var, number: int) -> Stmt:
        """Return the calls that copy scores (0) or sums (1) to registers."""
        each = self._places.each

        def take(at: Var) -> Stmt:
            own = self._lanes(self._own[number], group, e.mul(at, each))
            tile = self._tile(self._sums[number], group, at)
            return Intrinsic(own_name(self._declared.name), (own, tile))

        return self._unrolled(self._parts[number], take)

    def _columns(self) -> tuple[Buffer, Tile]:
        declared = self._declared
        shape = (1, declared.depth, declared.columns)
        name = f"{self._name}_b{next(self._numbers)}"
        buffer = Buffer(name, declared.factors[1][0], shape, None, MemoryScope.SUBGROUP)
        return buffer, Tile(buffer, (ZERO, ZERO, ZERO), (1, 2))

    def _point(self, group: Var, lane: Var, at: Expr) -> tuple[Expr, Expr]:
        """Return the row and the column within the block's tile of element `at` of a thread."""
        row, column = self._places.point(lane, e.mod(at, self._places.each))
        declared = self._declared
        part = e.mul(e.floordiv(at, self._places.each), declared.columns)
        return e.add(e.mul(group, declared.rows), row), e.add(part, column)

    def _row_of(self, lane: Var, at: Expr) -> Expr:
        """Return the number of the thread's row that has its element `at`."""
        row, _ = self._places.point(lane, e.mod(at, self._places.each))
        return e.floordiv(row, self._places.step)

    def _number(self, row: Expr) -> Expr:
        return e.add(e.mul(self._var("by"), self._groups * self._declared.rows), row)

    def _mask(self, turn: Var, group: Var, lane: Var) -> Stmt:
        """Return the statement that computes the scores of a thread, and their maxima."""
        own, higher, most = self._own[0], self._of_rows["higher"], self._of_rows["most"]
        first = self._unrolled(
            len(self._places.rows),
            lambda row: Store(higher, (group, lane, row), Load(most, (group, lane, row))),
        )

        def element(at: Expr) -> Stmt:
            row, column = self._point(group, lane, at)
            row, key = self._number(row), e.add(e.mul(turn, self._keys), column)
            place = (group, lane, at)
            store = Store(own, place, self._value(row, key, Load(own, place)))
            height = self._groups * self._declared.rows
            guard = within(row, self._products[0].rows.extent, height)
            guard += within(key, self._count, self._keys)
            highest = (group, lane, self._row_of(lane, at))
            either = Binary(BinaryOp.MAX, Load(higher, highest), Load(own, place))
            guarded = under(guard, store, Store(own, place, _LOWEST) if guard else None)
            return block([guarded, Store(higher, highest, either)])

        return block([first, self._elements(own, element)])

    def _value(self, row: Expr, key: Expr, product: Expr) -> Expr:
        """Return the score at a row and a key, whose sum of products is `product`."""
        store, total = self._products[0].store, self._products[0].total.name
        batch = [Var(f"{name}_b") for name, extent in self._products[0].batch if extent != 1]
        named = {_row(axis).name: value for axis, value in enumerate((*batch, row))}

        def read(indices: Indices) -> Expr:
            if self._scores_name == total:
                return product
            own: dict[str, Expr] = dict.fromkeys(variables_of(store), ZERO)
            for index, value in zip(store.indices, indices, strict=True):
                own |= {index.name: value} if isinstance(index, Var) else {}
            return Substitution(own, reads={total: lambda _: product}).expr(store.value)

        change = Substitution({**named, _KEY.name: key}, reads={self._scores_name: read})
        return change.expr(self._softmax.score)

    def _exchanged(self, name: str, op: BinaryOp) -> list[Stmt]:
        """Return the phases by which the threads of a row join their values."""
        own, other = self._of_rows[name], self._of_rows["other"]
        few = len(self._places.rows)
        phases = []
        for mask in self._places.masks:
            for row in range(few):

                def exchange(group: Var, lane: Var, mask: int = mask, row: int = row) -> Stmt:
                    partner = Binary(BinaryOp.BIT_XOR, lane, e.index(mask))
                    at = e.index(row)
                    return Store(other, (group, lane, at), Load(own, (group, partner, at)))

                phases.append(self._threads(exchange))

            def join(group: Var, lane: Var) -> Stmt:
                def of_row(at: Var) -> Stmt:
                    place = (group, lane, at)
                    return Store(own, place, Binary(op, Load(own, place), Load(other, place)))

                return self._unrolled(few, of_row)

            phases.append(self._threads(join))
        return phases

    def _weigh(self, group: Var, lane: Var) -> Stmt:
        """Return the statement that computes the exponentials of a thread and their sums, and
        scales the sums so far."""
        named = self._of_rows
        own, sums = self._own
        few = len(self._places.rows)

        def load(name: str, row: Expr) -> Load:
            return Load(named[name], (group, lane, row))

        def power(value: Expr, base: Expr) -> Expr:
            return Unary(UnaryOp.EXP_NONPOSITIVE, Binary(BinaryOp.SUB, value, base))

        def of_row(row: Var) -> Stmt:
            place = (group, lane, row)
            # The difference of two infinities is not a number; a row without scores so far has 0.
            is_empty = Binary(BinaryOp.EQ, load("higher", row), _LOWEST)
            base = Select(is_empty, _NOTHING, load("higher", row))
            scaled = Binary(BinaryOp.MUL, load("total", row), load("scale", row))
            return block(
                [
                    Store(named["base"], place, base),
                    Store(named["scale"], place, power(load("most", row), load("base", row))),
                    Store(named["total"], place, scaled),
                    Store(named["most"], place, load("higher", row)),
                ]
            )

        def weight(at: Expr) -> Stmt:
            place, row = (group, lane, at), self._row_of(lane, at)
            joined = Binary(BinaryOp.ADD, load("total", row), Load(own, place))
            return block(
                [
                    Store(own, place, power(Load(own, place), load("base", row))),
                    Store(named["total"], (group, lane, row), joined),
                ]
            )

        def scale(at: Expr) -> Stmt:
            place, row = (group, lane, at), self._row_of(lane, at)
            return Store(sums, place, Binary(BinaryOp.MUL, Load(sums, place), load("scale", row)))

        return block(
            [
                self._unrolled(few, of_row),
                self._elements(own, weight),
                self._elements(sums, scale),
            ]
        )

    def _sum_up(self, group: Var) -> Stmt:
        """Return the calls that add the products of a slice's exponentials to the sums."""
        declared, (_, values) = self._declared, self._launches
        sums, each = self._sums[1], self._places.each

        def put(at: Var) -> Stmt:
            own = self._lanes(self._own[1], group, e.mul(at, each))
            return Intrinsic(put_name(declared.name), (self._tile(sums, group, at), own))

        def multiply(step: Var) -> Stmt:
            name = f"{self._name}_a{next(self._numbers)}"
            shape = (1, declared.rows, declared.depth)
            left = Buffer(name, declared.factors[0][0], shape, None, MemoryScope.SUBGROUP)
            tile = Tile(left, (ZERO, ZERO, ZERO), (1, 2))
            first = e.mul(step, declared.rows * declared.depth // SUBGROUP_SIZE)
            converted = Intrinsic(
                factor_name(declared.name), (tile, self._lanes(self._own[0], group, first))
            )

            def column(at: Var) -> Stmt:
                factor, right = self._columns()
                load = values.loaded(1, right, at, step)
                product = Intrinsic(declared.name, (self._tile(sums, group, at), tile, right))
                return Alloc(factor, block([load, product]))

            return Alloc(left, block([converted, self._unrolled(self._parts[1], column)]))

        steps = self._keys // declared.depth
        return block([self._unrolled(self._parts[1], put), self._unrolled(steps, multiply)])

    # -- results

    def _joined(self) -> list[Stmt]:
        """Return the phases after the last slice, by which threads have the sums in registers."""
        return [
            *self._exchanged("total", BinaryOp.ADD),
            self._subgroups(lambda group: self._taken(group, 1)),
        ]

    def _results(self) -> Stmt:
        """Return the phase in which each thread stores its results."""
        product, own = self._products[1], self._own[1]
        width = self._parts[1] * self._declared.columns

        def element(group: Var, lane: Var, at: Expr) -> Stmt:
            row, column = self._point(group, lane, at)
            row = self._number(row)
            total = Load(self._of_rows["total"], (group, lane, self._row_of(lane, at)))
            share = Substitution(reads={self._softmax.sum: lambda _: total}).expr(
                self._softmax.share
            )
            op = BinaryOp.DIV if self._softmax.divides else BinaryOp.MUL
            value = Binary(op, Load(own, (group, lane, at)), share)
            named: dict[str, Expr] = {name: Var(f"{name}_b") for name, _ in product.batch}
            named |= digits(row, product.rows.axes) | digits(column, product.columns.axes)
            store = product.stored(named, value)
            height = self._groups * self._declared.rows
            guard = within(row, product.rows.extent, height)
            return under([*guard, *within(column, product.columns.extent, width)], store)

        return self._threads(
            lambda group, lane: self._elements(own, lambda at: element(group, lane, at))
        )


@dataclasses.dataclass(frozen=True)
class _Places:
    """The elements of a fragment of sums that a thread has: `each` in number, in the rows `rows`
    of the first thread, which are `step` rows apart. Threads whose numbers differ in a bit of
    `masks` have the same rows."""

    row: Expr
    column: Expr
    each: int
    rows: tuple[int, ...]
    step: int
    masks: tuple[int, ...]

    @classmethod
    def of(cls, nest: NestView, declared: Declared) -> _Places:
        try:
            own = lookup(own_name(declared.name)).semantics
        except KeyError:
            nest.fail(f"the threads of {declared.name} do not have its sums in registers")
        load = only_store(own.body).value
        assert isinstance(load, Load)
        row, column = load.indices
        each = number(own.params[0].shape[1])
        if each & (each - 1):
            nest.fail(f"a thread of {declared.name} has {each} sums, which is not a power of two")

        def row_of(lane: int, at: int) -> int:
            named = {"lane": e.index(lane), "i": e.index(at)}
            value = Simplifier({}).simplify(Substitution(named).expr(row))
            assert isinstance(value, Const)
            return int(value.value)

        lanes, elements = range(SUBGROUP_SIZE), range(each)
        rows = tuple(sorted({row_of(0, at) for at in elements}))
        step = declared.rows // len(rows)
        masks = tuple(
            mask
            for mask in MASKS
            if all(row_of(lane, 0) == row_of(lane ^ mask, 0) for lane in lanes)
        )
        numbers = [row_of(0, at) for at in elements]
        for lane, at in itertools.product(lanes, elements):
            if row_of(lane, at) // step != rows.index(numbers[at]):
                nest.fail(f"the rows of a thread of {declared.name} are not {step} apart")
        return cls(row, column, each, rows, step, masks)

    def point(self, lane: Expr, at: Expr) -> tuple[Expr, Expr]:
        """Return the row and the column of an element of a thread."""
        change = Substitution({"lane": lane, "i": at})
        return change.expr(self.row), change.expr(self.column)
