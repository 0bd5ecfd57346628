"""The schedule primitive `cache_read`: copy the elements that an iteration reads to a local
buffer.
"""

from __future__ import annotations

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.blocks import coverage
from farrier.ir.dim import is_less, minimum
from farrier.ir.expr import Buffer, Load, Var
from farrier.ir.loop import Alloc, For, Function, Stmt, Store
from farrier.ir.statements import block
from farrier.ir.substitute import Indices, Substitution
from farrier.schedule.accesses import guarded_reads, writes
from farrier.schedule.nest import (
    NestView,
    Path,
    guarded,
    local_scope,
    loops,
    nested,
)
from farrier.schedule.region import Interval, region


def cache_read(function: Function, buffer: str, loop: str, name: str) -> Function:
    """Copy, at the start of each iteration of `loop`, the box of `buffer` that the iteration reads.

    before:
        @function
        def slide(a: f32[10, 7], b: f32[8, 4]):
            for i in serial(8):
                for k in serial(3):
                    for j in serial(4):
                        b[i, j] = b[i, j] + a[i + k, 2 * j]
    after cache_read("a", "i", "c"):
        @function
        def slide(a: f32[10, 7], b: f32[8, 4]):
            for i in serial(8):
                with alloc(f32[3, 7] in local) as c:
                    for c_0 in serial(3):
                        for c_1 in serial(7):
                            c[c_0, c_1] = a[i + c_0, c_1]
                    for k in serial(3):
                        for j in serial(4):
                            b[i, j] = b[i, j] + c[k, j * 2]

    The copy is dense, in the order of the logical axes; its loops are `<name>_<axis>`. If the reads
    are guarded, so that the box may reach past the elements that they read or past the end of the
    buffer, the copy is guarded as well.
    """
    nest = NestView(function, "cache_read")
    path, source, box = _check(nest, buffer, loop, name)
    return nest.replace(path, _edit(nest, path, source, box, name))


def _check(
    nest: NestView, buffer: str, loop_name: str, name: str
) -> tuple[Path, Buffer, tuple[Interval, ...]]:
    path, loop = nest.path_to_loop(loop_name), nest.loop(loop_name)
    guarded = list(guarded_reads(loop.body, buffer))
    if not guarded:
        nest.fail(f"nothing within {loop_name} reads {buffer}")
    if buffer in writes(loop.body):
        nest.fail(f"{loop_name} writes {buffer}, so a copy would grow old")
    nest.require_new_buffer(name)
    reads, conditions = zip(*guarded, strict=True)
    source = reads[0].buffer
    nest.require_new(*(f"{name}_{axis}" for axis in range(len(source.shape))))
    whole = [_memory(source, axis) for axis in range(len(source.shape))]
    inner = frozenset(inside.var for inside in loops(loop.body))
    simplifier = Simplifier(nest.ranges())
    box = region(simplifier, [read.indices for read in reads], inner, whole, conditions)
    return path, source, box


def _memory(buffer: Buffer, axis: int) -> Interval:
    """Return the interval of all indices of an axis for which the buffer has memory, halo
    included."""
    before = buffer.layout.halo_of(axis)[0] if buffer.layout is not None else 0
    return Interval(e.index(-before), coverage(buffer, axis) + before, True)


def _edit(nest: NestView, path: Path, source: Buffer, box: tuple[Interval, ...], name: str) -> Stmt:
    loop = path[-1]
    assert isinstance(loop, For)
    shape = tuple(interval.extent for interval in box)
    copy = Buffer(name, source.dtype, shape, None, local_scope(loop))
    simplifier = Simplifier(nest.ranges())

    def read(indices: Indices) -> Load:
        shifted = (
            simplifier.simplify(e.sub(at, interval.first))
            for at, interval in zip(indices, box, strict=True)
        )
        return Load(copy, tuple(shifted))

    points = tuple(Var(f"{name}_{axis}") for axis in range(len(shape)))
    places = tuple(e.add(i.first, point) for i, point in zip(box, points, strict=True))
    fill: Stmt = Store(copy, points, Load(source, places))
    for axis, (interval, place) in enumerate(zip(box, places, strict=True)):
        memory = _memory(source, axis)
        first, last = simplifier.bounds(interval.first)
        start, _ = simplifier.bounds(memory.first)
        if first < start:
            fill = guarded(fill, e.less(start - 1, place))
        last = last + interval.extent - 1
        if interval.last is not None:
            fill = guarded(fill, simplifier.simplify(e.less(place, e.add(interval.last, 1))))
            last = minimum(last, simplifier.bounds(interval.last)[1])
        if not is_less(last, start + memory.extent):
            fill = guarded(fill, e.less(place, start + memory.extent))
    fill = nested([(point.name, extent) for point, extent in zip(points, shape, strict=True)], fill)
    body = Substitution(reads={source.name: read}).stmt(loop.body)
    return For(loop.var, loop.extent, loop.kind, Alloc(copy, block([fill, body])))
