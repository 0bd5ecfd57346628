"""Rules of operators that move elements, and of views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farrier.frontends.builder import Number
from farrier.frontends.torch.scope import LAST, Scope
from farrier.frontends.torch.table import aten
from farrier.ir.dim import ceildiv, product
from farrier.ir.types import DType
from farrier.ops import NotSupported


@aten("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", view=True)
def view(s: Scope, x: str, shape: Sequence[Number]) -> str:
    return s.reshape(x, shape)


@aten("aten.flatten.using_ints", view=True)
def flatten(s: Scope, x: str, start: int = 0, end: int = -1) -> str:
    if not s.rank(x):
        return s.reshape(x, [1])
    first, last = s.axis(x, start), s.axis(x, end)
    shape = s.shape(x)
    return s.reshape(x, [*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :]])


@aten("aten.unflatten.int", view=True)
def unflatten(s: Scope, x: str, dim: int, sizes: Sequence[Number]) -> str:
    axis = s.axis(x, dim)
    shape = s.shape(x)
    return s.reshape(x, [*shape[:axis], *sizes, *shape[axis + 1 :]])


@aten("aten.transpose.int", "aten.swapaxes.default", view=True)
def transpose(s: Scope, x: str, first: int, second: int) -> str:
    return s.swapped(x, first, second) if s.rank(x) else x


@aten("aten.t.default", "aten.numpy_T.default", "aten.mT.default", view=True)
def t(s: Scope, x: str) -> str:
    return s.swapped(x, -1, -2) if s.rank(x) > 1 else x


@aten("aten.permute.default", view=True)
def permute(s: Scope, x: str, dims: Sequence[int]) -> str:
    return s.transpose(x, [s.axis(x, dim) for dim in dims])


@aten("aten.movedim.int", "aten.movedim.intlist", view=True)
def movedim(s: Scope, x: str, source: Any, destination: Any) -> str:
    sources, places = s.axes(x, source), s.axes(x, destination)
    rest = iter(axis for axis in range(s.rank(x)) if axis not in sources)
    moved = dict(zip(places, sources, strict=True))
    return s.transpose(x, [moved[p] if p in moved else next(rest) for p in range(s.rank(x))])


@aten("aten.unsqueeze.default", view=True)
def unsqueeze(s: Scope, x: str, dim: int) -> str:
    return s.unsqueeze(x, s.axis(x, dim, extra=1))


@aten("aten.squeeze.dim", "aten.squeeze.dims", view=True)
def squeeze(s: Scope, x: str, dims: int | Sequence[int]) -> str:
    axes = [axis for axis in s.axes(x, dims) if s.rank(x) and s.is_size(x, axis, 1)]
    return s.squeeze(x, *axes) if axes else x


@aten("aten.squeeze.default", view=True)
def squeeze_all(s: Scope, x: str) -> str:
    axes = [axis for axis in range(s.rank(x)) if s.is_size(x, axis, 1)]
    return s.squeeze(x, *axes) if axes else x


@aten("aten.expand.default", view=True)
def expand(s: Scope, x: str, sizes: Sequence[Number], implicit: bool = False) -> str:
    own = [1] * (len(sizes) - s.rank(x)) + list(s.shape(x))
    return s.expand(x, [o if size == -1 else size for size, o in zip(sizes, own, strict=True)])


@aten("aten.expand_as.default", view=True)
def expand_as(s: Scope, x: str, other: str) -> str:
    return s.expand(x, s.shape(other))


@aten("aten.view_as.default", "aten.reshape_as.default", view=True)
def view_as(s: Scope, x: str, other: str) -> str:
    return s.reshape(x, s.shape(other))


@aten("aten.slice.Tensor", view=True)
def slice_(
    s: Scope,
    x: str,
    dim: int = 0,
    start: Number | None = None,
    end: Number | None = None,
    step: Number = 1,
) -> str:
    start, end = 0 if start is None else start, LAST if end is None else end
    if (start, end, step) == (0, LAST, 1):
        return x
    return s.slice(x, s.axis(x, dim), start, end, step)


@aten("aten.select.int", view=True)
def select(s: Scope, x: str, dim: int, index: Number) -> str:
    axis = s.axis(x, dim)
    if isinstance(index, int):
        place = s.place(x, axis, index)
        return s.squeeze(s.slice(x, axis, place, place + 1), axis)
    return s.node("Gather", x, s.node("Reshape", [index], s.ints([])), axis=axis)


@aten("aten.narrow.default", view=True)
def narrow(s: Scope, x: str, dim: int, start: Number, length: Number) -> str:
    return s.slice(x, s.axis(x, dim), start, s.numbers("Add", start, length))


@aten("aten.diagonal.default", view=True)
def diagonal(s: Scope, x: str, offset: int = 0, dim1: int = 0, dim2: int = 1) -> str:
    first, second = s.axis(x, dim1), s.axis(x, dim2)
    rest = [axis for axis in range(s.rank(x)) if axis not in (first, second)]
    rows, columns = s.shape(x)[first], s.shape(x)[second]
    if offset or rows != columns:
        raise NotSupported("a diagonal of another matrix than a square one, or beside its own")
    flat = s.reshape(s.transpose(x, [*rest, first, second]), [*_sizes(s, x, rest), -1])
    return s.slice(flat, len(rest), 0, LAST, rows + 1)


def _sizes(s: Scope, x: str, axes: Sequence[int]) -> list[Any]:
    return [s.shape(x)[axis] for axis in axes]


@aten("aten.cat.default", "aten.concat.default")
def cat(s: Scope, tensors: Sequence[str], dim: int = 0) -> str:
    kept = [x for x in tensors if not (s.rank(x) == 1 and s.is_size(x, 0, 0))] or [tensors[0]]
    return s.concat([s.cast(x, s.result) for x in kept], s.axis(kept[0], dim))


@aten("aten.stack.default")
def stack(s: Scope, tensors: Sequence[str], dim: int = 0) -> str:
    axis = s.axis(tensors[0], dim, extra=1)
    return s.concat([s.unsqueeze(s.cast(x, s.result), axis) for x in tensors], axis)


@aten("aten.split.Tensor", "aten.split.default", view=True)
def split(s: Scope, x: str, size: Any, dim: int = 0) -> list[str]:
    count = len(s.call.outputs[0])
    rest = s.shape(x)[s.axis(x, dim)] - size * (count - 1)
    return split_sizes(s, x, [*[size] * (count - 1), rest], dim)


@aten("aten.split_with_sizes.default", "aten.split.sizes", view=True)
def split_sizes(s: Scope, x: str, sizes: Sequence[Number], dim: int = 0) -> list[str]:
    if len(sizes) == 1:
        return [x]
    return list(s.nodes("Split", [x, list(sizes)], len(sizes), axis=s.axis(x, dim)))


@aten("aten.chunk.default", view=True)
def chunk(s: Scope, x: str, chunks: int, dim: int = 0) -> list[str]:
    return split(s, x, ceildiv(s.shape(x)[s.axis(x, dim)], chunks), dim)


@aten("aten.tensor_split.sections", view=True)
def tensor_split(s: Scope, x: str, sections: int, dim: int = 0) -> list[str]:
    extent = s.shape(x)[s.axis(x, dim)]
    sizes = [(extent + sections - 1 - place) // sections for place in range(sections)]
    return split_sizes(s, x, sizes, dim)


@aten("aten.unbind.int", view=True)
def unbind(s: Scope, x: str, dim: int = 0) -> list[str]:
    parts = split_sizes(s, x, [1] * len(s.call.outputs[0]), dim)
    return [s.squeeze(part, s.axis(x, dim)) for part in parts]


@aten("aten.flip.default")
def flip(s: Scope, x: str, dims: Sequence[int]) -> str:
    for axis in s.axes(x, dims):
        x = s.slice(x, axis, -1, -LAST, -1)
    return x


@aten("aten.roll.default")
def roll(s: Scope, x: str, shifts: Any, dims: Any = ()) -> str:
    shifts = shifts if isinstance(shifts, list) else [shifts]
    if not dims:
        return s.reshape(_rolled(s, s.reshape(x, [-1]), 0, shifts[0]), s.shape(x))
    for shift, axis in zip(shifts, s.axes(x, dims), strict=True):
        x = _rolled(s, x, axis, shift)
    return x


def _rolled(s: Scope, x: str, axis: int, shift: Any) -> str:
    extent = s.shape(x)[axis]
    at = -shift % extent
    if at == 0:
        return x
    return s.concat([s.slice(x, axis, at, LAST), s.slice(x, axis, 0, at)], axis)


@aten("aten.repeat.default", "aten.tile.default")
def repeat(s: Scope, x: str, repeats: Sequence[Number]) -> str:
    added = len(repeats) - s.rank(x)
    if added > 0:
        x = s.unsqueeze(x, *range(added))
    return s.node("Tile", x, s.vector([*[1] * -added, *repeats]))


@aten("aten.repeat_interleave.self_int")
def repeat_interleave(
    s: Scope, x: str, repeats: int, dim: int | None = None, output_size: Any = None
) -> str:
    if dim is None:
        x, dim = s.reshape(x, [-1]), 0
    axis = s.axis(x, dim)
    shape = s.shape(x)
    wide = s.expand(s.unsqueeze(x, axis + 1), [*shape[: axis + 1], repeats, *shape[axis + 1 :]])
    return s.reshape(wide, [*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]])


@aten("aten.tril.default")
def tril(s: Scope, x: str, diagonal: Number = 0) -> str:
    return _triangle(s, x, diagonal, 0)


@aten("aten.triu.default")
def triu(s: Scope, x: str, diagonal: Number = 0) -> str:
    return _triangle(s, x, diagonal, 1)


def _triangle(s: Scope, x: str, diagonal: Number, upper: int) -> str:
    if s.dtype(x) is DType.BOOL:
        return s.truth(s.node("Trilu", s.cast(x, DType.U8), diagonal, upper=upper))
    return s.node("Trilu", x, diagonal, upper=upper)


@aten("aten.unfold.default")
def unfold(s: Scope, x: str, dim: int, size: int, step: int) -> str:
    axis = s.axis(x, dim)
    count = (s.shape(x)[axis] - size) // step + 1
    start = s.node("Mul", s.node("Range", 0, count, 1), s.scalar(step, DType.I64))
    places = s.node("Add", s.unsqueeze(start, 1), s.node("Range", 0, size, 1))
    windows = s.node("Gather", x, places, axis=axis)
    order = [a for a in range(s.rank(windows)) if a != axis + 1]
    return s.transpose(windows, [*order, axis + 1])


@aten("aten.meshgrid.indexing", "aten.meshgrid.default")
def meshgrid(s: Scope, tensors: Sequence[str], indexing: str = "ij") -> list[str]:
    order = list(range(len(tensors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = 1, 0
    lengths = [s.shape(x)[0] if s.rank(x) else 1 for x in tensors]
    shape = [lengths[place] for place in order]
    grids = []
    for place, x in enumerate(tensors):
        own: list[Any] = [1] * len(tensors)
        own[order.index(place)] = lengths[place]
        grids.append(s.expand(s.reshape(x, own), shape))
    return grids


@aten(
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.device",
    "aten.to.other",
    "aten.type_as.default",
    "aten._to_copy.default",
)
def converted(s: Scope, x: str, *arguments: Any, **keywords: Any) -> str:
    return s.cast(x, s.result)


@aten(
    "aten.contiguous.default",
    "aten.clone.default",
    "aten.lift_fresh_copy.default",
)
def copy(s: Scope, x: str, **keywords: Any) -> str:
    return x


@aten(
    "aten.detach.default",
    "aten.detach_.default",
    "aten.alias.default",
    "aten.lift_fresh.default",
    "aten.requires_grad_.default",
    view=True,
)
def alias(s: Scope, x: str, *arguments: Any) -> str:
    return x


@aten("aten.view.dtype")
def view_dtype(s: Scope, x: str, dtype: DType) -> str:
    if s.dtype(x) is dtype:
        return x
    if s.dtype(x).nbytes != dtype.nbytes:
        raise NotSupported(f"a view of {s.dtype(x)} as {dtype}")
    return s.node("BitCast", x, to=dtype.value)


@aten("aten.diff.default")
def diff(
    s: Scope,
    x: str,
    n: int = 1,
    dim: int = -1,
    prepend: str | None = None,
    append: str | None = None,
) -> str:
    axis = s.axis(x, dim)
    parts = [part for part in (prepend, x, append) if part is not None]
    x = s.concat([s.cast(part, s.dtype(x)) for part in parts], axis)
    for _ in range(n):
        later, earlier = s.slice(x, axis, 1, LAST), s.slice(x, axis, 0, -1)
        x = s.node("Xor" if s.dtype(x) is DType.BOOL else "Sub", later, earlier)
    return x
