"""The model's inputs: what it declares, what the user fixes or leaves open, and what remains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import onnx

from farrier.errors import InvalidModelError, UnresolvedShapeError, UsageError
from farrier.importer.tensors import dtype_of
from farrier.ir.dim import Extent
from farrier.ir.types import DType, TensorType
from farrier.shapes import DEFAULT_HIGH, GivenShape, Hot, NamedDim, OpenDim, parse_dim

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
    shape may settle others. The shape of strings may end with their width in characters, and must
    where the model does not declare its rank; the width is open where none is given. Raises
    UsageError for a shape that clashes with the model, UnresolvedShapeError for what is not given.
    """
    unknown = sorted(set(shapes) - {declared.name for declared in inputs})
    if unknown:
        raise UsageError(
            f"the model has no input {', '.join(map(repr, unknown))}",
            hint="its inputs: " + ", ".join(f"{d.name} {d.text()}" for d in inputs),
        )
    sizes: dict[str, int | OpenDim] = {}  # by the model's names
    dims: dict[str, list[int | OpenDim]] = {}
    for declared in inputs:
        if declared.name in shapes:
            dims[declared.name] = _checked(declared, shapes[declared.name], sizes)
    for declared in inputs:
        known = _known(declared, sizes)
        if known is not None:
            dims.setdefault(declared.name, known)
    if len(dims) < len(inputs):
        raise _unresolved([d for d in inputs if d.name not in dims], sizes)
    return _symbols(inputs, dims, hot)


def _known(declared: Declared, sizes: Mapping[str, int | OpenDim]) -> list[int | OpenDim] | None:
    """The dims of an input of which no shape is given; None where one stays unknown."""
    known: list[int | OpenDim] = []
    for size in declared.dims if declared.dims is not None else ("?",):
        found = sizes.get(size) if isinstance(size, str) else size
        if found is None:
            return None
        known.append(found)
    return [*known, _width(declared, known)] if declared.is_strings else known


def _checked(
    declared: Declared, shape: GivenShape, sizes: dict[str, int | OpenDim]
) -> list[int | OpenDim]:
    """Holds a given shape against the declared dims, and notes what named dims stand for."""
    given = f"the shape ({', '.join(map(str, shape))}) given for input {declared.name!r}"
    dims = [parse_dim(text) for text in shape]
    hint = f"the model declares {declared.text()}"
    own_dims = ("?",) * len(dims) if declared.dims is None else declared.dims
    if declared.is_strings and declared.dims is not None:
        if len(dims) == len(own_dims):
            dims.append(_width(declared, dims))
        if len(dims) == len(own_dims) + 1:
            own_dims = (*own_dims, "?")
    if len(dims) != len(own_dims):
        raise UsageError(f"{given} has rank {len(dims)}, not {len(own_dims)}", hint=hint)
    if declared.is_strings and (not dims or dims[-1] == 0):
        raise UsageError(f"{given} must end with the strings' width, 1 at least", hint=hint)
    for axis, (size, own) in enumerate(zip(dims, own_dims, strict=True)):
        if isinstance(own, int):
            if size not in (own, OpenDim("")):
                raise UsageError(f"{given} has {shape[axis]} at axis {axis}, not {own}", hint=hint)
            dims[axis] = own
            continue
        if isinstance(size, OpenDim) and not size.name:
            name = f"{declared.name}[{axis}]" if own == "?" else own
            size = dims[axis] = dataclasses.replace(size, name=name)
        if own != "?" and _name(sizes.setdefault(own, size)) != _name(size):
            raise UsageError(
                f"{given} makes {own!r} {_name(size)}, and another input makes it "
                f"{_name(sizes[own])}",
                hint=hint,
            )
    return dims


def _width(declared: Declared, dims: Sequence[int | OpenDim]) -> int | OpenDim:
    """The width of strings of which none is given: open where there are any."""
    return 1 if 0 in dims else OpenDim(f"{declared.name}.width")


def _name(size: int | OpenDim) -> int | str:
    return size.name if isinstance(size, OpenDim) else size


def _symbols(
    inputs: Sequence[Declared], sizes: Mapping[str, Sequence[int | OpenDim]], hot: Sequence[Hot]
) -> Signature:
    """The types, an open dim's range being the one that is written at any of its places."""
    ranges: dict[str, tuple[int, int, int]] = {}
    first_axis: dict[str, int] = {}
    for shape in sizes.values():
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
    widths = {_name(sizes[declared.name][-1]) for declared in inputs if declared.is_strings}
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
    types = {}
    for declared in inputs:
        shape = sizes[declared.name]
        given = tuple(extents[s.name] if isinstance(s, OpenDim) else s for s in shape)
        types[declared.name] = TensorType(declared.dtype, given)
    strings = frozenset(declared.name for declared in inputs if declared.is_strings)
    return Signature(types, tuple(named), strings)


def _range_text(low: int, high: int, step: int) -> str:
    return f"{low}..{high}" if step == 1 else f"{low}..{high}:{step}"


_ANY = (1, DEFAULT_HIGH, 1)
# Sizes to tune for, where the user names none and the range has no end.
_USUAL_BATCH = 1
_USUAL_WIDTH = 16
_USUAL = 128


def _unresolved(
    open_inputs: list[Declared], sizes: Mapping[str, int | OpenDim]
) -> UnresolvedShapeError:
    fixed, opened = [], []
    for declared in open_inputs:
        dims = declared.dims if declared.dims is not None else ("?",)
        known = [d if isinstance(d, int) else _name(sizes.get(d, OpenDim("?"))) for d in dims]
        names = [
            size if size != "?" else f"{own if str(own).isidentifier() else f'dim{axis}'}:1..64"
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
