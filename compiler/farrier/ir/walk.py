"""One traversal for all three grammars, driven by the dataclass fields of their nodes.

A node is any frozen dataclass of `farrier.ir`; its children are the nodes in its fields, directly
or in tuples. Types, layouts, enums, names, arrays and numbers are leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


# Fields annotated so hold no nodes: types, layouts, names and numbers are leaves.
_LEAVES = frozenset(
    (
        "str",
        "int",
        "bool",
        "bytes",
        "int | float | bool",
        "Extent",
        "Dim",
        "Shape",
        "tuple[Symbol, ...]",
        "DType",
        "MemoryScope",
        "LoopKind",
        "UnaryOp",
        "BinaryOp",
        "ReduceOp",
        "TensorType",
        "Layout | None",
        "npt.NDArray[Any] | Derived",
        "tuple[tuple[str, Attribute], ...]",
    )
)


_known: dict[type, tuple[str, ...]] = {}


def _fields(kind: type) -> tuple[str, ...]:
    """The fields of a node class that may hold nodes."""
    names = _known.get(kind)
    if names is None:
        names = tuple(f.name for f in dataclasses.fields(kind) if f.type not in _LEAVES)
        _known[kind] = names
    return names


def children(node: Any) -> list[Any]:
    """The nodes directly below `node`, in field order."""
    found = []
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, tuple):
            found += [item for item in value if dataclasses.is_dataclass(item)]
        elif dataclasses.is_dataclass(value):
            found.append(value)
    return found


def walk(node: Any) -> Iterator[Any]:
    """`node` and every node below it, parents first."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(children(node))


def rewrite(node: T, visit: Callable[[Any], Any]) -> T:
    """`node` with `visit` applied to every node below it and to itself, children first.

    `visit` returns the node it was given where it changes nothing; what is unchanged is shared with
    the input, so an identical result is the same object.
    """
    changes: dict[str, Any] = {}
    for name in _fields(type(node)):
        value = getattr(node, name)
        new: Any = value
        if isinstance(value, tuple):
            items = tuple(
                rewrite(item, visit) if dataclasses.is_dataclass(item) else item for item in value
            )
            if any(a is not b for a, b in zip(items, value, strict=True)):
                new = items
        elif dataclasses.is_dataclass(value):
            new = rewrite(value, visit)
        if new is not value:
            changes[name] = new
    rebuilt = dataclasses.replace(node, **changes) if changes else node  # type: ignore[type-var]
    result: T = visit(rebuilt)
    return result
