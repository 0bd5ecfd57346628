"""The schedule primitive `reuse_buffer`: keep elements that successive iterations of a loop read in
a local buffer."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.expr import Buffer, Expr, Load, Var
from farrier.ir.loop import Alloc, For, Function, LoopKind, Stmt, Store
from farrier.ir.statements import block
from farrier.ir.substitute import Indices, Substitution
from farrier.schedule.accesses import guarded_reads, writes
from farrier.schedule.nest import NestView, Path, local_scope, loops, nested
from farrier.schedule.region import Interval, everything, region


def reuse_buffer(function: Function, buffer: str, loop: str, name: str) -> Function:
    """Read each element of `buffer` only once. Successive iterations of `loop` read overlapping
    ranges: the elements that the next iteration reads again are kept in a local buffer, so that
    each iteration reads only new elements.

    before:
        @function
        def smooth(a: i32[10], b: i32[8]):
            for i in serial(8):
                for k in serial(3):
                    b[i] = b[i] + a[i + k]
    after reuse_buffer("a", "i", "t"):
        @function
        def smooth(a: i32[10], b: i32[8]):
            with alloc(i32[3] in local) as t:
                for t_first in serial(2):
                    t[t_first + 1] = a[t_first]
                for i in serial(8):
                    for t_kept in serial(2):
                        t[t_kept] = t[t_kept + 1]
                    for t_new in serial(1):
                        t[t_new + 2] = a[i + t_new + 2]
                    for k in serial(3):
                        b[i] = b[i] + t[k]

    The box of an iteration moves along one axis, by the same step each time. Loops over the other
    axes, `<name>_<axis>`, stand around the moves.
    """
    nest = NestView(function, "reuse_buffer")
    path, source, box, axis, step = _check(nest, buffer, loop, name)
    return nest.replace(path, _edit(nest, path, source, box, axis, step, name))


def _check(
    nest: NestView, buffer: str, loop_name: str, name: str
) -> tuple[Path, Buffer, tuple[Interval, ...], int, int]:
    path, loop = nest.path_to_loop(loop_name), nest.loop(loop_name)
    if loop.kind not in (LoopKind.SERIAL, LoopKind.INDEPENDENT):
        nest.fail(f"{loop_name} is {loop.kind} already")
    reads = list(guarded_reads(loop.body, buffer))
    if not reads:
        nest.fail(f"nothing within {loop_name} reads {buffer}")
    if any(conditions for _, conditions in reads):
        nest.fail(f"{buffer} is read under a condition within {loop_name}")
    if buffer in writes(loop.body):
        nest.fail(f"{loop_name} writes {buffer}, so what is kept would grow old")
    nest.require_new_buffer(name)
    source = reads[0][0].buffer
    simplifier = Simplifier(nest.ranges())
    inner = frozenset(inside.var for inside in loops(loop.body))
    indices = [read.indices for read, _ in reads]
    box = region(simplifier, indices, inner, everything(source.shape))
    steps = [simplifier.linear(each.first).terms.get(Var(loop_name), 0) for each in box]
    moving = [axis for axis, step in enumerate(steps) if step]
    if len(moving) != 1:
        nest.fail(f"the box of {buffer} moves along {len(moving)} axes with {loop_name}, not one")
    (axis,) = moving
    step, extent = steps[axis], box[axis].extent
    if not isinstance(step, int) or not isinstance(extent, int) or not 0 < step < extent:
        nest.fail(f"iterations of {loop_name} read {extent} of {buffer} and move by {step}")
    others = (n for n in range(len(box)) if n != axis)
    new = (f"{name}_{part}{n}" for n in others for part in ("", "first_"))
    nest.require_new(*new, *(f"{name}_{part}" for part in ("first", "kept", "new")))
    return path, source, box, axis, step


def _edit(
    nest: NestView,
    path: Path,
    source: Buffer,
    box: Sequence[Interval],
    axis: int,
    step: int,
    name: str,
) -> Stmt:
    loop = path[-1]
    assert isinstance(loop, For)
    shape = tuple(each.extent for each in box)
    window = Buffer(name, source.dtype, shape, None, local_scope(loop))
    simplifier = Simplifier(nest.ranges())
    extent = shape[axis]
    assert isinstance(extent, int)

    def moved(part: str, count: int, to: int, begin: Expr | None) -> Stmt:
        """Return the nest that sets `count` elements of the buffer, from index `to` of the axis on.
        If `begin` is None, their new values are the elements `step` further on in the buffer.
        Otherwise they are read from the source, as the iteration `begin` of the loop needs them."""
        prefix = f"{name}_first_" if part == "first" else f"{name}_"
        others = [(f"{prefix}{n}", size) for n, size in enumerate(shape) if n != axis]
        turn = f"{name}_{part}"
        at = [Var(turn) if n == axis else Var(f"{prefix}{n}") for n in range(len(shape))]

        def element(offset: int) -> Indices:
            return tuple(e.add(x, offset) if n == axis else x for n, x in enumerate(at))

        value = Load(window, element(to + step))
        if begin is not None:
            there = Substitution(variables={loop.var: begin})
            # What the iteration reads begins `step` before its place in front of the loop.
            offset = to - step if part == "first" else to
            places = zip(box, element(offset), strict=True)
            firsts = tuple(simplifier.simplify(e.add(there.expr(b.first), x)) for b, x in places)
            value = Load(source, firsts)
        copy: Stmt = nested([(turn, count)], Store(window, element(to), value))
        return nested(others, copy) if part == "first" else copy

    def read(indices: Indices) -> Load:
        pairs = zip(indices, box, strict=True)
        return Load(window, tuple(simplifier.simplify(e.sub(at, each.first)) for at, each in pairs))

    keep = extent - step
    turns = [moved("kept", keep, 0, None), moved("new", step, keep, Var(loop.var))]
    others = [(f"{name}_{n}", size) for n, size in enumerate(shape) if n != axis]
    body = Substitution(reads={source.name: read}).stmt(loop.body)
    inside = block([nested(others, block(turns)), body])
    first = moved("first", keep, step, e.index(0))
    return Alloc(window, block([first, For(loop.var, loop.extent, LoopKind.SERIAL, inside)]))
