"""The schedule primitive `attend_fragments`: compute attention in one GPU launch with the matrix
instructions of subgroups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from farrier.intrinsics.fragments import factor_name, own_name, put_name, zero_name
from farrier.ir import expr as e
from farrier.ir.dim import ceildiv
from farrier.ir.expr import Buffer, Expr, MemoryScope, Var
from farrier.ir.loop import Alloc, For, Function, Intrinsic, LoopKind, Stmt, Tile
from farrier.ir.statements import block
from farrier.ir.substitute import Substitution
from farrier.ir.threads import SUBGROUP_SIZE
from farrier.ir.types import DType
from farrier.schedule.accesses import touches
from farrier.schedule.attention_threads import AttentionThreads
from farrier.schedule.block_loops import BlockLoops
from farrier.schedule.fragment_attention import FragmentAttention
from farrier.schedule.launching import with_launch
from farrier.schedule.nest import NestView, allocated, outermost_block
from farrier.schedule.subgroup_product import FragmentLaunch
from farrier.schedule.tiling_parts import ZERO, simplified

_Names: TypeAlias = tuple[str, str]


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
    attention = FragmentAttention.of(nest, first, between, last, intrinsic, subgroups, keys)
    inside = _inside(nest, attention)
    return with_launch(function, attention.nests, _Launch(attention).launch(), inside)


def _inside(nest: NestView, attention: FragmentAttention) -> set[str]:
    """Return the buffers that the launch keeps to itself; fail if other nests need one of them."""
    first, last = attention.products
    inside = {first.total.name, attention.scores, *attention.rows.places}
    statements = outermost_block(nest.function.body)
    others = [stmt for stmt in statements if not any(stmt is own for own in attention.nests)]
    local = {buffer.name for buffer in allocated(nest.function.body)}
    for name in inside:
        if name not in local or any(touches(stmt, name) for stmt in others):
            nest.fail(f"other nests need {name}")
    if last.store.buffer.name != last.total.name:
        inside.add(last.total.name)
    return inside


class _Launch:
    """The builder of the launch of `attend_fragments`: its loops, and the phases of subgroups."""

    def __init__(self, attention: FragmentAttention) -> None:
        self._attention, declared = attention, attention.declared
        self._name = attention.name
        self._loops = BlockLoops(attention.name, attention.groups)
        self._copies = tuple(
            FragmentLaunch(product, declared, (attention.groups, 1), (1, part), terms, 1)
            for product, part, terms in zip(
                attention.products,
                attention.parts,
                (attention.steps * declared.depth, attention.keys),
                strict=True,
            )
        )
        of_factor = declared.rows, declared.depth
        dtype = declared.factors[0][0]
        self._queries = self._fragments(f"{self._name}_queries", dtype, attention.steps, of_factor)
        self._sums = tuple(
            self._fragments(
                f"{product.total.name}_sums", DType.F32, count, (declared.rows, declared.columns)
            )
            for product, count in zip(attention.products, attention.parts, strict=True)
        )
        self._threads = AttentionThreads(attention, self._loops)

    def _fragments(self, name: str, dtype: DType, count: int, shape: tuple[int, int]) -> Buffer:
        shape_of_all = (self._attention.groups, count, *shape)
        return Buffer(name, dtype, shape_of_all, None, MemoryScope.SUBGROUP)

    # -- the launch

    def launch(self) -> Stmt:
        """Return the launch: loops over batch and rows around the phases of a block."""
        attention, (scores, values) = self._attention, self._copies
        slices = self._slices()
        body = block([scores.copy(0, ZERO), self._begin(), slices, *self._end()])
        buffers = (self._queries, *self._sums, *self._threads.buffers)
        for buffer in (*scores.staged, values.staged[1], *buffers):
            body = Alloc(buffer, body)
        body = Substitution(self._of_blocks()).stmt(body)
        product = attention.products[0]
        blocks = ceildiv(product.rows.extent, attention.height)
        body = For(self._loops.var("by").name, blocks, LoopKind.BLOCK, body)
        for name, extent in reversed(product.batch):
            if extent != 1:
                body = For(f"{name}_b", extent, LoopKind.BLOCK, body)
        return simplified(body)

    def _of_blocks(self) -> dict[str, Expr]:
        """Return the value of each block variable of both products: they have the rows and the
        batch of the first, whose columns are the slices."""
        first, last = self._attention.products
        own = [f"{name}_b" for name, extent in last.batch if extent != 1]
        long = [f"{name}_b" for name, extent in first.batch if extent != 1]
        short = [f"{name}_b" for name, extent in (*first.batch, *last.batch) if extent == 1]
        return {
            f"{self._name}_bx": self._loops.var("slice"),
            f"{last.total.name}_bx": ZERO,
            f"{last.total.name}_by": self._loops.var("by"),
            **dict.fromkeys(short, ZERO),
            **dict(zip(own, map(Var, long), strict=True)),
        }

    def _slices(self) -> Stmt:
        """Return the loop over slices: copy the factors, compute the scores, add their part of the
        results."""
        (scores, values), threads = self._copies, self._threads
        turn = self._loops.var("slice")
        body = block(
            [
                scores.copy(1, ZERO),
                values.copy(1, turn),
                self._loops.subgroups(self._score),
                threads.mask(turn),
                *threads.join_maxima(),
                threads.weigh(),
                self._loops.subgroups(self._sum_up),
            ]
        )
        turns = ceildiv(self._attention.count, self._attention.keys)
        return For(turn.name, turns, LoopKind.SERIAL, body)

    def _end(self) -> list[Stmt]:
        """Return the phases after the last slice, by which threads have the sums in registers and
        store the results."""
        return [
            *self._threads.join_totals(),
            self._loops.subgroups(lambda group: self._taken(group, 1)),
            self._threads.results(),
        ]

    # -- the phases of subgroups

    def _tile(self, fragments: Buffer, group: Expr, at: Expr) -> Tile:
        return Tile(fragments, (group, at, ZERO, ZERO), (2, 3))

    def _lanes(self, own: Buffer, group: Expr, at: Expr) -> Tile:
        """Return the elements of all threads of a subgroup from number `at` on."""
        return Tile(own, (group, ZERO, at), (1, 2))

    def _clear(self, group: Var, side: int) -> Stmt:
        """Return the calls that clear the sums of the first product (0) or the last (1)."""
        name, sums = zero_name(self._attention.declared.name), self._sums[side]
        return self._loops.unrolled(
            self._attention.parts[side], lambda at: Intrinsic(name, (self._tile(sums, group, at),))
        )

    def _begin(self) -> Stmt:
        """Return the phases before the first slice: load the rows, and clear the sums."""
        scores, _ = self._copies

        def subgroup(group: Var) -> Stmt:
            load = self._loops.unrolled(
                self._attention.steps,
                lambda at: scores.loaded(0, self._tile(self._queries, group, at), group, at),
            )
            return block([load, self._clear(group, 1)])

        return block([self._loops.subgroups(subgroup), self._threads.begin()])

    def _score(self, group: Var) -> Stmt:
        """Return the products of a slice, which threads then have in registers, with the sums."""
        attention, (scores, _) = self._attention, self._copies
        clear = self._clear(group, 0)

        def multiply(step: Var, at: Var) -> Stmt:
            factor, tile = self._factor(1)
            left = self._tile(self._queries, group, step)
            load = scores.loaded(1, tile, at, step)
            sums = self._tile(self._sums[0], group, at)
            product = Intrinsic(attention.declared.name, (sums, left, tile))
            return Alloc(factor, block([load, product]))

        multiplied = self._loops.unrolled(
            attention.steps,
            lambda step: self._loops.unrolled(attention.parts[0], lambda at: multiply(step, at)),
        )
        return block([clear, multiplied, self._taken(group, 0), self._taken(group, 1)])

    def _taken(self, group: Var, side: int) -> Stmt:
        """Return the calls that copy scores (0) or sums (1) to registers."""
        attention = self._attention

        def take(at: Var) -> Stmt:
            own = self._lanes(self._threads.own[side], group, e.mul(at, attention.places.each))
            tile = self._tile(self._sums[side], group, at)
            return Intrinsic(own_name(attention.declared.name), (own, tile))

        return self._loops.unrolled(attention.parts[side], take)

    def _factor(self, side: int) -> tuple[Buffer, Tile]:
        """Return a buffer for a fragment of the left (0) or right (1) factor, and its tile."""
        declared = self._attention.declared
        rows, columns = ((declared.rows, declared.depth), (declared.depth, declared.columns))[side]
        name, dtype = self._loops.numbered("ab"[side]), declared.factors[side][0]
        buffer = Buffer(name, dtype, (1, rows, columns), None, MemoryScope.SUBGROUP)
        return buffer, Tile(buffer, (ZERO, ZERO, ZERO), (1, 2))

    def _sum_up(self, group: Var) -> Stmt:
        """Return the calls that add the products of a slice's exponentials to the sums."""
        attention, (_, values) = self._attention, self._copies
        declared, (powers, own) = attention.declared, self._threads.own
        parts = attention.parts[1]

        def put(at: Var) -> Stmt:
            lanes = self._lanes(own, group, e.mul(at, attention.places.each))
            return Intrinsic(put_name(declared.name), (self._tile(self._sums[1], group, at), lanes))

        def multiply(step: Var) -> Stmt:
            left, tile = self._factor(0)
            first = e.mul(step, declared.rows * declared.depth // SUBGROUP_SIZE)
            converted = Intrinsic(
                factor_name(declared.name), (tile, self._lanes(powers, group, first))
            )

            def column(at: Var) -> Stmt:
                right, other = self._factor(1)
                load = values.loaded(1, other, at, step)
                sums = self._tile(self._sums[1], group, at)
                return Alloc(right, block([load, Intrinsic(declared.name, (sums, tile, other))]))

            return Alloc(left, block([converted, self._loops.unrolled(parts, column)]))

        steps = attention.keys // declared.depth
        unrolled = self._loops.unrolled
        return block([unrolled(parts, put), unrolled(steps, multiply)])
