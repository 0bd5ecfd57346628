"""Let one thread write each word of memory, for devices that can only write complete words."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from farrier.ir import expr as e
from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, ceildiv, product
from farrier.ir.expr import Buffer, Cast, Expr, Load, MemoryScope, Var, dtype_of
from farrier.ir.linear import to_expr
from farrier.ir.loop import Alloc, For, Function, If, LoopKind, Stmt, Store
from farrier.ir.statements import block, map_children, walk_stmts
from farrier.ir.substitute import Substitution, loads, variables
from farrier.ir.threads import Launch, launches
from farrier.ir.types import DType

_WORD = 4  # bytes
_THREADS = 64  # Two subgroups of most GPUs, and one on GPUs with subgroups of 64 threads.


def write_whole_words(function: Function) -> Function:
    """Prevent two threads from writing parts of the same 32-bit word. If that would happen for an
    output with elements of 8 or 16 bits, the output is first computed in a workspace buffer with 32
    bits for each element. An additional launch then packs the elements into words.

    before:
        @function
        def positive(a: f32[100], b: bool[100]):
            for i in block(2):
                for j in thread(50):
                    b[i * 50 + j] = 0.0 < a[i * 50 + j]
    after:
        @function
        def positive(a: f32[100], b: bool[100]):
            with alloc(u32[100] in workspace) as b_wide:
                for i in block(2):
                    for j in thread(50):
                        b_wide[i * 50 + j] = cast(u32, 0.0 < a[i * 50 + j])
                for b_block in block(1):
                    for b_thread in thread(64):
                        for b_part in unrolled(4):
                            if b_block * 256 + b_thread * 4 + b_part < 100:
                                b[b_block * 256 + b_thread * 4 + b_part] = \
