"""The conversion of dataclasses to JSON and back, also from JSON that a peer of another version
wrote.

While a farm is being updated, its agents, brokers, workers, servers and clients are of two
versions. Fields are only ever added, so `decode` sets a missing field to its default. `Unknown`
lists the policies for a field that the class lacks: a reader that would do something else than
requested if it ignored the field must reject it. New fields of a request have an empty default,
which requests nothing.

A value whose type is not that of its field is malformed, and so is a string that is not in the
field's enumeration. Annotations add checks: `Annotated[int, Range(1, 8)]` bounds a value, `Tagged`
selects the class of an object by one of its fields, and any function can check or convert the
decoded value.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

T = TypeVar("T")


class Unknown(enum.Enum):
    """The policy for a field in JSON that the class does not have. A dataclass can override the
    policy that the caller of `decode` passes, by its class variable `unknown_fields`."""

    IGNORED = enum.auto()
    REFUSED_UNLESS_EMPTY = enum.auto()  # Null, false, 0, "", [] and {} ask for nothing.
    REFUSED = enum.auto()


_Reader: TypeAlias = Callable[[Any, Unknown], Any]
OMIT_EMPTY: Mapping[str, Any] = {"omit empty": True}  # It is metadata of a field: see `encode`.


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """A bound of a number, both ends included; NaN is outside of every range."""

    least: float
    most: float

    def __call__(self, value: float) -> float:
        if not self.least <= value <= self.most:
            raise ValueError(f"{_shown(value)} is not in the range {self.least} to {self.most}")
        return value


@dataclasses.dataclass(frozen=True, slots=True)
class Longest:
    """A bound of the length of a string, list or dict."""

    count: int

    def __call__(self, value: Any) -> Any:
        if len(value) > self.count:
            raise ValueError(f"{_shown(value)} is longer than {self.count}")
        return value


@dataclasses.dataclass(frozen=True, slots=True)
class Null:
    """An annotation for a field whose JSON null means `value`, for example infinity, which JSON
    cannot represent."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tagged:
    """An annotation for a union of classes: the string in the field `tag` of a JSON object selects
    one of `classes`."""

    tag: str
    classes: Mapping[str, Any]


def encodable(text: str) -> str:
    """Return the text unchanged. Raises ValueError if it contains an unpaired surrogate, which
    UTF-8 cannot encode."""
    text.encode()
    return text


def finite(value: float) -> float:
    """Return the value unchanged. Raises ValueError for infinities and NaN, which standard JSON
    cannot represent."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    return value


Natural: TypeAlias = Annotated[int, Range(0, float("inf"))]


def encode(value: Any) -> Any:
    """Return the JSON value of a dataclass or of another value, with everything that it contains.

    The metadata of a field may change its form: with `name`, the field has that name in JSON; with
    `OMIT_EMPTY`, it is left out if it is empty, because peers of older versions do not have the
    field. If the dataclass has a class variable `tag`, a pair of a name and a string, the pair is
    added as a further field, by which a union selects the class.
    """
    if dataclasses.is_dataclass(value):
        return dict([tag] if (tag := getattr(value, "tag", None)) else ()) | {
            _field_name(field): encode(item)
            for field in dataclasses.fields(value)
            if (item := getattr(value, field.name)) or not field.metadata.get("omit empty")
        }
    if isinstance(value, Mapping):
        return {name: encode(item) for name, item in value.items()}
    return [encode(item) for item in value] if isinstance(value, list | tuple) else value


def _field_name(field: dataclasses.Field[Any]) -> str:
    """Return the name that a dataclass field has in JSON."""
    return str(field.metadata.get("name", field.name))


def decode(kind: type[T], raw: object, *, unknown: Unknown = Unknown.IGNORED, name: str = "") -> T:
    """Return the instance of the dataclass `kind`, or the value of another annotation, from a
    parsed JSON value. Raises ValueError with the path to the malformed value; the path begins with
    `name`."""
    try:
        value: T = _reader(typing.cast(Any, kind))(raw, unknown)
    except ValueError as error:
        path, cause = _located(error)
        text = f"{name or _name(kind)}{path}: {cause}"
        if isinstance(cause, UnknownFieldError):
            raise UnknownFieldError(text, cause.field) from None
        raise ValueError(text) from None
    return value


def loads(
    kind: type[T], text: str | bytes, *, unknown: Unknown = Unknown.IGNORED, name: str = ""
) -> T:
    """Parse a JSON text and `decode` the result. Raises ValueError as `decode` does."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name or _name(kind)} is not JSON: {error}") from None
    return decode(kind, raw, unknown=unknown, name=name)


class UnknownFieldError(ValueError):
    """A field that the class lacks has a value that requests something."""

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


class _Misfit(ValueError):
    """The error for a malformed value that is nested in other values. `path` leads to the innermost
    malformed value, and `cause` is its error."""

    def __init__(self, step: str, error: ValueError) -> None:
        path, self.cause = _located(error)
        self.path = step + path
        super().__init__(f"{self.path}: {self.cause}")


def _located(error: ValueError) -> tuple[str, ValueError]:
    return (error.path, error.cause) if isinstance(error, _Misfit) else ("", error)


