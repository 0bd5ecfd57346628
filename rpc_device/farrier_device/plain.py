"""Dataclasses from plain data (JSON's), as a peer of another version may have written it.

While a farm is updated its agents, brokers, workers, servers and clients are of two versions.
Fields are only ever added, so `read` gives a field that is missing its default, and leaves out one
that it does not know. A reader that would do something else than was asked if it left a field out
asks for `whole`: then an unknown field is refused, unless it is empty (null, false, 0, "", []). So
what is added to a request has an empty default, which asks for nothing.

A value of another type than its field's, and a word that its enumeration lacks, is malformed.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Reader: TypeAlias = Callable[[Any, bool], Any]


def read(kind: type[T], raw: object, *, whole: bool = False) -> T:
    """The dataclass `kind` from a decoded JSON object. Raises ValueError that names the field."""
    form: Any = kind  # a class can be hashed, though not for mypy
    value: T = _reader(form)(raw, whole)
    return value


@functools.cache
def _reader(kind: Any) -> _Reader:
    """What turns plain data into a value of the annotation `kind`."""
    outer, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _of_fields(kind)
    if outer is tuple and inner[-1] is Ellipsis:
        return _of_items(_reader(inner[0]))
    if outer is list:
        items = _of_items(_reader(inner[0]))
        return lambda raw, whole: list(items(raw, whole))
    if outer is tuple:
        return _of_row([_reader(item) for item in inner])
    if outer in (types.UnionType, typing.Union):
        (present,) = (_reader(item) for item in inner if item is not types.NoneType)
        return lambda raw, whole: None if raw is None else present(raw, whole)
    if outer in (dict, Mapping):
        return _of_values(_reader(inner[1]))
    if kind is Any:
        return lambda raw, whole: raw
    return _of_words(kind) if issubclass(kind, enum.Enum) else _of_type(kind)


def _of_fields(kind: Any) -> _Reader:
    hints = typing.get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}
    needed = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    }

    def read_fields(raw: Any, whole: bool) -> Any:
        if not isinstance(raw, dict):
            raise ValueError(f"{kind.__name__} is {_shown(raw)}, not an object")
        if missing := needed - raw.keys():
            raise ValueError(f"{kind.__name__} has no {min(missing)}")
        if whole:
            unknown = sorted(name for name in raw.keys() - readers.keys() if raw[name])
            if unknown:
                raise ValueError(f"{kind.__name__} has an unknown {unknown[0]}")
        known = {}
        for name in raw.keys() & readers.keys():
            try:
                known[name] = readers[name](raw[name], whole)
            except ValueError as error:
                raise ValueError(f"{kind.__name__}.{name}: {error}") from None
        return kind(**known)

    return read_fields


def _of_items(item: _Reader) -> _Reader:
    return lambda raw, whole: tuple([item(one, whole) for one in _items(raw)])


def _of_row(items: list[_Reader]) -> _Reader:
    def read_row(raw: Any, whole: bool) -> Any:
        if len(_items(raw)) != len(items):
            raise ValueError(f"{_shown(raw)} has not {len(items)} items")
        return tuple(item(one, whole) for item, one in zip(items, raw, strict=True))

    return read_row


def _of_values(value: _Reader) -> _Reader:
    def read_values(raw: Any, whole: bool) -> Any:
        if not isinstance(raw, dict):
            raise ValueError(f"{_shown(raw)} is not an object")
        return {name: value(one, whole) for name, one in raw.items()}

    return read_values


def _of_words(kind: type[enum.Enum]) -> _Reader:
    return lambda raw, whole: kind(raw)


def _of_type(kind: type) -> _Reader:
    def read_value(raw: Any, whole: bool) -> Any:
        if type(raw) is kind:
            return raw
        if kind is float and type(raw) is int:
            return float(raw)
        raise ValueError(f"{_shown(raw)} is not of type {kind.__name__}")

    return read_value


def _items(raw: Any) -> list[Any]:
    if not isinstance(raw, list):
        raise ValueError(f"{_shown(raw)} is not a list")
    return raw


def _shown(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:57]}..."
