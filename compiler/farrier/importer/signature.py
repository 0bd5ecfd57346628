"""The model's inputs: what it declares, what the user fixes or leaves open, and what remains."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import onnx

from farrier.errors import InvalidModelError, UnresolvedShapeError, UsageError
from farrier.importer.tensors import dtype_of
from farrier.ir.dim import Extent, bounds
from farrier.ir.types import DType, TensorType
from farrier.shapes import (
    DEFAULT_HIGH,
    MAX_EXTENT,
    DimSum,
    GivenShape,
    Hot,
    NamedDim,
    OpenDim,
    Size,
    parse_dim,
    parse_sum,
)

_ANONYMOUS = ("", "?", "-1", "None")  # exporters write these for "unknown", and mean no equality

DeclaredDim: TypeAlias = int | str


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """An input as the model declares it.

    An open dim is a name or "?"; `dims` is None where not even the rank is known. Strings are u32,
    their code points; `dims` are without the width.
    """

    name: str
    dtype: DType
    dims: tuple[DeclaredDim, ...] | None
    is_strings: bool = False

    def text(self) -> str:
        """`f32[1, 3, height, ?]`."""
        dims = "…" if self.dims is None else ", ".join(map(str, self.dims))
        return f"{'string' if self.is_strings else self.dtype}[{dims}]"


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """The type of every input by name, the dims that are open in them, and which are strings."""

    types: dict[str, TensorType]
    dims: tuple[NamedDim, ...]
    strings: frozenset[str]


def declared_inputs(graph: onnx.GraphProto) -> list[Declared]:
    """The inputs that a caller must give: those without an initializer."""
    initialized = {tensor.name for tensor in graph.initializer}
    return [_declare(info) for info in graph.input if info.name not in initialized]


def _declare(info: onnx.ValueInfoProto) -> Declared:
    """Raises InvalidModelError for what is not a tensor, and for what has no name."""
    if not info.name:
        raise InvalidModelError("an input has no name")
    if info.type.WhichOneof("value") != "tensor_type":
        kind = info.type.WhichOneof("value") or "without a type"
        raise InvalidModelError(f"input {info.name!r} is no tensor ({kind.removesuffix('_type')})")
    tensor = info.type.tensor_type
    is_strings = tensor.elem_type == onnx.TensorProto.STRING
    dtype = DType.U32 if is_strings else dtype_of(tensor.elem_type, f"input {info.name!r}")
    dims = tuple(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else None
    return Declared(info.name, dtype, dims, is_strings)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> DeclaredDim:
    if dim.WhichOneof("value") == "dim_value" and dim.dim_value > 0:
        return int(dim.dim_value)
    return "?" if dim.dim_param in _ANONYMOUS else str(dim.dim_param)


def resolve(
    inputs: Sequence[Declared], shapes: Mapping[str, GivenShape], hot: Sequence[Hot] = ()
) -> Signature:
    """The type of every input; what the user leaves open are symbols s0, s1, …

    A dim that the model or the user names has one size wherever it occurs, so giving one input's
    shape may settle others; so do sums that the model declares ("past + sequence"). The shape of
    strings may end with their width in characters, and must where the model does not declare its
    rank; the width is open where none is given. Raises UsageError for a shape that clashes with the
    model, UnresolvedShapeError for what is not given.
    """
    unknown = sorted(set(shapes) - {declared.name for declared in inputs})
    if unknown:
        raise UsageError(
            f"the model has no input {', '.join(map(repr, unknown))}",
            hint="its inputs: " + ", ".join(f"{d.name} {d.text()}" for d in inputs),
        )
    sizes: dict[str, Size] = {}  # by the model's names
    dims: dict[str, list[Size]] = {}
    for declared in inputs:
        if declared.name in shapes:
            dims[declared.name] = _checked(declared, shapes[declared.name], sizes)
    for declared in inputs:
        if declared.name in dims:
            dims[declared.name] = _named(declared, dims[declared.name], sizes)
    for declared in inputs:
        known = _known(declared, sizes)
        if known is not None:
            dims.setdefault(declared.name, known)
    if len(dims) < len(inputs):
        raise _unresolved([d for d in inputs if d.name not in dims], sizes)
    return _symbols(inputs, dims, sizes, hot)


def _known(declared: Declared, sizes: Mapping[str, Size]) -> list[Size] | None:
    """The dims of an input of which no shape is given; None where one stays unknown."""
    known: list[Size] = []
    for size in declared.dims if declared.dims is not None else ("?",):
        found = _size_of(size, sizes) if isinstance(size, str) else size
        if found is None:
            return None
        known.append(found)
    return [*known, _width(declared, known)] if declared.is_strings else known


def _size_of(name: str, sizes: Mapping[str, Size]) -> Size | None:
    """What the model's name of a dim stands for, be it a sum of others; None where not known."""
    declared = parse_sum(name)
    if name in sizes or declared is None:
        return sizes.get(name)
    total, terms = declared.constant, list[tuple[str, int]]()
    for part, factor in declared.terms:
        match sizes.get(part):
            case int(number):
                total += factor * number
            case OpenDim(own):
                terms.append((own, factor))
            case _:
                return None
    return DimSum.of(terms, total) if terms else total


