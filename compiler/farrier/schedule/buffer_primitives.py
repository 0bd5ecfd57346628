"""Schedule primitives that change the memory and the layout of a buffer: set_scope, hoist,
transform_layout, merge_axes, pad_axis, swizzle, partition.
"""

from __future__ import annotations

import dataclasses

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.blocks import coverage
from farrier.ir.dim import is_less
from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.loop import Alloc, Block, For, Function, LoopKind
from farrier.ir.substitute import Indices, Substitution
from farrier.ir.types import Layout, PhysicalDim, Swizzle
from farrier.schedule.nest import NestView, Path, alloc_at, loops


def set_scope(function: Function, buffer: str, scope: MemoryScope) -> Function:
    """Set the memory scope (such as registers or workgroup memory) of an allocated buffer.

    before:
        @function
        def add_one(a: f32[2], b: f32[2]):
            with alloc(f32[2] in local) as t:
                for i in serial(2):
                    t[i] = a[i] + 1.0
                for j in serial(2):
                    b[j] = t[j] * 2.0
    after set_scope("t", "register"):
        @function
        def add_one(a: f32[2], b: f32[2]):
            with alloc(f32[2] in register) as t:
                for i in serial(2):
                    t[i] = a[i] + 1.0
                for j in serial(2):
                    b[j] = t[j] * 2.0
    """
    nest = NestView(function, "set_scope")
    path = _check_scope(nest, buffer, scope)
    alloc = alloc_at(path)
    new = dataclasses.replace(alloc.buffer, scope=scope)
    return nest.replace(path, Substitution(buffers={buffer: new}).stmt(alloc))


def _check_scope(nest: NestView, name: str, scope: MemoryScope) -> Path:
    path = nest.path_to_alloc(name)
    alloc = alloc_at(path)
    if _is_swizzled(alloc.buffer) and scope is not MemoryScope.WORKGROUP:
        nest.fail(f"{name} has a swizzle, which only workgroup buffers have")
    if scope in (MemoryScope.PARAM, MemoryScope.CONSTANT):
        nest.fail(f"{name} is not an argument, so it cannot be in scope {scope}")
    around = {s.kind: s.var for s in path if isinstance(s, For)}
    within = {s.kind: s.var for s in loops(path[-1])}
    if scope is MemoryScope.WORKSPACE:
        for kind, shares in (LoopKind.PARALLEL, "threads"), (LoopKind.BLOCK, "blocks"):
            if kind in around:
                nest.fail(f"the {shares} of {around[kind]} would share the workspace buffer {name}")
        return path
    if LoopKind.PARALLEL in within:
        loop = within[LoopKind.PARALLEL]
        nest.fail(f"{name} is shared by the iterations of the parallel loop {loop}")
    if LoopKind.BLOCK in within:
        nest.fail(f"{name} is shared by the blocks of {within[LoopKind.BLOCK]}")
    if scope is MemoryScope.WORKGROUP:
        if LoopKind.BLOCK not in around:
            nest.fail(f"{name} stands in no block loop")
        if LoopKind.THREAD in around:
            nest.fail(f"each thread of {around[LoopKind.THREAD]} has a {name} of its own")
        return path
    if LoopKind.THREAD in within and alloc.buffer.scope is MemoryScope.WORKGROUP:
        nest.fail(f"{name} is shared by the threads of {within[LoopKind.THREAD]}")
    return path


def hoist(function: Function, buffer: str) -> Function:
    """Move the allocation of a workspace buffer to the outermost position, around all statements of
    the function. Statements inside and outside of the allocation then form a single block.

    before:
        @function
        def twice(a: f32[2], b: f32[2], c: f32[2]):
            for i in serial(2):
                c[i] = a[i]
            with alloc(f32[2] in workspace) as t:
                for j in serial(2):
                    t[j] = a[j] + 1.0
                for k in serial(2):
                    b[k] = t[k] * 2.0
    after hoist("t"):
        @function
        def twice(a: f32[2], b: f32[2], c: f32[2]):
            with alloc(f32[2] in workspace) as t:
                for i in serial(2):
                    c[i] = a[i]
                for j in serial(2):
                    t[j] = a[j] + 1.0
                for k in serial(2):
                    b[k] = t[k] * 2.0
    """
    nest = NestView(function, "hoist")
    path = nest.path_to_alloc(buffer)
    alloc = alloc_at(path)
    if alloc.buffer.scope is not MemoryScope.WORKSPACE:
        nest.fail(f"{buffer} lies in {alloc.buffer.scope}, not in the workspace")
    for stmt in path[:-1]:
        if not isinstance(stmt, Alloc | Block):
            nest.fail(f"{buffer} is allocated within {type(stmt).__name__}, anew each time")
    inside = nest.replace(path, alloc.body)
    return dataclasses.replace(inside, body=Alloc(alloc.buffer, inside.body))


