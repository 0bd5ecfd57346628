"""Canonicalize tensor programs: merge axes that are contiguous in every buffer into one axis.

before:  total[i0, i1] = sum(x[r0, i1, r2, r3] for r0, r2, r3 in axes(4, 5, 6))     i0 of extent 1
after:   total[i1] = sum(x[r0, i1, r2] for r0, r2 in axes(4, 30))

A merged axis makes one long loop of short ones, and no index needs a division. Two neighbouring
axes are merged if every buffer that is indexed by either is indexed by both, in this order, as
neighbouring dimensions of a row-major layout. Extents may be symbols. Constants keep their shapes,
because a schedule may choose their layout.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from farrier.ir import expr as e
from farrier.ir.dim import product
from farrier.ir.expr import Axis, Buffer, Expr, Load, MemoryScope, Reduce, Var
from farrier.ir.substitute import Substitution
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.walk import walk

# Groups of neighbouring dimensions, each of which is merged into one.
_Groups: TypeAlias = tuple[tuple[int, ...], ...]
# The name of the axis that a scalar gets.
_UNIT = Axis("unit", 1)


def with_joined_axes(program: TensorProgram) -> TensorProgram:
    """Return the program without axes of extent one, and with axes merged that are contiguous in
    every buffer. A scalar gets one axis, of extent one."""
    bare = _without_unit_axes(program)
    return _joined(bare, _Links.of(bare))


# -- axes of extent one ----------------------------------------------------------------------------


def _without_unit_axes(program: TensorProgram) -> TensorProgram:
    """Return the program without dimensions of extent one, except for the last dimension of a
    buffer that has no other."""
    kept = {b.name: _long_dims(b) for b in _buffers(program) if _is_free(b)}
    changed = {
        buffer.name: _reshaped(buffer, tuple((at,) for at in kept[buffer.name]))
        for buffer in _buffers(program)
        if buffer.name in kept and len(kept[buffer.name]) != len(buffer.shape)
    }
    stages = []
    for stage in program.stages:
        own = kept.get(stage.buffer.name, tuple(range(len(stage.axes))))
        axes = tuple(stage.axes[at] for at in own if at < len(stage.axes)) or (_UNIT,)
        stages.append(Stage(stage.buffer, axes, _long_axes(stage, axes)))
    return _replaced(program, stages, changed, kept)


def _long_dims(buffer: Buffer) -> tuple[int, ...]:
    long = tuple(at for at, extent in enumerate(buffer.shape) if extent != 1)
    return long or (0,)


def _long_axes(stage: Stage, axes: tuple[Axis, ...]) -> Expr:
    """Return the expression of a stage with 0 substituted for axes of extent one."""
    body, kept = stage.body, {axis.name for axis in axes}
    if isinstance(body, Reduce):
        long = tuple(axis for axis in body.axes if axis.extent != 1) or body.axes[:1]
        body = Reduce(body.op, long, body.body)
        kept |= {axis.name for axis in long}
    return Substitution({a.name: e.index(0) for a in stage.all_axes if a.name not in kept}).expr(
        body
    )


# -- axes that lie together ------------------------------------------------------------------------


@dataclasses.dataclass
class _Links:
    """Pairs of neighbours that may be merged: dimensions of buffers by the number of the first
    dimension, and axes of stages by the name of the first axis."""

    # Pairs of neighbouring dimensions: the buffer, and the number of the first dimension.
    dims: set[tuple[str, int]]
    # Pairs of neighbouring axes: the buffer of the stage, and the name of the first axis.
    axes: set[tuple[str, str]]

    @classmethod
    def of(cls, program: TensorProgram) -> _Links:
        """Return the largest set of pairs that is consistent with all accesses, by removing pairs
        from the set of all neighbours until nothing changes."""
        links = cls(
            {(b.name, at) for b in _buffers(program) if _is_free(b) for at in range(_rank(b) - 1)},
            {(s.buffer.name, first.name) for s in program.stages for first, _ in _neighbours(s)},
        )
        before = -1
        while before != (before := len(links.dims) + len(links.axes)):
            for stage in program.stages:
                links._visit(stage)
        return links

    def _visit(self, stage: Stage) -> None:
        """Remove the pairs that the accesses of a stage do not allow to merge."""
        name = stage.buffer.name
        for at, (first, _) in enumerate(itertools.pairwise(stage.axes)):
            self._tie(name, at, name, first.name)
        follows = {first.name: second for first, second in _neighbours(stage)}
        extents = {axis.name: axis.extent for axis in stage.all_axes}
        joint: collections.Counter[tuple[str, bool]] = collections.Counter()
        for load in (node for node in walk(stage.body) if isinstance(node, Load)):
            shape = load.buffer.shape
            for at, (left, right) in enumerate(itertools.pairwise(load.indices)):
                second = follows.get(left.name) if isinstance(left, Var) else None
                if second is None or right != Var(second.name) or shape[at + 1] != second.extent:
                    self.dims.discard((load.buffer.name, at))
                    continue
                assert isinstance(left, Var)
                if shape[at] != extents[left.name]:
                    self.dims.discard((load.buffer.name, at))
                self._tie(load.buffer.name, at, name, left.name)
                if (load.buffer.name, at) in self.dims:
                    joint[left.name, True] += 1
                    joint[second.name, False] += 1
        self._drop_lone(stage, joint)

    def _drop_lone(self, stage: Stage, joint: Mapping[tuple[str, bool], int]) -> None:
        """Remove each pair of axes of the stage if either axis occurs in an index without the
        other. `joint` counts how often the two occur together."""
        used = collections.Counter(n.name for n in walk(stage.body) if isinstance(n, Var))
        for first, second in _neighbours(stage):
            together = joint.get((first.name, True), 0)
            if used[first.name] != together or used[second.name] != together:
                self.axes.discard((stage.buffer.name, first.name))

    def _tie(self, buffer: str, at: int, stage: str, axis: str) -> None:
        """Keep two pairs consistent: dimensions `at` and `at + 1` of `buffer`, and the axes of
        `stage` that index them, of which `axis` is the first. They can only be merged together, so
        if either pair was removed, remove the other one too."""
        if (buffer, at) not in self.dims or (stage, axis) not in self.axes:
            self.dims.discard((buffer, at))
            self.axes.discard((stage, axis))


def _joined(program: TensorProgram, links: _Links) -> TensorProgram:
    """Return the program in which linked dimensions and axes are merged."""
    groups = {b.name: _runs(b, links) for b in _buffers(program)}
    changed = {
        buffer.name: _reshaped(buffer, groups[buffer.name])
        for buffer in _buffers(program)
        if len(groups[buffer.name]) != len(buffer.shape)
    }
    stages = []
    for stage in program.stages:
        body, name = stage.body, stage.buffer.name
        if isinstance(body, Reduce):
            body = Reduce(body.op, _runs_of_axes(body.axes, name, links), body.body)
        stages.append(Stage(stage.buffer, _runs_of_axes(stage.axes, name, links), body))
    kept = {name: tuple(run[0] for run in runs) for name, runs in groups.items()}
    return _replaced(program, stages, changed, kept)


def _runs(buffer: Buffer, links: _Links) -> _Groups:
    runs: list[list[int]] = []
    for at in range(len(buffer.shape)):
        if at and (buffer.name, at - 1) in links.dims:
            runs[-1].append(at)
        else:
            runs.append([at])
    return tuple(map(tuple, runs))


def _runs_of_axes(axes: tuple[Axis, ...], stage: str, links: _Links) -> tuple[Axis, ...]:
    """Return the axes of a stage, or of its reduction, after merging; a merged axis has the name of
    the first."""
    runs: list[list[Axis]] = []
    for axis in axes:
        if runs and (stage, runs[-1][-1].name) in links.axes:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return tuple(Axis(run[0].name, product(axis.extent for axis in run)) for run in runs)


# -- programs --------------------------------------------------------------------------------------


def _replaced(
    program: TensorProgram,
    stages: list[Stage],
    changed: Mapping[str, Buffer],
    kept: Mapping[str, tuple[int, ...]],
) -> TensorProgram:
    """Return the program with the stages `stages`, in which the buffers named in `changed` are
    replaced. `kept` lists the dimensions of each such buffer that the new buffer still has; the
    indices along all other dimensions are dropped."""
    if not changed and tuple(stages) == program.stages:
        return program

    def access(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if buffer.name not in changed:
            return indices
        left = tuple(indices[at] for at in kept[buffer.name] if at < len(indices))
        return left or (e.index(0),)

    change = Substitution(buffers=changed, access=access)

    def own(buffer: Buffer) -> Buffer:
        return changed.get(buffer.name, buffer)

    return dataclasses.replace(
        program,
        inputs=tuple(map(own, program.inputs)),
        stages=tuple(Stage(own(s.buffer), s.axes, change.expr(s.body)) for s in stages),
        outputs=tuple(map(own, program.outputs)),
    )


def _reshaped(buffer: Buffer, runs: _Groups) -> Buffer:
    shape = tuple(product(buffer.shape[at] for at in run if at < _rank(buffer)) for run in runs)
    return dataclasses.replace(buffer, shape=shape, layout=None)


def _is_free(buffer: Buffer) -> bool:
    """Check whether dimensions of a buffer may be merged: its layout is plain and it is not a
    constant."""
    return buffer.is_plain and buffer.scope is not MemoryScope.CONSTANT


def _buffers(program: TensorProgram) -> list[Buffer]:
    """Return all buffers of a program without duplicates."""
    buffers = {b.name: b for b in (*program.inputs, *(s.buffer for s in program.stages))}
    return list(buffers.values())


def _rank(buffer: Buffer) -> int:
    return len(buffer.shape)


def _neighbours(stage: Stage) -> Iterator[tuple[Axis, Axis]]:
    """Yield the pairs of consecutive axes of the result and of the reduction."""
    for axes in (stage.axes, stage.reduced_axes):
        yield from itertools.pairwise(axes)