def _checked(declared: Declared, shape: GivenShape, sizes: dict[str, Size]) -> list[Size]:
    """Holds a given shape against the declared dims, and notes what named dims stand for."""
    dims = [parse_dim(text) for text in shape]
    if declared.is_strings and declared.dims is not None and len(dims) == len(declared.dims):
        dims.append(_width(declared, dims))
    own_dims = _own_dims(declared, len(dims))
    if len(dims) != len(own_dims):
        raise _clash(declared, shape, f"has rank {len(dims)}, not {len(own_dims)}")
    if declared.is_strings and (not dims or dims[-1] == 0):
        raise _clash(declared, shape, "must end with the strings' width, 1 at least")
    for axis, (size, own) in enumerate(zip(dims, own_dims, strict=True)):
        if isinstance(own, int):
            if size not in (own, OpenDim("")):
                raise _clash(declared, shape, f"has {shape[axis]} at axis {axis}, not {own}")
            dims[axis] = own
        elif own != "?" and _name(size) and _name(sizes.setdefault(own, size)) != _name(size):
            raise _clash(
                declared,
                shape,
                f"makes {own!r} {_name(size)}, and another input makes it {_name(sizes[own])}",
            )
    return dims


def _own_dims(declared: Declared, rank: int) -> tuple[DeclaredDim, ...]:
    """The declared dims, those of strings with their width where the rank has it."""
    if declared.dims is None:
        return ("?",) * rank
    wide = declared.is_strings and rank == len(declared.dims) + 1
    return (*declared.dims, "?") if wide else declared.dims


def _clash(declared: Declared, shape: GivenShape, what: str) -> UsageError:
    return UsageError(
        f"the shape ({', '.join(map(str, shape))}) given for input {declared.name!r} {what}",
        hint=f"the model declares {declared.text()}",
    )


def _named(declared: Declared, dims: Sequence[Size], sizes: dict[str, Size]) -> list[Size]:
    """Dims as `_checked` gives them, each `?` with what the model's name of it stands for: be it
    given with another input, a sum of others, or a size of its own."""
    named: list[Size] = []
    for axis, (size, own) in enumerate(zip(dims, _own_dims(declared, len(dims)), strict=True)):
        if isinstance(size, OpenDim) and not size.name:
            name = f"{declared.name}[{axis}]" if own == "?" else str(own)
            found = _size_of(name, sizes)
            if size.range is not None and not isinstance(found, OpenDim | None):
                raise UsageError(
                    f"input {declared.name!r} has {_range_text(*size.range)} at axis {axis}, which "
                    f"other inputs make {found}",
                    hint="give that axis as ?",
                )
            own_size = OpenDim(name if found is None else str(_name(found)), size.range)
            size = found if isinstance(found, int | DimSum) else own_size
            if own != "?":
                sizes.setdefault(name, size)
        named.append(size)
    return named


def _width(declared: Declared, dims: Sequence[Size]) -> Size:
    """The width of strings of which none is given: open where there are any."""
    return 1 if 0 in dims else OpenDim(f"{declared.name}.width")


def _name(size: Size) -> int | str:
    match size:
        case OpenDim(name):
            return name
        case DimSum():
            return str(size)
        case _:
            return size