def transform_layout(function: Function, buffer: str, layout: Layout) -> Function:
    """Change the layout of an allocated buffer, or of an argument with constant content.

    before:
        @function
        def add(w: f32[64, 9] in constant, y: f32[64]):
            for o in serial(64):
                for k in serial(9):
                    y[o] = y[o] + w[o, k]
    after transform_layout("w", Layout(((0, 32, 0), (1, 1, 0), (0, 1, 32)))):
        @function
        def add(w: f32[64, 9] @ layout(0 / 32, 1, 0 % 32) in constant, y: f32[64]):
            for o in serial(64):
                for k in serial(9):
                    y[o] = y[o] + w[o, k]

    The indices in the loop nest are logical and do not change; a constant is packed into the new
    layout when the model is compiled.
    """
    nest = NestView(function, "transform_layout")
    new = dataclasses.replace(_check_layout(nest, buffer, layout), layout=layout)
    change = Substitution(buffers={buffer: new})
    params = tuple(change.buffers.get(p.name, p) for p in function.params)
    return dataclasses.replace(function, params=params, body=change.stmt(function.body))


def _check_layout(nest: NestView, name: str, layout: Layout) -> Buffer:
    buffer = nest.param(name)
    if buffer is None:
        alloc = alloc_at(nest.path_to_alloc(name))
        buffer = alloc.buffer
    elif buffer.scope is not MemoryScope.CONSTANT:
        nest.fail(f"the layout of the argument {name} is part of the kernel's signature")
    if any(map(any, layout.halo)):
        nest.fail(f"a halo for {name}, which no nest would fill")
    if layout.swizzle is not None:
        nest.fail(f"a swizzle for {name}: the primitive `swizzle` checks one")
    for axis in range(len(buffer.shape)):
        parts = sorted((d for d in layout.dims if d.axis == axis), key=lambda d: d.div)
        expected = 1
        for part in parts:
            if part.div != expected or (part.mod == 0) is not (part is parts[-1]):
                nest.fail(f"layout {layout.dims} does not cover axis {axis} of {name} once")
            expected *= part.mod
        if not parts:
            nest.fail(f"layout {layout.dims} leaves out axis {axis} of {name}")
    if any(d.axis >= len(buffer.shape) for d in layout.dims):
        nest.fail(f"layout {layout.dims} has more axes than {name}")
    _check_memory(nest, buffer, dataclasses.replace(buffer, layout=layout))
    return buffer


def _check_memory(nest: NestView, old: Buffer, new: Buffer) -> None:
    """Check that every access stays within the memory that the buffer has in the layout `new`.
    In the layout `old`, loops may access the padding at the end of the last block, beyond the
    shape."""
    for axis in range(len(old.shape)):
        if coverage(new, axis) < coverage(old, axis):
            nest.fail(
                f"axis {axis} of {old.name} is used up to {coverage(old, axis)}, "
                f"the new layout ends at {coverage(new, axis)}"
            )


