"""The signature of a model: its inputs' types, computed from declared shapes and the shapes that
users fix."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from farrier.errors import UnresolvedShapeError, UsageError
from farrier.frontends.builder.data_dims import DataDim, Key
from farrier.ir.dim import Extent, Question, bounds, symbols
from farrier.ir.types import DType, TensorType
from farrier.options.shapes import (
    DEFAULT_HIGH,
    MAX_EXTENT,
    DimSum,
    GivenShape,
    Hot,
    NamedDim,
    OpenDim,
    Precondition,
    Size,
    parse_dim,
    parse_sum,
)

_NOTHING: Hot = {}

DeclaredDim: TypeAlias = int | str


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """An input as the model declares it.

    An open dim is a name or "?"; `dims` is None if the rank is unknown. Strings have dtype u32, for
    code points; their `dims` do not include the width.
    """

    name: str
    dtype: DType
    dims: tuple[DeclaredDim, ...] | None
    is_strings: bool = False

    def text(self) -> str:
        """Return a text such as `f32[1, 3, height, ?]`."""
        dims = "…" if self.dims is None else ", ".join(map(str, self.dims))
        return f"{'string' if self.is_strings else self.dtype}[{dims}]"


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """The type of every input by name, the open dims in these types, and the names of inputs that
    are strings.

    `names` are the user's names of each input's axes, "" for constant axes. `pinned` are the names
    of dims whose typical size the user chose; `implied` are the names of dims whose typical size a
    branch of the model requires. `preconditions` are assumptions about dims beyond their declared
    ranges, and `notices` describe assumptions that exclude plausible sizes.
    """

    types: dict[str, TensorType]
    dims: tuple[NamedDim, ...]
    strings: frozenset[str]
    names: dict[str, tuple[str, ...]]
    pinned: frozenset[str] = frozenset()
    implied: frozenset[str] = frozenset()
    preconditions: tuple[Precondition, ...] = ()
    limits: tuple[Extent, ...] = ()  # One for each precondition: an extent that must be at least 0.
    notices: tuple[str, ...] = ()
    data: Mapping[Key, DataDim] = dataclasses.field(default_factory=dict)  # Narrowed sizes.

    def told(self) -> tuple[Precondition, ...]:
        """Return the preconditions, each with its limit: an extent that must be at least 0."""
        return tuple(
            dataclasses.replace(condition, extent=limit if isinstance(limit, int) else str(limit))
            for condition, limit in zip(self.preconditions, self.limits, strict=True)
        )

    @property
    def open(self) -> tuple[NamedDim, ...]:
        """The dims whose sizes are open, and the data-dependent sizes with restricted ranges
        (`DataDim`)."""
        return (*self.dims, *(size.named for size in self.data.values()))

    def settles(self, question: Question, also: Iterable[str] = ()) -> bool:
        """Check whether narrower ranges can decide the comparison `question`: each symbol in it
        must be an open dim of this signature, or be in `also`."""
        named = {named_dim.symbol for named_dim in self.open}.union(also)
        return all(symbol.name in named for symbol in symbols((question.extent,)))

    def text(self, message: str) -> str:
        """Return a message with the user's names in place of symbols."""
        names = {
            dim.symbol: dim.name if dim.step == 1 else f"({dim.name}/{dim.step})"
            for dim in self.open
        }
        return re.sub(r"\b[skd]\d+\b", lambda match: names.get(match[0], match[0]), message)


