"""Helpers for rewrites of operators on strings: access to code points."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.names import Strings
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import maximum
from farrier.ir.graph import Value
from farrier.ir.strings import codes_of, strings_of
from farrier.ops import Mismatch

Array = npt.NDArray[Any]


def is_strings(scope: ImportScope, name: str) -> bool:
    return bool(name) and isinstance(scope.entry(name), Strings)


def codes(scope: ImportScope, name: str) -> str:
    """Return the name of the code points of strings; raises Mismatch if `name` is not a tensor of
    strings."""
    entry = scope.entry(name)
    if not isinstance(entry, Strings):
        raise Mismatch(f"{name!r} is not a tensor of strings")
    return scope.bind("", entry.codes)


def bind_strings(scope: ImportScope, name: str, codes: str) -> None:
    """Bind `name` to the strings with these code points."""
    entry = scope.entry(codes)
    assert isinstance(entry, Value)
    scope.bind(name, Strings(entry))


def words(values: Any) -> Array:
    """Return the strings of an attribute as an array of dtype `U`; raises ValueError for a string
    that contains NUL."""
    return strings_of(codes_of(np.array(values, object)))


def of_one_width(scope: ImportScope, names: Sequence[str]) -> list[str]:
    """Return the arrays of code points `names`, padded to the width of the widest."""
    widths = [scope.shape(name)[-1] for name in names]
    widest = functools.reduce(maximum, widths)
    last = scope.constant(ints([-1]))
    return [
        name if width == widest else scope.add("Pad", name, [0, widest - width], "", last)
        for name, width in zip(names, widths, strict=True)
    ]
