"""The schedule primitive `cut`: split the range of a loop into two loops, one after the other."""

from __future__ import annotations

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, is_less
from farrier.ir.expr import Var
from farrier.ir.loop import For, Function, If, LoopKind, Stmt, Store
from farrier.ir.statements import block, map_children, walk_stmts
from farrier.ir.substitute import Substitution
from farrier.schedule.nest import NestView, Path, loops


def cut(function: Function, loop: str, at: int, rest: str) -> Function:
    """Split the range of a loop at iteration `at`: the loop itself runs the iterations before `at`,
    and a new loop `rest` after it runs the others. A negative `at` counts from the end.

    before:
        @function
        def shift(a: f32[9], b: f32[10]):
            for i in serial(10):
                b[i] = a[i - 1] if 0 < i else 0.0
    after cut("i", 1, "i_rest"):
        @function
        def shift(a: f32[9], b: f32[10]):
            for i in serial(1):
                b[0] = 0.0
            for i_rest in serial(9):
                b[i_rest + 1] = a[i_rest]

    A Select whose condition is constant in one of the two ranges is simplified there; guards are
    left to `partition-loops`. The loops within the second loop are renamed to `<rest>_<loop>`.
    """
    nest = NestView(function, "cut")
    path, place = _check(nest, loop, at, rest)
    return nest.replace(path, _edit(nest, path[-1], place, rest))


def _check(nest: NestView, name: str, at: int, rest: str) -> tuple[Path, Extent]:
    """Return the path to the loop, and the number of iterations of the first loop; fail if the
    primitive does not apply."""
    path, loop = nest.path_to_loop(name), nest.loop(name)
    if loop.kind is not LoopKind.SERIAL:
        nest.fail(f"{name} is {loop.kind} already; rearrange loops before they get a kind")
    place = at if at >= 0 else loop.extent + at
    if not is_less(0, place) or not is_less(place, loop.extent):
        nest.fail(f"{name} has {loop.extent} iterations, which {at} does not divide in two parts")
    if not all(isinstance(s, For | If | Store) for s in walk_stmts(loop)):
        nest.fail(f"{name} is no nest of stores alone")
    nest.require_new(rest, *(f"{rest}_{inner.var}" for inner in loops(loop.body)))
    return path, place


def _edit(nest: NestView, loop: Stmt, at: Extent, rest: str) -> Stmt:
    assert isinstance(loop, For)
    ranges = nest.ranges()
    first = _simplified(loop.body, Simplifier({**ranges, loop.var: at}))
    names = {inner.var: f"{rest}_{inner.var}" for inner in loops(loop.body)}
    moved = {old: Var(new) for old, new in names.items()}
    variables = {**moved, loop.var: e.add(Var(rest), at)}
    second = Substitution(variables, loops=names).stmt(loop.body)
    extents = {**ranges, rest: loop.extent - at}
    extents |= {new: ranges[old] for old, new in names.items()}
    second = _simplified(second, Simplifier(extents))
    return block(
        [
            For(loop.var, at, loop.kind, first),
            For(rest, loop.extent - at, loop.kind, second),
        ]
    )


def _simplified(stmt: Stmt, simplifier: Simplifier) -> Stmt:
    if isinstance(stmt, Store):
        indices = tuple(map(simplifier.simplify, stmt.indices))
        return Store(stmt.buffer, indices, simplifier.simplify(stmt.value))
    return map_children(stmt, lambda child: _simplified(child, simplifier))
