"""The schedule primitive `rfactor`: split a reduction into partial results."""

from __future__ import annotations

import dataclasses

from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Load,
    MemoryScope,
    ReduceOp,
    Var,
    dtype_of,
)
from farrier.ir.loop import Alloc, Block, For, Function, If, Stmt, Store
from farrier.ir.substitute import Substitution, variables
from farrier.schedule.accesses import reduction
from farrier.schedule.nest import NestView, Path, guarded, nested, replaced

_OPS = {op.binary: op for op in ReduceOp}


def rfactor(function: Function, loop: str, name: str) -> Function:
    """Split a reduction in two: each iteration of `loop` computes a partial result of its own, and
    afterwards these are combined.

    before:
        @function
        def total(a: f32[8, 64], s: f32[8]):
            for i in serial(8):
                for k_o in serial(4):
                    for k_i in serial(16):
                        s[i] = s[i] + a[i, 16 * k_o + k_i]
    after rfactor("k_i", "p"):
        @function
        def total(a: f32[8, 64], s: f32[8]):
            with alloc(f32[8, 16] in workspace) as p:
                for p_init_i in serial(8):
                    for p_init_k_i in serial(16):
                        p[p_init_i, p_init_k_i] = 0.0
                for i in serial(8):
                    for k_o in serial(4):
                        for k_i in serial(16):
                            p[i, k_i] = p[i, k_i] + a[i, 16 * k_o + k_i]
                for p_i in serial(8):
                    for p_k_i in serial(16):
                        s[p_i] = s[p_i] + p[p_i, p_k_i]

    The iterations of the loop no longer depend on each other, so it may become the lanes of a
    vector.
    """
    nest = NestView(function, "rfactor")
    reduction = _check(nest, loop, name)
    return nest.replace(reduction.path, _edit(reduction, name))


@dataclasses.dataclass(frozen=True, slots=True)
class _Reduction:
    """A nest whose only store combines `term` with the element of `store`, in loops over output
    points and over the terms of the reduction."""

    path: Path  # The path to the nest's outermost loop.
    below: Path  # The path from there to the store.
    loop: For
    points: list[For]
    guards: list[Expr]  # The conditions, which depend on points alone.
    store: Store
    op: BinaryOp
    term: Expr


def _check(nest: NestView, loop_name: str, name: str) -> _Reduction:
    to_loop, loop = nest.path_to_loop(loop_name), nest.loop(loop_name)
    below: list[Stmt] = [loop]
    while not isinstance(below[-1], Store):
        stmt = below[-1]
        if isinstance(stmt, For):
            below.append(stmt.body)
        elif isinstance(stmt, If) and stmt.otherwise is None:
            below.append(stmt.then)
        else:
            nest.fail(f"{loop_name} holds more than one update of one element")
    store = below[-1]
    assert isinstance(store, Store)
    update = reduction(store)
    if update is None:
        nest.fail(f"{loop_name} holds no update x = x op e")
    top = len(to_loop) - 1
    while top > 0 and isinstance(to_loop[top - 1], For):
        top -= 1
    chain = [*to_loop[top:-1], *below]
    used = {v for index in store.indices for v in variables(index)}
    if loop_name in used:
        nest.fail(f"{store.buffer.name} is indexed by {loop_name}: it is no loop of a reduction")
    points = [s for s in chain if isinstance(s, For) and s.var in used]
    terms = {s.var for s in chain if isinstance(s, For)} - used
    conditions = [s.condition for s in chain if isinstance(s, If)]
    guards = [c for c in conditions if not variables(c) & terms]
    nest.require_new_buffer(name)
    nest.require_new(*(f"{name}_{part}{s.var}" for part in ("", "init_") for s in (*points, loop)))
    return _Reduction(to_loop[: top + 1], tuple(chain), loop, points, guards, store, *update)


def _edit(reduction: _Reduction, name: str) -> Stmt:
    store, loops = reduction.store, [*reduction.points, reduction.loop]
    shape = tuple(loop.extent for loop in loops)
    inside = any(isinstance(s, For) for s in reduction.path[:-1])
    scope = MemoryScope.LOCAL if inside else MemoryScope.WORKSPACE
    partial = Buffer(name, store.buffer.dtype, shape, None, scope)

    def at(prefix: str) -> tuple[Var, ...]:
        return tuple(Var(prefix + loop.var) for loop in loops)

    own = at("")
    value = Binary(reduction.op, Load(partial, own), reduction.term)
    update = replaced(reduction.below, Store(partial, own, value))
    start = Store(partial, at(f"{name}_init_"), _OPS[reduction.op].identity(dtype_of(store.value)))
    element = (store.buffer, store.indices)
    join: Stmt = Store(*element, Binary(reduction.op, Load(*element), Load(partial, own)))
    for guard in reduction.guards:
        join = guarded(join, guard)
    renamed: dict[str, Expr] = {loop.var: Var(f"{name}_{loop.var}") for loop in loops}
    join = Substitution(renamed).stmt(join)
    steps: list[Stmt] = [
        nested([(f"{name}_init_{loop.var}", loop.extent) for loop in loops], start),
        update,
        nested([(f"{name}_{loop.var}", loop.extent) for loop in loops], join),
    ]
    return Alloc(partial, Block(tuple(steps)))
