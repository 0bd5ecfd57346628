"""The schedule space of a kernel for a device with blocks of threads, joined from the spaces of all
rules that apply."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.intrinsics.fragments import FragmentProduct
from farrier.intrinsics.warpgroups import WarpgroupProduct
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.space import JoinedSpace, Space
from farrier.space.task_features import task_features
from farrier.targets.gpu import (
    attention,
    attention_fragments,
    direct,
    few_rows,
    fragment_parts,
    fragments,
    parts,
    points,
    rows,
    tiles,
    transposes,
    warpgroups,
)
from farrier.targets.gpu.device import USUAL, Device, Limits, features

_ALL = (
    attention,
    attention_fragments,
    direct,
    few_rows,
    fragment_parts,
    fragments,
    parts,
    points,
    rows,
    tiles,
    transposes,
    warpgroups,
)
RULES = frozenset(rule.RULE for rule in _ALL)


def space(
    program: TensorProgram | Function,
    limits: Limits,
    device: Device = USUAL,
    products: Sequence[FragmentProduct] = (),
    of_warpgroups: Sequence[WarpgroupProduct] = (),
) -> Space:
    """Return the space with all schedules of a kernel. It joins the spaces of the specialized
    rules that apply, and the space of the rule `points`, which always applies. The first of
    these spaces provides the default schedule. `products` are the fragment products of the
    device's subgroups, and `of_warpgroups` those of its warpgroups."""
    spaces = _special(program, limits, device, products, of_warpgroups)
    spaces.append(points.space(program, limits.packed))
    whole = spaces[0] if len(spaces) == 1 else JoinedSpace(spaces, spaces[0])
    for each in (whole, *spaces):
        each.describe = lambda: {**task_features(program), **features(device)}
    return whole


def _special(
    program: TensorProgram | Function,
    limits: Limits,
    device: Device,
    products: Sequence[FragmentProduct],
    of_warpgroups: Sequence[WarpgroupProduct],
) -> list[Space]:
    """Return the spaces of the specialized rules that apply to a kernel, best first. The rule for
    attention on fragments comes first if it applies, then those for products on fragments, then
    that for attention. All other rules are ordered by estimated time. The rule `rows` is used only
    for kernels without tiled products."""
    on_fragments = attention_fragments.space(program, limits, device, products)
    attended = attention.space(program, limits, device)
    of_fragments = fragments.space(program, limits, device, products)
    tiled = tiles.space(program, limits, device)
    if of_fragments is not None:
        in_parts = fragment_parts.space(program, limits, device, products)
        wide = warpgroups.space(program, limits, device, of_warpgroups, products)
        multiplied = [space for space in (of_fragments, in_parts, wide) if space is not None]
        multiplied.sort(key=_seconds)
        ordered = (on_fragments, *multiplied, attended, tiled)
        return [space for space in ordered if space is not None]
    if attended is not None:
        return [space for space in (attended, tiled) if space is not None]
    first = tiled or rows.space(program, limits, device)
    others = [parts.space(program, limits, device)] if first is not None else []
    if first is tiled:
        others.append(direct.space(program, limits, device))
    others.append(few_rows.space(program, limits, device))
    others.append(transposes.space(program, limits, device))
    return sorted((space for space in (first, *others) if space is not None), key=_seconds)


def _seconds(space: Space) -> float:
    """Return the estimated time of the default schedule of a space."""
    return space.seconds(space.default())
