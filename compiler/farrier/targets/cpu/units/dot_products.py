"""The selection of a dot-product instruction that computes a contraction's products in groups.

    for k in 32:          t[n] = t[n] + x[m, k] * w[k, n]
    for g in 16, k in 2:  t[n] = t[n] + x[m, 2*g + k] * w[2*g + k, n]       one dot product a step g

A group of the broadcast operand must be contiguous in memory, so that it can be broadcast as one
element. The layout of the other operand is chosen to fit.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from farrier.intrinsics import Dot
from farrier.ir.affine import Simplifier
from farrier.ir.expr import Load, Reduce, Var
from farrier.ir.substitute import variables
from farrier.ir.types import Layout
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.contraction import Contraction, factor_of


@dataclasses.dataclass(frozen=True, slots=True)
class Grouping:
    """A way to compute the products of a sum in groups: the instruction `dot` sums adjacent
    elements along the reduced axis `axis`."""

    dot: Dot
    axis: str

    @property
    def group(self) -> int:
        return self.dot.group


class Neighbours(Protocol):
    """Groups of elements along the reduced axis `axis` that are stored contiguously in a packed
    operand."""

    @property
    def axis(self) -> str: ...

    @property
    def group(self) -> int: ...


def find_grouping(contraction: Contraction, target: CpuTarget) -> Grouping | None:
    """Return the grouping of a contraction's products for a dot-product instruction of the target;
    None if no instruction fits."""
    operands = contraction.broadcast_load.buffer.dtype, contraction.vector_load.buffer.dtype
    dot = target.dot_of(*operands, contraction.stage.buffer.dtype)
    if dot is None or contraction.depthwise or contraction.padded:
        return None
    if target.lanes > max(dot.lanes):  # Vectors multiply more without the instruction.
        return None
    axis = neighbours(contraction, contraction.broadcast_load, dot.group)
    if axis is None or factor_of(contraction.stage, axis) % dot.group:
        return None
    return Grouping(dot, axis) if Var(axis) in contraction.vector_load.indices else None


def neighbours(contraction: Contraction, load: Load, group: int) -> str | None:
    """Return the reduced axis along which each group of `group` elements of a load is contiguous
    and does not cross a block of the layout; None if there is none."""
    layout = load.buffer.layout or Layout.plain(len(load.indices))
    extents = layout.physical_shape(load.buffer.shape)
    inner = [dim for dim, extent in zip(layout.dims, extents, strict=True) if extent != 1]
    if not inner or inner[-1].div > 1 or inner[-1].mod % group:
        return None
    assert isinstance(contraction.stage.body, Reduce)
    axes = (*contraction.stage.axes, *contraction.stage.body.axes)
    index = load.indices[inner[-1].axis]
    form = Simplifier({axis.name: axis.extent for axis in axes}).linear(index)
    axis = next((name for name in contraction.reduction if form.terms.get(Var(name)) == 1), None)
    others = {atom: factor for atom, factor in form.terms.items() if atom != Var(axis or "")}
    if any(axis in variables(atom) for atom in others):
        return None
    straddles = inner[-1].mod and any(term % group for term in (form.const, *others.values()))
    return None if straddles else axis