def resolve(
    inputs: Sequence[Declared],
    shapes: Mapping[str, GivenShape],
    hot: Sequence[Hot] = (),
    typical: Hot = _NOTHING,
) -> Signature:
    """Return the signature of a model; its open dims become symbols s0, s1, …

    A dim that the model leaves open stays open unless the user fixes it. A named dim has the same
    size wherever it occurs, so the shape of one input may fix others; so do sums that the model
    declares ("past + sequence"). The shape of strings may end with their width in characters, and
    must if the model does not declare their rank; otherwise the width is open. `typical`, or else
    the first of `hot`, is the typical size of dims. Raises UsageError for a shape that contradicts
    the model, and UnresolvedShapeError for an input of unknown rank.
    """
    unknown = sorted(set(shapes) - {declared.name for declared in inputs})
    if unknown:
        raise UsageError(
            f"the model has no input {', '.join(map(repr, unknown))}",
            hint="its inputs: " + ", ".join(f"{d.name} {d.text()}" for d in inputs),
        )
    without_rank = [d for d in inputs if d.dims is None and d.name not in shapes]
    if without_rank:
        raise _unresolved(without_rank)
    sizes: dict[str, Size] = {}  # By the model's names.
    dims: dict[str, list[Size]] = {}
    for declared in inputs:
        if declared.name in shapes:
            dims[declared.name] = _checked(declared, shapes[declared.name], sizes)
    for declared in inputs:
        if declared.name in dims:
            dims[declared.name] = _named(declared, dims[declared.name], sizes)
    for name in _names_alone(inputs):
        sizes.setdefault(name, OpenDim(name))
    for declared in inputs:
        if declared.name not in dims and declared.dims is not None:
            unsaid: list[Size] = [OpenDim("") if isinstance(d, str) else d for d in declared.dims]
            named_dims = _named(declared, unsaid, sizes)
            if declared.is_strings:
                named_dims.append(_width(declared, named_dims))
            dims[declared.name] = named_dims
    return _symbols(inputs, dims, sizes, [typical, *hot])


def _names_alone(inputs: Sequence[Declared]) -> Iterator[str]:
    """Yield each name that the model declares as a dim by itself: `batch`, but not a sum such as
    `past + sequence`."""
    for declared in inputs:
        for size in declared.dims or ():
            if isinstance(size, str) and size != "?" and parse_sum(size) is None:
                yield size


def _size_of(name: str, sizes: Mapping[str, Size]) -> Size | None:
    """Return the size of a dim that the model declares as `name`, which is a single name or a sum
    of names such as "past + sequence". `sizes` are the known sizes by name. Return None if a name
    is unknown."""
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
    """Return the sizes of an input for which the user specified `shape`, after a check against the
    declared dims. The sizes of named dims are added to `sizes`. Raises UsageError if the two
    contradict each other."""
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
    """Return the declared dims of an input, plus the width of strings if `rank` includes it."""
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
    """Return `dims` with each unnamed open dim (`?`) replaced by the size that the model's name for
    this dim has: a number or sum if other inputs determine it, otherwise an open dim of that name.
    New names are added to `sizes`."""
    named: list[Size] = []
    for axis, (size, own) in enumerate(zip(dims, _own_dims(declared, len(dims)), strict=True)):
        if isinstance(size, OpenDim) and not size.name:
            name = f"{declared.name}[{axis}]" if own == "?" else str(own)
            size_of_name = _size_of(name, sizes)
            if size.range is not None and not isinstance(size_of_name, OpenDim | None):
                raise UsageError(
                    f"input {declared.name!r} has {_range_text(*size.range)} at axis {axis}, which "
                    f"other inputs make {size_of_name}",
                    hint="give that axis as ?",
                )
            own_size = OpenDim(
                name if size_of_name is None else str(_name(size_of_name)), size.range
            )
            size = size_of_name if isinstance(size_of_name, int | DimSum) else own_size
            if own != "?":
                sizes.setdefault(name, size)
        named.append(size)
    return named


