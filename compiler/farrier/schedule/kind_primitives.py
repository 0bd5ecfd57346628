"""Schedule primitives that set how a loop runs: parallel, independent, serialize, vectorize,
unroll, dot, group, pipeline.
"""

from __future__ import annotations

from farrier.intrinsics.dot import factors_of
from farrier.ir.affine import Simplifier
from farrier.ir.expr import Expr, MemoryScope
from farrier.ir.loop import Alloc, For, Function, If, LoopKind, Stmt, Store
from farrier.ir.substitute import variables
from farrier.schedule.accesses import Access, is_straight_line, touches, writes
from farrier.schedule.dependence import conflicts, loops_around
from farrier.schedule.nest import NestView, Path, allocated, loops


def parallel(function: Function, loop: str) -> Function:
    """Let the iterations of a loop run in any order on any thread.

    before:
        @function
        def copy(a: f32[8], b: f32[8]):
            for i in serial(8):
                b[i] = a[i]
    after parallel("i"):
        @function
        def copy(a: f32[8], b: f32[8]):
            for i in parallel(8):
                b[i] = a[i]

    Refused if iterations conflict, and for reductions, whose result would depend on the order.
    """
    return _with_kind(
        function, _check_parallel(NestView(function, "parallel"), loop), LoopKind.PARALLEL
    )


def _check_parallel(nest: NestView, name: str) -> Path:
    path, loop = nest.path_to_loop(name), nest.loop(name)
    require_undecided(nest, loop)
    for other in (*(s for s in path[:-1] if isinstance(s, For)), *loops(loop.body)):
        if other.kind is LoopKind.PARALLEL:
            nest.fail(f"{name} within or around {other.var}: parallel loops do not nest")
        if other.kind in (LoopKind.BLOCK, LoopKind.THREAD):
            nest.fail(f"{name} within or around {other.var}, which is bound to {other.kind}s")
    for buffer in allocated(loop.body):
        if buffer.scope is MemoryScope.WORKSPACE:
            nest.fail(f"the threads of {name} would share the workspace buffer {buffer.name}")
    for stmt in path[:-1]:
        if not isinstance(stmt, Alloc) or stmt.buffer.scope is MemoryScope.WORKSPACE:
            continue
        if stmt.buffer.scope is MemoryScope.REGISTER and stmt.buffer.name not in writes(loop):
            continue  # A register exists once per thread, so accesses to it do not conflict.
        if touches(loop, stmt.buffer.name):
            nest.fail(f"the threads of {name} would share {stmt.buffer.name}, which is local")
    require_independent(nest, path, loop)
    return path


def independent(function: Function, loop: str) -> Function:
    """Mark a loop whose iterations may run in any order.

    before:
        @function
        def copy(a: f32[8], b: f32[8]):
            for i in serial(8):
                b[i] = a[i]
    after independent("i"):
        @function
        def copy(a: f32[8], b: f32[8]):
            for i in independent(8):
                b[i] = a[i]

    Refused if iterations conflict. Later primitives rely on the mark and do not check again.
    """
    nest = NestView(function, "independent")
    path = nest.path_to_loop(loop)
    _require_serial(nest, nest.loop(loop))
    require_independent(nest, path, nest.loop(loop))
    return _with_kind(function, path, LoopKind.INDEPENDENT)


def serialize(function: Function, loop: str) -> Function:
    """Run the iterations of a parallel or independent loop in order on one thread.

    before:
        @function
        def copy(a: f32[8], b: f32[8]):
            for i in parallel(8):
                b[i] = a[i]
    after serialize("i"):
        @function
        def copy(a: f32[8], b: f32[8]):
            for i in serial(8):
                b[i] = a[i]
    """
    nest = NestView(function, "serialize")
    path = nest.path_to_loop(loop)
    if nest.loop(loop).kind not in (LoopKind.PARALLEL, LoopKind.INDEPENDENT):
        nest.fail(f"{loop} is {nest.loop(loop).kind}")
    return _with_kind(function, path, LoopKind.SERIAL)