def merge_axes(function: Function, buffer: str, axis: int) -> Function:
    """Merge two neighbouring axes of an allocated buffer into one axis.

    before:
        @function
        def add_one(a: f32[49], b: f32[49]):
            with alloc(f32[7, 7] in workspace) as t:
                for f in serial(49):
                    t[f // 7, f % 7] = a[f] + 1.0
                for g in serial(49):
                    b[g] = t[g // 7, g % 7]
    after merge_axes("t", 0):
        @function
        def add_one(a: f32[49], b: f32[49]):
            with alloc(f32[49] in workspace) as t:
                for f in serial(49):
                    t[f] = a[f] + 1.0
                for g in serial(49):
                    b[g] = t[g]
    """
    nest = NestView(function, "merge_axes")
    path = nest.path_to_alloc(buffer)
    alloc = alloc_at(path)
    old = alloc.buffer
    if not 0 <= axis < len(old.shape) - 1:
        nest.fail(f"{buffer} has no axes {axis} and {axis + 1}")
    if old.layout is not None and not _lie_together(old.layout, axis):
        nest.fail(f"axes {axis} and {axis + 1} of {buffer} do not lie together")
    inner = old.shape[axis + 1]
    shape = (*old.shape[:axis], old.shape[axis] * inner, *old.shape[axis + 2 :])
    new = dataclasses.replace(old, shape=shape, layout=_merged(old.layout, axis))
    simplifier = Simplifier(nest.ranges())

    def merged(accessed: Buffer, indices: Indices) -> Indices:
        if accessed.name != buffer:
            return indices
        joint = simplifier.simplify(e.add(e.mul(indices[axis], inner), indices[axis + 1]))
        return (*indices[:axis], joint, *indices[axis + 2 :])

    return nest.replace(path, Substitution(buffers={buffer: new}, access=merged).stmt(alloc))


def pad_axis(function: Function, buffer: str, axis: int, extent: int) -> Function:
    """Add unused elements to an axis of an allocated buffer.

    before:
        @function
        def turn(a: f32[36, 64], b: f32[64, 36]):
            with alloc(f32[36, 64] in workspace) as t:
                for i in serial(36):
                    for j in serial(64):
                        t[i, j] = a[i, j] + 1.0
                for k in serial(64):
                    for l in serial(36):
                        b[k, l] = t[l, k]
    after pad_axis("t", 1, 65):
        @function
        def turn(a: f32[36, 64], b: f32[64, 36]):
            with alloc(f32[36, 65] in workspace) as t:
                for i in serial(36):
                    for j in serial(64):
                        t[i, j] = a[i, j] + 1.0
                for k in serial(64):
                    for l in serial(36):
                        b[k, l] = t[l, k]

    Elements whose distance is a multiple of a large power of two compete for a few sets of a cache;
    unused elements between them spread them over all sets.
    """
    nest = NestView(function, "pad_axis")
    path = _check_pad(nest, buffer, axis, extent)
    alloc = alloc_at(path)
    shape = alloc.buffer.shape
    new = dataclasses.replace(alloc.buffer, shape=(*shape[:axis], extent, *shape[axis + 1 :]))
    return nest.replace(path, Substitution(buffers={buffer: new}).stmt(alloc))


def _check_pad(nest: NestView, name: str, axis: int, extent: int) -> Path:
    path = nest.path_to_alloc(name)
    alloc = alloc_at(path)
    if not 0 <= axis < len(alloc.buffer.shape):
        nest.fail(f"{name} has no axis {axis}")
    if _is_swizzled(alloc.buffer):
        nest.fail(f"{name} has a swizzle, which its rows must keep filling")
    if not is_less(alloc.buffer.shape[axis] - 1, extent):
        nest.fail(f"axis {axis} of {name} has {alloc.buffer.shape[axis]} elements, not {extent}")
    return path