cast(bool, b_wide[b_block * 256 + b_thread * 4 + b_part])

    A schedule in which each thread writes the elements of complete words stays unchanged. If the
    data decides which elements are written, an additional first launch copies the output to the
    workspace, because the output may hold the previous state of the model.
    """
    return written_whole(function)


def written_whole(function: Function, alone: Collection[DType] = ()) -> Function:
    """Prevent two threads from writing parts of one word, as `write_whole_words` does; elements of
    the types in `alone` count as separately writable."""
    shared = shared_words(function, alone)
    for buffer in function.params:
        if buffer.name in shared and _is_dense(buffer):
            function = dataclasses.replace(function, body=_packed(function.body, buffer))
    return function


def shared_words(function: Function, alone: Collection[DType] = ()) -> frozenset[str]:
    """Return the names of the parameters in which two threads may write different parts of the same
    word. Elements of the dtypes in `alone` can be written separately, so they do not count."""
    narrow = {
        buffer.name
        for buffer in function.params
        if buffer.dtype.nbytes < _WORD and buffer.dtype not in alone
    }
    names: set[str] = set()
    for launch in launches(function) if narrow else ():
        names |= _shared_by(launch, narrow)
    return frozenset(names)


def _shared_by(launch: Launch, narrow: Collection[str]) -> set[str]:
    statements = [*launch.blocks, *walk_stmts(launch.body)]
    loops = [stmt for stmt in statements if isinstance(stmt, For)]
    simplifier = Simplifier({loop.var: loop.extent for loop in loops})
    kinds = (LoopKind.BLOCK, LoopKind.THREAD)
    several = {loop.var for loop in loops if loop.kind in kinds and loop.extent != 1}
    return {
        stmt.buffer.name
        for stmt in statements
        if isinstance(stmt, Store)
        and stmt.buffer.name in narrow
        and not _owns_word(stmt, simplifier, several)
    }


def _owns_word(store: Store, simplifier: Simplifier, threads: Collection[str]) -> bool:
    """Check that a thread which stores an element of a word also stores all other elements of that
    word.

    That holds if the position within the word depends only on variables on which neither the word
    nor the thread depends.
    """
    form = flatten(store.buffer, store.indices, simplifier, 1)
    per = _WORD // store.buffer.dtype.nbytes
    word, place = (to_expr(part(form, per)) for part in (simplifier.divide, simplifier.remainder))
    names = variables(place)
    return names.isdisjoint(threads) and names.isdisjoint(variables(word)) and not [*loads(place)]


def _packed(body: Stmt, buffer: Buffer) -> Stmt:
    """Return the body with the buffer replaced by a wide buffer, followed by the launch that packs
    it."""
    wide = dataclasses.replace(
        buffer,
        name=f"{buffer.name}_wide",
        dtype=_wide_type(buffer.dtype),
        scope=MemoryScope.WORKSPACE,
    )

    def read(indices: tuple[Expr, ...]) -> Expr:
        return Cast(buffer.dtype, Load(wide, indices))

    reads = Substitution(reads={buffer.name: read})
    is_partial = any(
        True
        for stmt in walk_stmts(body)
        if isinstance(stmt, Store) and stmt.buffer.name == buffer.name
        for index in stmt.indices
        for _ in loads(index)
    )

    def widened(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store) and stmt.buffer.name == buffer.name:
            value = reads.expr(stmt.value)
            indices = tuple(map(reads.expr, stmt.indices))
            return Store(wide, indices, _widened(value, buffer.dtype))
        return map_children(stmt, widened)

    before = [_over_words(buffer, wide, is_packing=False)] if is_partial else []
    after = _over_words(buffer, wide, is_packing=True)
    return Alloc(wide, block([*before, widened(reads.stmt(body)), after]))


def _is_dense(buffer: Buffer) -> bool:
    """Check that the elements of a buffer fill its memory without padding, in any order."""
    layout = buffer.element_layout
    size = product(layout.physical_shape(buffer.shape))
    return size == product(buffer.shape) and not any(map(any, layout.halo))


def _wide_type(dtype: DType) -> DType:
    if dtype.is_float:
        return DType.F32
    return DType.I32 if dtype.is_signed else DType.U32


def _widened(value: Expr, dtype: DType) -> Expr:
    """Return a value of type `dtype` in 32 bits, rounded or wrapped as memory would store it."""
    if dtype_of(value) is not dtype or (dtype.is_float and not isinstance(value, Cast | Load)):
        value = Cast(dtype, value)
    return Cast(_wide_type(dtype), value)


def _over_words(buffer: Buffer, wide: Buffer, *, is_packing: bool) -> Stmt:
    """Return the launch that copies all elements from the wide buffer, or to it unless
    `is_packing`; each thread handles the elements of one word."""
    per = _WORD // buffer.dtype.nbytes
    size = product(buffer.shape)
    prefix = buffer.name if is_packing else wide.name
    names = [f"{prefix}_{loop}" for loop in ("block", "thread", "part")]
    at = e.add(
        e.add(e.mul(Var(names[0]), _THREADS * per), e.mul(Var(names[1]), per)), Var(names[2])
    )
    indices = _indices(at, buffer)
    body: Stmt = Store(buffer, indices, Cast(buffer.dtype, Load(wide, indices)))
    if not is_packing:
        body = Store(wide, indices, Cast(wide.dtype, Load(buffer, indices)))
    body = If(e.less(at, size), body)
    for name, extent, kind in reversed(
        [
            (names[0], ceildiv(size, _THREADS * per), LoopKind.BLOCK),
            (names[1], _THREADS, LoopKind.THREAD),
            (names[2], per, LoopKind.UNROLLED),
        ]
    ):
        body = For(name, extent, kind, body)
    return body


def _indices(at: Expr, buffer: Buffer) -> tuple[Expr, ...]:
    """Return the indices of element number `at` in the order of memory."""
    layout = buffer.element_layout
    indices: list[Expr] = [e.index(0)] * len(buffer.shape)
    inner: Extent = 1
    for dim, extent in zip(
        reversed(layout.dims), reversed(layout.physical_shape(buffer.shape)), strict=True
    ):
        digit = at if inner == 1 else e.floordiv(at, inner)
        if dim is not layout.dims[0]:
            digit = e.mod(digit, extent)
        indices[dim.axis] = e.add(indices[dim.axis], e.mul(digit, dim.div))
        inner = inner * extent
    return tuple(map(Simplifier({}).simplify, indices))