def vectorize(function: Function, loop: str) -> Function:
    """Run the iterations of an innermost loop in lockstep, one for each lane.

    before:
        @function
        def copy(a: f32[16], b: f32[16]):
            for i in serial(16):
                b[i] = a[i]
    after vectorize("i"):
        @function
        def copy(a: f32[16], b: f32[16]):
            for i in vectorized(16):
                b[i] = a[i]

    Refused if iterations conflict, unless all of them add to (multiply, minimise, maximise) one
    element, which is a horizontal reduction.
    """
    path = _check_vectorize(NestView(function, "vectorize"), loop)
    return _with_kind(function, path, LoopKind.VECTORIZED)


def _check_vectorize(nest: NestView, name: str) -> Path:
    path, loop = nest.path_to_loop(name), nest.loop(name)
    require_undecided(nest, loop)
    if not is_straight_line(loop.body):
        nest.fail(f"{name} is not innermost")
    marked = loop.kind is LoopKind.INDEPENDENT
    for left, right, _ in () if marked else _conflicts(nest, path, loop):
        if not _is_horizontal(left, right, name):
            nest.fail(f"lanes of {name} conflict: one {left}, another {right}")
    return path


def _is_horizontal(left: Access, right: Access, loop: str) -> bool:
    """Check whether two accesses belong to the same reduction, in which all lanes of the loop add
    to a single element."""
    if left.stmt is not right.stmt or left.reduces is None or right.reduces is None:
        return False
    return not any(loop in variables(index) for index in (*left.indices, *right.indices))


def unroll(function: Function, loop: str) -> Function:
    """Repeat the body for each iteration of a loop.

    before:
        @function
        def copy(a: f32[2], b: f32[2]):
            for i in serial(2):
                b[i] = a[i]
    after unroll("i"):
        @function
        def copy(a: f32[2], b: f32[2]):
            for i in unrolled(2):
                b[i] = a[i]
    """
    nest = NestView(function, "unroll")
    path = nest.path_to_loop(loop)
    require_undecided(nest, nest.loop(loop))
    return _with_kind(function, path, LoopKind.UNROLLED)


def dot(function: Function, loop: str) -> Function:
    """Let one instruction of the target add up the products of an innermost loop, in any order.

    before:
        @function
        def multiply(a: bf16[2], b: bf16[16, 2], t: f32[16]):
            for i in vectorized(16):
                for k in serial(2):
                    t[i] = t[i] + cast(f32, a[k]) * cast(f32, b[i, k])
    after dot("k"):
        @function
        def multiply(a: bf16[2], b: bf16[16, 2], t: f32[16]):
            for i in vectorized(16):
                for k in dot(2):
                    t[i] = t[i] + cast(f32, a[k]) * cast(f32, b[i, k])

    A condition around the sum that does not depend on the loop moves outside of the loop.
    """
    nest = NestView(function, "dot")
    path, conditions, body = _conditional(nest, loop)
    if not isinstance(body, Store) or any(loop in variables(index) for index in body.indices):
        nest.fail(f"{loop} holds something else than a sum into one element")
    if factors_of(body) is None:
        nest.fail(f"{loop} adds something else than products")
    return _within(nest, path, conditions, LoopKind.DOT, body)


def group(function: Function, loop: str) -> Function:
    """Let one instruction store the elements that an innermost loop stores next to each other in
    memory.

    before:
        @function
        def pair(v: bf16[2, 16], pairs: bf16[16, 2]):
            for n in vectorized(16):
                for k in serial(2):
                    pairs[n, k] = v[k, n]
    after group("k"):
        @function
        def pair(v: bf16[2, 16], pairs: bf16[16, 2]):
            for n in vectorized(16):
                for k in group(2):
                    pairs[n, k] = v[k, n]

    A condition around the store that does not depend on the loop moves outside of the loop.
    """
    nest = NestView(function, "group")
    path, conditions, body = _conditional(nest, loop)
    if not isinstance(body, Store):
        nest.fail(f"{loop} holds something else than a store")
    for left, right, _ in _conflicts(nest, path, nest.loop(loop)):
        nest.fail(f"iterations of {loop} conflict: one {left}, another {right}")
    return _within(nest, path, conditions, LoopKind.GROUP, body)


