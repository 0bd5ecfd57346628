"""Rewrite lookups in tables: LabelEncoder, CategoryMapper, and the search for strings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.strings.codes import bind_strings, codes, is_strings, words
from farrier.ir.strings import codes_of
from farrier.ops import Mismatch

Array = npt.NDArray[Any]


def find(scope: ImportScope, rows: str, keys: Array) -> tuple[str, Array]:
    """Look up each row of the tensor `rows` in the table of `keys`. Return the positions in the
    sorted table (the table's length for a row that is absent), and, for each position in the sorted
    table, the position of the key in `keys`. Of equal keys the last is used. Strings are rows of
    code points."""
    if keys.dtype.kind == "U":
        keys = codes_of(keys)
    table, last = np.unique(keys[::-1], axis=0, return_index=True)
    return scope.add("FindRow", rows, scope.constant(table)), len(keys) - 1 - last


def label_encoder(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite LabelEncoder: the value of the key that an element equals (NaN equals NaN), or the
    default."""
    x = node.inputs[0]
    keys, values, default = _mapping(node, is_strings(scope, x))
    if len(keys) != len(values) or not len(keys):
        raise Mismatch(f"{len(keys)} keys for {len(values)} values")
    if keys.dtype.kind == "U":
        rows = codes(scope, x)
    else:
        if keys.dtype.kind == "f":
            x, keys = _bits(scope, x, keys)
        rows = scope.add("Unsqueeze", x, [-1])
        keys = keys[:, None]
    place, kept = find(scope, rows, keys)
    table = scope.constant(np.append(values[kept], default))
    if not is_strings(scope, table):
        return [RawNode("Gather", [table, place], node.outputs, {"axis": 0}, node.origin)]
    labels = scope.add("Gather", codes(scope, table), place, axis=0)
    bind_strings(scope, node.outputs[0], labels)
    return []


def _bits(scope: ImportScope, x: str, keys: Array) -> tuple[str, Array]:
    """Return the floats `x` and the `keys` as integers with the same bits. Zeros and NaNs are first
    replaced by a single representation each, so that equal floats, and all NaNs, have equal
    integers."""
    zero, nan = np.zeros((), keys.dtype), np.full((), np.nan, keys.dtype)
    if (keys == 0).any():
        is_zero = scope.add("Equal", x, scope.constant(zero))
        x = scope.add("Where", is_zero, scope.constant(zero), x)
    if np.isnan(keys).any():
        x = scope.add("Where", scope.add("IsNaN", x), scope.constant(nan), x)
    keys = np.where(np.isnan(keys), nan, np.where(keys == 0, zero, keys))
    bits = scope.add("BitCast", x, to=f"i{8 * keys.itemsize}")
    return bits, keys.view(f"i{keys.itemsize}")


def category_mapper(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite CategoryMapper, a LabelEncoder from strings to integers or from integers to
    strings."""
    x, attrs = node.inputs[0], node.attrs
    keys, values = ("strings", "int64s") if is_strings(scope, x) else ("int64s", "strings")
    mapping = {f"keys_{keys}": attrs[f"cats_{keys}"], f"values_{values}": attrs[f"cats_{values}"]}
    default = f"default_{values.removesuffix('s')}"
    if default in attrs:
        mapping[default] = attrs[default]
    encoder = RawNode(node.op, node.inputs, node.outputs, mapping, node.origin)
    return label_encoder(encoder, opset, scope)


_KINDS: dict[str, tuple[Callable[[Any], Array], Any]] = {  # A list, and the default in its values.
    "strings": (words, "_Unused"),
    "int64s": (functools.partial(np.array, dtype=np.int64), -1),
    "floats": (functools.partial(np.array, dtype=np.float32), -0.0),
}


def _mapping(node: RawNode, of_strings: bool) -> tuple[Array, Array, Array]:
    """Return keys, values and default value; `of_strings` selects the direction."""
    attrs = node.attrs
    if "classes_strings" in attrs:  # In version 1, strings map to their numbers, or back.
        names = words(attrs["classes_strings"])
        numbers = np.arange(len(names))
        keys, values = (names, numbers) if of_strings else (numbers, names)
    else:
        keys, values = _list(node, "keys"), _list(node, "values")
    kind = {"U": "strings", "f": "floats"}.get(values.dtype.kind, "int64s")
    default = attrs.get("default_tensor")
    if default is None:
        as_array, usual = _KINDS[kind]
        default = as_array(attrs.get(f"default_{kind.removesuffix('s')}", usual))
    if default.size != 1 or (default.dtype.kind == "U") != (values.dtype.kind == "U"):
        raise Mismatch(
            f"a default {default.dtype}{list(default.shape)} for values of {values.dtype}"
        )
    is_text = default.dtype.kind == "U"
    return (
        keys,
        values,
        default.reshape(()) if is_text else default.reshape(()).astype(values.dtype),
    )


def _list(node: RawNode, what: str) -> Array:
    for kind, (as_array, _) in _KINDS.items():
        if f"{what}_{kind}" in node.attrs:
            return as_array(node.attrs[f"{what}_{kind}"])
    if f"{what}_tensor" not in node.attrs:
        raise Mismatch(f"it has no {what}")
    array: Array = node.attrs[f"{what}_tensor"]
    return array.reshape(-1)