@functools.cache
def _reader(kind: Any) -> _Reader:
    """Return the function that converts parsed JSON values to values of the annotation `kind`."""
    outer, inner = typing.get_origin(kind), typing.get_args(kind)
    if outer is Annotated:
        return _annotated(inner[0], kind.__metadata__)
    if dataclasses.is_dataclass(kind):
        return _of_fields(kind)
    if outer in (list, Sequence) or (outer is tuple and inner[-1] is Ellipsis):
        return _of_items(_reader(inner[0]), list if outer is list else tuple)
    if outer is tuple:
        return _of_row([_reader(item) for item in inner], tuple)
    if outer in (types.UnionType, typing.Union):
        return _of_union(inner)
    if outer in (dict, Mapping):
        return _of_table(_reader(inner[0]), _reader(inner[1]))
    if kind is Any:
        return lambda raw, unknown: raw
    if issubclass(kind, tuple):  # It is a NamedTuple.
        hints: Any = typing.get_type_hints(kind, include_extras=True)
        return _of_row([_reader(hint) for hint in hints.values()], kind._make)
    return _of_words(kind) if issubclass(kind, enum.Enum) else _of_type(kind)


def _annotated(kind: Any, notes: Sequence[Any]) -> _Reader:
    for note in notes:
        if isinstance(note, Tagged):
            return _of_tagged(note)
    reader = _reader(kind)
    nulls = [note.value for note in notes if isinstance(note, Null)]
    checks = [note for note in notes if callable(note)]

    def read_checked(raw: Any, unknown: Unknown) -> Any:
        if raw is None and nulls:
            return nulls[0]
        value = reader(raw, unknown)
        for check in checks:
            value = check(value)
        return value

    return read_checked


def _of_tagged(tagged: Tagged) -> _Reader:
    def read_tagged(raw: Any, unknown: Unknown) -> Any:
        word = _fields(raw).get(tagged.tag)
        if not isinstance(word, str) or word not in tagged.classes:
            raise ValueError(f"{_shown(word)} is not a {tagged.tag} that this version supports")
        rest = {name: value for name, value in raw.items() if name != tagged.tag}
        return _reader(tagged.classes[word])(rest, unknown)  # A class may hold its own union.

    return read_tagged


def _of_fields(kind: Any) -> _Reader:
    hints = typing.get_type_hints(kind, include_extras=True)
    readers = {_field_name(field): _reader(hints[field.name]) for field in dataclasses.fields(kind)}
    attributes = {_field_name(field): field.name for field in dataclasses.fields(kind)}
    needed = {
        _field_name(field)
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    declared: Unknown | None = getattr(kind, "unknown_fields", None)

    def read_fields(raw: Any, unknown: Unknown) -> Any:
        fate = declared or unknown
        for name in sorted(_fields(raw).keys() - readers.keys()):
            if fate is Unknown.REFUSED or (raw[name] and fate is Unknown.REFUSED_UNLESS_EMPTY):
                raise UnknownFieldError(f"it has an unknown field {name!r}", name)
        if missing := needed - raw.keys():
            raise ValueError(f"it has no field {min(missing)!r}")
        values = {}
        for name, reader in readers.items():
            if name in raw:
                try:
                    values[attributes[name]] = reader(raw[name], unknown)
                except ValueError as error:
                    raise _Misfit(f".{name}", error) from None
        return kind(**values)

    return read_fields


def _of_items(item: _Reader, collect: Callable[[list[Any]], Any]) -> _Reader:
    def read_items(raw: Any, unknown: Unknown) -> Any:
        values: list[Any] = []
        try:
            for each in _items(raw):
                values.append(item(each, unknown))
        except ValueError as error:
            if not isinstance(raw, list | tuple):
                raise
            raise _Misfit(f"[{len(values)}]", error) from None
        return collect(values)

    return read_items


def _of_row(items: list[_Reader], collect: Callable[[list[Any]], Any]) -> _Reader:
    def read_row(raw: Any, unknown: Unknown) -> Any:
        if len(_items(raw)) != len(items):
            raise ValueError(f"{_shown(raw)} does not have {len(items)} items")
        return collect([item(each, unknown) for item, each in zip(items, raw, strict=True)])

    return read_row


def _of_table(key: _Reader, value: _Reader) -> _Reader:
    def read_table(raw: Any, unknown: Unknown) -> Any:
        values = {}
        for name, item in _fields(raw).items():
            try:
                values[key(name, unknown)] = value(item, unknown)
            except ValueError as error:
                raise _Misfit(f"[{_shown(name)}]", error) from None
        return values

    return read_table


def _of_union(kinds: Sequence[Any]) -> _Reader:
    """Return a reader for a union: either of types of which at most one is neither a scalar nor
    null, or of several classes with tags in the same field."""
    if tags := dict(kind.tag for kind in kinds if hasattr(kind, "tag")):
        classes = {kind.tag[1]: kind for kind in kinds}
        return _of_tagged(Tagged(next(iter(tags)), classes))
    scalars = tuple(kind for kind in kinds if kind in (bool, int, str))
    others = [_reader(kind) for kind in kinds if kind not in (*scalars, types.NoneType)]
    has_null = types.NoneType in kinds

    def read_union(raw: Any, unknown: Unknown) -> Any:
        if type(raw) in scalars or (raw is None and has_null):
            return raw
        if others:
            return others[0](raw, unknown)
        names = " or ".join(kind.__name__ for kind in scalars)
        raise ValueError(f"{_shown(raw)} is not of type {names}")

    return read_union


def _of_words(kind: type[enum.Enum]) -> _Reader:
    return lambda raw, unknown: kind(raw)


def _of_type(kind: type) -> _Reader:
    def read_value(raw: Any, unknown: Unknown) -> Any:
        if type(raw) is kind:
            return raw
        if kind is float and type(raw) is int:
            try:
                return float(raw)
            except OverflowError:
                pass
        raise ValueError(f"{_shown(raw)} is not of type {kind.__name__}")

    return read_value


def _fields(raw: Any) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{_shown(raw)} is not an object")
    return raw


def _items(raw: Any) -> Sequence[Any]:
    if not isinstance(raw, list | tuple):
        raise ValueError(f"{_shown(raw)} is not a list")
    return raw


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))


def _shown(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:57]}..."