def pipeline(function: Function, loop: str) -> Function:
    """Let hardware begin an iteration of a loop before the one in front of it has ended.

    before:
        @function
        def pairs(a: i32[8], b: i32[7]):
            for i in serial(7):
                for k in unrolled(2):
                    b[i] = b[i] + a[i + k]
    after pipeline("i"):
        @function
        def pairs(a: i32[8], b: i32[7]):
            for i in pipelined(7):
                for k in unrolled(2):
                    b[i] = b[i] + a[i + k]

    Loops within must be unrolled. Iterations may conflict: the hardware keeps them apart.
    """
    nest = NestView(function, "pipeline")
    path = nest.path_to_loop(loop)
    require_undecided(nest, nest.loop(loop))
    for inside in loops(nest.loop(loop).body):
        if inside.kind is not LoopKind.UNROLLED:
            nest.fail(f"{inside.var} within {loop} is {inside.kind}, and must be unrolled")
    return _with_kind(function, path, LoopKind.PIPELINED)


def _conditional(nest: NestView, name: str) -> tuple[Path, list[Expr], Stmt]:
    """Return the path to the serial loop `name`, the conditions directly within it, and the
    statement within those; fail if a condition depends on the loop's variable."""
    path, loop = nest.path_to_loop(name), nest.loop(name)
    _require_serial(nest, loop)
    conditions, body = [], loop.body
    while isinstance(body, If) and body.otherwise is None:
        if name in variables(body.condition):
            nest.fail(f"a condition within {name} depends on it")
        conditions.append(body.condition)
        body = body.then
    return path, conditions, body


def _within(
    nest: NestView, path: Path, conditions: list[Expr], kind: LoopKind, body: Stmt
) -> Function:
    """Return the function with the loop at the end of `path` replaced by a loop of kind `kind` with
    the body `body`. The conditions, which were inside the loop, are placed around it."""
    old = path[-1]
    assert isinstance(old, For)
    stmt: Stmt = For(old.var, old.extent, kind, body)
    for condition in reversed(conditions):
        stmt = If(condition, stmt)
    return nest.replace(path, stmt)


def _conflicts(
    nest: NestView, path: Path, loop: For
) -> list[tuple[Access, Access, frozenset[str]]]:
    return conflicts(loop.body, loops_around(path), Simplifier(nest.ranges()), [loop.var])


def _with_kind(function: Function, path: Path, kind: LoopKind) -> Function:
    loop = path[-1]
    assert isinstance(loop, For)
    return NestView(function, "").replace(path, For(loop.var, loop.extent, kind, loop.body))


def require_undecided(nest: NestView, loop: For) -> None:
    """Fail if the loop already has a kind other than serial or independent."""
    if loop.kind not in (LoopKind.SERIAL, LoopKind.INDEPENDENT):
        nest.fail(f"{loop.var} is {loop.kind} already")


def require_independent(nest: NestView, path: Path, loop: For) -> None:
    """Fail if iterations of the loop conflict, unless it is marked as independent."""
    if loop.kind is not LoopKind.INDEPENDENT:
        for left, right, _ in _conflicts(nest, path, loop):
            nest.fail(f"iterations of {loop.var} conflict: one {left}, another {right}")


def _require_serial(nest: NestView, loop: For) -> None:
    if loop.kind is not LoopKind.SERIAL:
        nest.fail(f"{loop.var} is {loop.kind} already")
