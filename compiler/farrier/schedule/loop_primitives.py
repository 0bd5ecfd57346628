"""Schedule primitives that rearrange loops: split, split_evenly, fuse, reorder."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, as_extent, ceildiv, maximum, minimum
from farrier.ir.expr import Var
from farrier.ir.loop import For, Function, LoopKind, NamedSize, Stmt
from farrier.ir.substitute import Substitution
from farrier.schedule.dependence import conflicts, loops_around
from farrier.schedule.nest import NestView, Path, guarded


def split(function: Function, loop: str, factor: int, outer: str, inner: str) -> Function:
    """Split a loop into an outer loop and an inner loop of `factor` iterations, or of all
    iterations if there are fewer than `factor`.

    before:
        @function
        def copy(a: f32[10], b: f32[10]):
            for i in serial(10):
                b[i] = a[i]
    after split("i", 4, "i_o", "i_i"):
        @function
        def copy(a: f32[10], b: f32[10]):
            for i_o in serial(3):
                for i_i in serial(4):
                    if i_o * 4 + i_i < 10:
                        b[i_o * 4 + i_i] = a[i_o * 4 + i_i]

    The guard is omitted if the factor divides the extent; otherwise `partition-loops` moves it out
    of the hot loop. If the loop is vectorized, the inner loop is vectorized.
    """
    path = _check_split(NestView(function, "split"), loop, factor, outer, inner)
    return NestView(function, "split").replace(path, _split(path[-1], factor, outer, inner))


def _check_split(nest: NestView, loop: str, factor: int, outer: str, inner: str) -> Path:
    path = nest.path_to_loop(loop)
    if factor < 1:
        nest.fail(f"a factor of {factor} for {loop}")
    if nest.loop(loop).kind is not LoopKind.VECTORIZED:
        _require_undecided(nest, nest.loop(loop))
    nest.require_new(outer, inner)
    return path


def split_evenly(
    function: Function, loop: str, parts: int, most: int, step: int, outer: str, inner: str
) -> Function:
    """Split a loop into chunks of equal size; only the last chunk may be smaller. There are `parts`
    chunks if these have at most `most` iterations each, otherwise the smallest sufficient multiple
    of `parts`. The size of a chunk is a multiple of `step`.

    before:
        @function(n=dim(1, 1000, 500))
        def copy(a: f32[n], b: f32[n]):
            for i in serial(n):
                b[i] = a[i]
    after split_evenly("i", 2, 64, 4, "i_o", "i_i"):
        @function(n=dim(1, 1000, 500), i_o_steps=min(15, (n - 1) // (8*((n + 127) // 128))) + 1)
        def copy(a: f32[n], b: f32[n]):
            for i_o in serial(-((-n) // (4*i_o_steps))):
                for i_i in serial(4*i_o_steps):
                    if i_o * (4*i_o_steps) + i_i < n:
                        b[i_o * (4*i_o_steps) + i_i] = a[i_o * (4*i_o_steps) + i_i]

    So a loop over a symbolic extent keeps all threads busy with chunks that fit a cache. For a
    constant extent, `split` with a factor computed in advance does the same.
    """
    nest = NestView(function, "split_evenly")
    path = _check_even_split(nest, loop, parts, most, step, outer, inner)
    around = path[-1]
    assert isinstance(around, For)
    steps = NamedSize(f"{outer}_steps", _even_steps(around.extent, parts, most, step))
    if isinstance(steps.extent, int):
        return nest.replace(path, _split(around, step * steps.extent, outer, inner))
    named = nest.replace(path, _split(around, step * as_extent(steps.symbol), outer, inner))
    return dataclasses.replace(named, sizes=(*function.sizes, steps))


def _check_even_split(
    nest: NestView, loop: str, parts: int, most: int, step: int, outer: str, inner: str
) -> Path:
    if min(parts, most, step) < 1 or most % step:
        nest.fail(f"{parts} parts of {loop}, of {most} iterations at most, {step} at a time")
    return _check_split(nest, loop, most, outer, inner)


def _even_steps(extent: Extent, parts: int, most: int, step: int) -> Extent:
    last = maximum(extent, 1) - 1
    chunks = parts * (last // (parts * most) + 1)
    # It is at most `most` anyway; the minimum states that for readers of ranges alone.
    return minimum(last // (step * chunks) + 1, most // step)


def _split(loop: Stmt, factor: Extent, outer: str, inner: str) -> Stmt:
    assert isinstance(loop, For)
    if isinstance(loop.extent, int):
        factor = max(minimum(factor, loop.extent), 1)
    index = e.add(e.mul(Var(outer), factor), Var(inner))
    body = Substitution({loop.var: index}).stmt(loop.body)
    if loop.extent % factor != 0:
        body = guarded(body, e.less(index, loop.extent))
    count = ceildiv(loop.extent, factor)
    kind = loop.kind if loop.kind is LoopKind.INDEPENDENT else LoopKind.SERIAL
    return For(outer, count, kind, For(inner, factor, loop.kind, body))


def fuse(function: Function, outer: str, inner: str, name: str) -> Function:
    """Fuse two loops into one. The loop `inner` must be directly within the loop `outer`.

    before:
        @function
        def copy(a: f32[3, 4], b: f32[3, 4]):
            for i in serial(3):
                for j in serial(4):
                    b[i, j] = a[i, j]
    after fuse("i", "j", "f"):
        @function
        def copy(a: f32[3, 4], b: f32[3, 4]):
            for f in serial(12):
                b[f // 4, f % 4] = a[f // 4, f % 4]
    """
    path, outer_loop, inner_loop = _check_fuse(NestView(function, "fuse"), outer, inner, name)
    return NestView(function, "fuse").replace(path, _fuse(outer_loop, inner_loop, name))


def _check_fuse(nest: NestView, outer: str, inner: str, name: str) -> tuple[Path, For, For]:
    path, outer_loop = nest.path_to_loop(outer), nest.loop(outer)
    inner_loop = nest.loop(inner)
    if outer_loop.body is not inner_loop:
        nest.fail(f"{inner} does not stand directly within {outer}")
    _require_undecided(nest, outer_loop)
    _require_undecided(nest, inner_loop)
    nest.require_new(name)
    return path, outer_loop, inner_loop


def _fuse(outer: For, inner: For, name: str) -> Stmt:
    values = {
        outer.var: e.floordiv(Var(name), inner.extent),
        inner.var: e.mod(Var(name), inner.extent),
    }
    if outer.extent == 1:
        values = {outer.var: e.index(0), inner.var: Var(name)}
    body = Substitution(values).stmt(inner.body)
    kind = outer.kind if outer.kind is inner.kind else LoopKind.SERIAL
    return For(name, outer.extent * inner.extent, kind, body)


def reorder(function: Function, order: Sequence[str]) -> Function:
    """Change the order of loops in a perfect nest. The loops listed in `order` exchange positions
    among themselves; all other loops stay where they are.

    before:
        @function
        def multiply(a: f32[3, 5], b: f32[5, 4], c: f32[3, 4]):
            for i in serial(3):
                for j in serial(4):
                    for k in serial(5):
                        c[i, j] = c[i, j] + a[i, k] * b[k, j]
    after reorder(("k", "i")):
        @function
        def multiply(a: f32[3, 5], b: f32[5, 4], c: f32[3, 4]):
            for k in serial(5):
                for j in serial(4):
                    for i in serial(3):
                        c[i, j] = c[i, j] + a[i, k] * b[k, j]

    The order in which terms of a sum, product, minimum or maximum are combined may change.
    """
    nest = NestView(function, "reorder")
    path, chain = _check_reorder(nest, order)
    return nest.replace(path, _reorder(chain, order))


def _check_reorder(nest: NestView, order: Sequence[str]) -> tuple[Path, list[For]]:
    """Return the path to the outermost loop in `order`, and the perfect nest from that loop to the
    innermost loop in `order`; fail if the loops do not form one."""
    if len(set(order)) != len(order) or len(order) < 2:
        nest.fail(f"an order names two or more distinct loops, not {', '.join(order)}")
    for name in order:
        nest.loop(name)
    paths = [nest.path_to_loop(name) for name in order]
    path = min(paths, key=len)
    top = path[-1]
    assert isinstance(top, For)
    chain, missing = [top], set(order) - {top.var}
    while missing:
        below = chain[-1].body
        if not isinstance(below, For):
            nest.fail(f"{', '.join(sorted(missing))} not in the perfect nest of {top.var}")
        chain.append(below)
        missing.discard(below.var)
    _check_order(nest, path, chain, order)
    return path, chain


def _check_order(nest: NestView, path: Path, chain: list[For], order: Sequence[str]) -> None:
    """Check that the new order of loops preserves the order of conflicting iterations, unless these
    only accumulate into the same result. Fail otherwise."""
    before = [loop.var for loop in chain]
    after = _permuted(before, order)
    pairs = conflicts(chain[-1].body, loops_around(path), Simplifier(nest.ranges()), before)
    for left, right, free in pairs:
        if [v for v in before if v in free] == [v for v in after if v in free]:
            continue
        if left.stmt is right.stmt and left.reduces is not None and left.reduces is right.reduces:
            continue
        nest.fail(
            f"iterations of {', '.join(sorted(free))} depend on their order: one {left}, "
            f"another {right}"
        )


def _permuted(names: list[str], order: Sequence[str]) -> list[str]:
    wanted = iter(order)
    return [next(wanted) if name in order else name for name in names]


def _reorder(chain: list[For], order: Sequence[str]) -> Stmt:
    by_name = {loop.var: loop for loop in chain}
    body = chain[-1].body
    for name in reversed(_permuted(list(by_name), order)):
        loop = by_name[name]
        # Iterations were independent of others within one iteration of the loops around.
        kind = LoopKind.SERIAL if loop.kind is LoopKind.INDEPENDENT else loop.kind
        body = For(name, loop.extent, kind, body)
    return body


def _require_undecided(nest: NestView, loop: For) -> None:
    if loop.kind not in (LoopKind.SERIAL, LoopKind.INDEPENDENT):
        nest.fail(f"{loop.var} is {loop.kind} already; rearrange loops before they get a kind")