def _width(declared: Declared, dims: Sequence[Size]) -> Size:
    """Return the width for strings whose width is unspecified: 1 if the tensor is empty, else an
    open dim."""
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
    """Return the signature for inputs with these shapes, in which open dims become symbols s0, s1,
    …. `hot` are sizes of dims by name, of which the first one for a dim is its typical size. The
    user may write the range of a dim at any of its occurrences."""
    ranges: dict[str, tuple[int, int, int]] = {}
    first_axis: dict[str, int] = {}
    for shape in shapes.values():
        for axis, size in enumerate(shape):
            if isinstance(size, OpenDim):
                first_axis.setdefault(size.name, axis)
                if size.range is None or ranges.setdefault(size.name, size.range) == size.range:
                    continue
                first_range, second_range = (
                    _range_text(*limits) for limits in (ranges[size.name], size.range)
                )
                raise UsageError(f"{size.name!r} has two ranges, {first_range} and {second_range}")
    usual = _usual_sizes(inputs, shapes)
    for name, kind in usual.items():
        ranges.setdefault(name, (kind.least, kind.most, 1))
    chosen: dict[str, int] = {}
    for name, number in (item for option in hot for item in option.items()):
        if name not in first_axis:
            raise UsageError(
                f"no dimension named {name!r} is open",
                hint=f"open: {', '.join(first_axis) or 'none; --shape opens one'}",
            )
        low, high, step = ranges[name]
        if not low <= number <= high or number % step:
            raise UsageError(
                f"{name} is {number} in --hot or --typical, and "
                f"{_range_text(low, high, step)} in --shape"
            )
        chosen.setdefault(name, number)
    named: list[NamedDim] = []
    extents: dict[str, Extent] = {}
    for name in first_axis:
        low, high, step = ranges[name]
        size = chosen.get(name, min(max(usual[name].typical, low), high))
        least, most = -(-low // step), high // step
        named_dim = NamedDim(name, f"s{len(named)}", least, most, max(size // step, least), step)
        extents[name] = step * named_dim.extent
        if named_dim.low < named_dim.high:
            named.append(named_dim)
    types = {
        declared.name: TensorType(
            declared.dtype, tuple(_extent(size, extents, sizes) for size in shapes[declared.name])
        )
        for declared in inputs
    }
    names = {
        name: tuple("" if isinstance(size, int) else str(_name(size)) for size in shape)
        for name, shape in shapes.items()
    }
    strings = frozenset(declared.name for declared in inputs if declared.is_strings)
    return Signature(types, tuple(named), strings, names, frozenset(chosen))


def _usual_sizes(
    inputs: Sequence[Declared], shapes: Mapping[str, Sequence[Size]]
) -> dict[str, _Usual]:
    """Return the default range and typical size of each open dim, by name. They depend on the axis
    (batch, length, image side, string width) at which the dim first occurs."""
    usual: dict[str, _Usual] = {}
    for declared in inputs:
        shape = shapes[declared.name]
        kinds = [_BATCH] + [_LENGTH] * (len(shape) - 1)
        for axis in _sides_of_images(shape):
            kinds[axis] = _SIDE
        if declared.is_strings:
            kinds[-1] = _WIDTH
        for size, kind in zip(shape, kinds, strict=False):
            if isinstance(size, OpenDim):
                usual.setdefault(size.name, kind)
    return usual


def _sides_of_images(shape: Sequence[Size]) -> tuple[int, ...]:
    """Return the axes of height and width if a shape is probably that of a batch of images, else
    ()."""
    if len(shape) == 4 and shape[1] in _CHANNELS:
        return 2, 3
    return (1, 2) if len(shape) == 4 and shape[3] in _CHANNELS else ()


def _extent(size: Size, extents: Mapping[str, Extent], sizes: Mapping[str, Size]) -> Extent:
    """Return a size as an extent. `extents` maps the names of open dims to extents; `sizes` maps
    the names that the model declares to sizes."""
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Usual:
    """The default range and typical size of an open dim. The size may be 0, as for a batch without
    detections or a cache before the first token, unless an operator forbids it."""

    typical: int
    most: int = DEFAULT_HIGH
    least: int = 0


_BATCH = _Usual(1)  # The first axis.
_SIDE = _Usual(224)  # An image's height or width.
_WIDTH = _Usual(16, least=1)  # In characters, of strings.
LENGTH = 128  # A sequence's typical length.
_LENGTH = _Usual(LENGTH, 1 << 20)  # The bound covers a minute of sound, and longer sequences.
_CHANNELS = (1, 3)  # Of images.


def _unresolved(inputs: Sequence[Declared]) -> UnresolvedShapeError:
    shapes = " ".join(f"--shape {declared.name}=1,3,224,224" for declared in inputs)
    return UnresolvedShapeError(
        "the model does not declare how many dimensions these inputs have: "
        + ", ".join(f"{declared.name} {declared.text()}" for declared in inputs),
        hint=f"give numbers, or names for what stays open (batch,3,h,w): {shapes}",
    )