def swizzle(function: Function, buffer: str, chunk: int, rows: int, count: int) -> Function:
    """Permute the elements within each row of a workgroup buffer, so that they are distributed over
    the memory banks. Threads that access the elements of a column then use different banks, as
    threads that access a row do.

    before:
        @function
        def turn(a: f32[8, 8], b: f32[8, 8]):
            for i in block(1):
                with alloc(f32[8, 8] in workgroup) as t:
                    for j in thread(8):
                        for k in serial(8):
                            t[k, j] = a[k, j]
                    for l in thread(8):
                        for m in serial(8):
                            b[m, l] = t[l, m]
    after swizzle("t", 1, 1, 8):
        @function
        def turn(a: f32[8, 8], b: f32[8, 8]):
            for i in block(1):
                with alloc(f32[8, 8] @ layout(0, 1, swizzle=(1, 1, 8)) in workgroup) as t:
                    for j in thread(8):
                        for k in serial(8):
                            t[k, j] = a[k, j]
                    for l in thread(8):
                        for m in serial(8):
                            b[m, l] = t[l, m]

    A chunk is `chunk` neighbouring elements. Chunk `c` of row `r` is stored at the position of
    chunk `c ^ (r // rows % count)`, so no two chunks of a row share a position, and the buffer does
    not grow as it does with `pad_axis`. The indices in the loop nest are logical and do not change.
    """
    nest = NestView(function, "swizzle")
    path = _check_swizzle(nest, buffer, Swizzle(chunk, rows, count))
    alloc = alloc_at(path)
    plain = alloc.buffer.element_layout
    layout = dataclasses.replace(plain, swizzle=Swizzle(chunk, rows, count))
    new = dataclasses.replace(alloc.buffer, layout=layout)
    return nest.replace(path, Substitution(buffers={buffer: new}).stmt(alloc))


def _check_swizzle(nest: NestView, name: str, swizzle: Swizzle) -> Path:
    path = nest.path_to_alloc(name)
    alloc = alloc_at(path)
    buffer = alloc.buffer
    if buffer.scope is not MemoryScope.WORKGROUP:
        nest.fail(f"{name} lies in {buffer.scope}: only workgroup memory has banks")
    if _is_swizzled(buffer):
        nest.fail(f"{name} has a swizzle already")
    layout = buffer.element_layout
    if why := swizzle.why_not(layout.physical_shape(buffer.shape), layout.halo):
        nest.fail(f"{name}: {why}")
    return path


def _is_swizzled(buffer: Buffer) -> bool:
    return buffer.layout is not None and buffer.layout.swizzle is not None


def _lie_together(layout: Layout, axis: int) -> bool:
    """Check whether `axis` and the next axis are two neighbouring dimensions of memory, neither of
    them split into blocks."""
    if any(map(any, layout.halo)) or layout.swizzle is not None:
        return False
    places = [i for i, d in enumerate(layout.dims) if d.axis in (axis, axis + 1)]
    return [layout.dims[i].axis for i in places] == [axis, axis + 1] and places[1] == places[0] + 1


def _merged(layout: Layout | None, axis: int) -> Layout | None:
    if layout is None:
        return None
    dims = (
        dataclasses.replace(d, axis=d.axis - (d.axis > axis))
        for d in layout.dims
        if d.axis != axis + 1
    )
    return Layout(tuple(dims))


def partition(function: Function, buffer: str, axis: int, banks: int) -> Function:
    """Distribute the elements of an axis of an allocated buffer over `banks` banks: element i goes
    to bank i % banks. Hardware can access all banks in the same cycle.

    before:
        @function
        def pairs(a: i32[8], b: i32[4]):
            with alloc(i32[8] in local) as t:
                for i in serial(8):
                    t[i] = a[i]
                for j in serial(4):
                    b[j] = t[2 * j] + t[2 * j + 1]
    after partition("t", 0, 2):
        @function
        def pairs(a: i32[8], b: i32[4]):
            with alloc(i32[8] @ layout(0 % 2, 0 / 2) in local) as t:
                for i in serial(8):
                    t[i] = a[i]
                for j in serial(4):
                    b[j] = t[2 * j] + t[2 * j + 1]

    The axis is split in two, `i % banks` and `i // banks`. Hardware implements each bank as a
    separate memory if all accesses name the bank by a constant.
    """
    nest = NestView(function, "partition")
    path = nest.path_to_alloc(buffer)
    old = alloc_at(path).buffer
    dims = old.element_layout.dims
    if not 0 <= axis < len(old.shape):
        nest.fail(f"{buffer} has no axis {axis}")
    if banks < 2:
        nest.fail(f"{banks} banks of {buffer}")
    if PhysicalDim(axis) not in dims:
        nest.fail(f"axis {axis} of {buffer} is divided already")
    rest = tuple(PhysicalDim(axis, banks) if dim == PhysicalDim(axis) else dim for dim in dims)
    layout = Layout((PhysicalDim(axis, 1, banks), *rest))
    return transform_layout(function, buffer, layout)