def _symbols(
    inputs: Sequence[Declared],
    shapes: Mapping[str, Sequence[Size]],
    sizes: Mapping[str, Size],
    hot: Sequence[Hot],
) -> Signature:
    """The types, an open dim's range being the one that is written at any of its places."""
    ranges: dict[str, tuple[int, int, int]] = {}
    first_axis: dict[str, int] = {}
    for shape in shapes.values():
        for axis, size in enumerate(shape):
            if isinstance(size, OpenDim):
                first_axis.setdefault(size.name, axis)
                if size.range is None or ranges.setdefault(size.name, size.range) == size.range:
                    continue
                one, other = (_range_text(*found) for found in (ranges[size.name], size.range))
                raise UsageError(f"{size.name!r} has two ranges, {one} and {other}")
    chosen: dict[str, int] = {}
    for name, number in (item for one in hot for item in one.items()):
        if name not in first_axis:
            raise UsageError(
                f"no dimension named {name!r} is open",
                hint=f"open: {', '.join(first_axis) or 'none; --shape opens one'}",
            )
        low, high, step = ranges.get(name, _ANY)
        if not low <= number <= high or number % step:
            raise UsageError(
                f"{name} is {number} in --hot, and {_range_text(low, high, step)} in --shape"
            )
        chosen.setdefault(name, number)
    widths = {_name(shapes[declared.name][-1]) for declared in inputs if declared.is_strings}
    named: list[NamedDim] = []
    extents: dict[str, Extent] = {}
    for name, axis in first_axis.items():
        low, high, step = ranges.get(name, _ANY)
        usual = _USUAL_WIDTH if name in widths else _USUAL_BATCH if axis == 0 else _USUAL
        usual = high if high < DEFAULT_HIGH else usual
        usual = chosen.get(name, min(max(usual, low), high))
        least, most = -(-low // step), high // step
        found = NamedDim(name, f"s{len(named)}", least, most, max(usual // step, least), step)
        extents[name] = step * found.extent
        if found.low < found.high:
            named.append(found)
    types = {
        declared.name: TensorType(
            declared.dtype, tuple(_extent(size, extents, sizes) for size in shapes[declared.name])
        )
        for declared in inputs
    }
    strings = frozenset(declared.name for declared in inputs if declared.is_strings)
    return Signature(types, tuple(named), strings)


def _extent(size: Size, extents: Mapping[str, Extent], sizes: Mapping[str, Size]) -> Extent:
    """The extent of a dim; `extents` are those of open dims by name, `sizes` by the model's names
    what each stands for."""
    if isinstance(size, int):
        return size
    if isinstance(size, OpenDim):
        return extents[size.name]
    extent: Extent = size.constant
    for name, factor in size.terms:
        part = OpenDim(name) if name in extents else sizes.get(name)
        if part is None or isinstance(part, DimSum):
            raise UsageError(
                f"no dimension of an input is {name!r} by itself, which {size} takes as known",
                hint=f"open: {', '.join(extents) or 'none'}",
            )
        extent = extent + factor * _extent(part, extents, sizes)
    if bounds(extent)[1] > MAX_EXTENT:
        raise UsageError(f"the dimension {size} ends beyond {MAX_EXTENT}")
    return extent


def _range_text(low: int, high: int, step: int) -> str:
    return f"{low}..{high}" if step == 1 else f"{low}..{high}:{step}"


_ANY = (1, DEFAULT_HIGH, 1)
# Sizes to tune for, where the user names none and the range has no end.
_USUAL_BATCH = 1
_USUAL_WIDTH = 16
_USUAL = 128


def _unresolved(open_inputs: list[Declared], sizes: Mapping[str, Size]) -> UnresolvedShapeError:
    fixed, opened = [], []
    every = [dim for declared in open_inputs for dim in declared.dims or ()]
    suggested: dict[DeclaredDim, str] = {n: str(n) for n in every if str(n).isidentifier()}
    for declared in open_inputs:
        dims = declared.dims if declared.dims is not None else ("?",)
        known = [d if isinstance(d, int) else _name(sizes.get(d, OpenDim("?"))) for d in dims]
        names = [
            size if size != "?" else _suggested(own, axis, suggested)
            for axis, (size, own) in enumerate(zip(known, dims, strict=True))
        ]
        fixed.append(f"--shape {declared.name}={','.join(map(str, known))}")
        opened.append(f"--shape {declared.name}={','.join(map(str, names))}")
    described = ", ".join(f"{d.name} {d.text()}" for d in open_inputs)
    return UnresolvedShapeError(
        f"the model leaves dimensions open: {described}",
        hint=f"give each ? a number: {' '.join(fixed)} or, for all sizes in a range, a name: "
        f"{' '.join(opened)}",
    )


def _suggested(own: DeclaredDim, axis: int, names: dict[DeclaredDim, str]) -> str:
    """How an open dim may be given: by the model's name of it, where that is one in `names`, or by
    one that no other dim has, which is added there."""
    if parse_sum(str(own)) is not None:
        return "?"  # it follows from the others
    name = names.get(own)
    if name is None:
        taken = set(names.values())
        name = next(n for n in map("dim{}".format, itertools.count(axis)) if n not in taken)
        names[name if own == "?" else own] = name
    return f"{name}:1..64"
