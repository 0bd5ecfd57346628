"""The shapes to explore: accelerator descriptions, and variations of their fields."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from farrier.errors import UsageError
from farrier.targets.dae.description import Accelerator, from_json, to_features, to_json

_HINT = "--vary port.bytes=4,8, or --vary matrix.inner,matrix.outer=8,16 for equal values"


@dataclasses.dataclass(frozen=True, slots=True)
class Variation:
    """Fields of an accelerator description, such as `port.bytes`, and the values to try. All fields
    of a variation get the same value."""

    fields: tuple[str, ...]
    values: tuple[int, ...]


def parse_variation(text: str) -> Variation:
    """Parse a variation such as `matrix.inner,matrix.outer=8,16`. Raises UsageError."""
    fields, _, values = text.partition("=")
    words = [word.strip() for word in values.split(",")]
    if not fields or not all(word.isdecimal() for word in words):
        raise UsageError(f"--vary {text} is not a field with whole numbers", hint=_HINT)
    names = tuple(name.strip() for name in fields.split(","))
    return Variation(names, tuple(dict.fromkeys(map(int, words))))


def varied(
    bases: Iterable[Accelerator], variations: Sequence[Variation]
) -> tuple[list[Accelerator], list[str]]:
    """Return the distinct shapes for all combinations of the variations, and for each invalid
    combination a sentence that says why. Raises UsageError for an unknown field, and for two shapes
    with the same name."""
    shapes: dict[tuple[str, ...], Accelerator] = {}
    refused = []
    for base in bases:
        for raw in _combinations(base, variations):
            try:
                shape = from_json(raw)
            except UsageError as error:
                refused.append(error.message)
            else:
                shapes.setdefault(to_features(shape), shape)
    names = [shape.name for shape in shapes.values()]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two shapes have the name {name}", hint="change one in its file")
    return list(shapes.values()), refused


def _combinations(
    base: Accelerator, variations: Sequence[Variation]
) -> Iterator[Mapping[str, Any]]:
    for values in itertools.product(*(each.values for each in variations)):
        raw = to_json(base)
        for variation, value in zip(variations, values, strict=True):
            for field in variation.fields:
                _set(raw, field, value)
            raw["name"] += f"-{variation.fields[0]}-{value}"
        yield raw


def _set(raw: dict[str, Any], field: str, value: int) -> None:
    """Set a field of an accelerator description in place. Raises UsageError if the description has
    no numeric field of that name."""
    table, dot, name = field.rpartition(".")
    place = raw.get(table) if dot else raw
    if not isinstance(place, dict) or not isinstance(place.get(name), int):
        raise UsageError(f"--vary {field}: a description has no such number", hint=_HINT)
    place[name] = value
