"""One traversal for all grammars, derived from the fields of their nodes.

A node is any frozen dataclass of `farrier.ir`, and the annotations of its fields declare its
children. `walk` and `rewrite` follow every field, as graphs and programs require. Loop nests are
traversed thousands of times, so `parts` and `mapper` generate a function for each class and each
kind of child, once, as `dataclasses` generates `__init__`. For `If(condition: Expr, then: Stmt,
otherwise: Stmt | None)` and the kind `Stmt` these are

    lambda node: (node.then, *(() if node.otherwise is None else (node.otherwise,)))

    def mapped(node, change):
        then = change(node.then)
        otherwise = None if node.otherwise is None else change(node.otherwise)
        if then is node.then and otherwise is node.otherwise:
            return node
        return node.__class__(node.condition, then, otherwise)

So a class that is added to a grammar is traversed without further code, or rejected: a field that
holds children in a form that this module does not handle is an error.
"""

from __future__ import annotations

import dataclasses
import operator
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Parts: TypeAlias = Callable[[Any], tuple[Any, ...]]
Mapper: TypeAlias = Callable[[Any, Callable[[Any], Any]], Any]

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


class PerClass(dict[type, T]):
    """A table with an entry for each node class, computed on first access."""

    def __init__(self, derive: Callable[[type], T]) -> None:
        super().__init__()
        self._derive = derive

    def __missing__(self, kind: type) -> T:
        entry = self[kind] = self._derive(kind)
        return entry


def _names(kind: type) -> tuple[str, ...]:
    """Return the names of those fields of the node class `kind` that may contain nodes."""
    return tuple(f.name for f in dataclasses.fields(kind) if f.type not in _LEAVES)


_FIELDS = PerClass(_names)


def children(node: Any) -> list[Any]:
    """Return the nodes directly within `node`, in field order."""
    below = []
    for name in _FIELDS[type(node)]:
        value = getattr(node, name)
        if isinstance(value, tuple):
            below += [item for item in value if dataclasses.is_dataclass(item)]
        elif dataclasses.is_dataclass(value):
            below.append(value)
    return below


def walk(node: Any) -> Iterator[Any]:
    """Yield `node` and every node within it in pre-order."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(children(node))


def rewrite(node: T, visit: Callable[[Any], Any]) -> T:
    """Return `node` with `visit` applied to every node within it and to `node` itself, children
    first.

    `visit` returns its argument to leave it unchanged; unchanged subtrees are shared with the
    input, so the result is `node` itself if nothing changes.
    """
    changes: dict[str, Any] = {}
    for name in _FIELDS[type(node)]:
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


# The forms in which a field holds children of the kind T, with the source that reads them as
# elements of a tuple, and the source that changes them.
_FORMS = {
    "T": ("{0},", "change({0})"),
    "T | None": ("*(() if {0} is None else ({0},)),", "None if {0} is None else change({0})"),
    "tuple[T, ...]": ("*{0},", "same({0}, change)"),
}


def parts(kind: str) -> PerClass[Parts]:
    """Return a table of functions, one for each node class, that return the children of type `kind`
    in field order."""

    def derive(cls: type) -> Parts:
        sources = []
        for name, form in _held(cls, kind).items():
            if form is _NESTED:
                sources.append(f"*[x for part in node.{name} for x in table[type(part)](part)],")
            else:
                sources.append(_FORMS[form][0].format(f"node.{name}"))
        source = "".join(sources)
        if source.count(",") == 1 and source.startswith("*node."):
            source = source[1:-1]  # a tuple already
        else:
            source = f"({source})"
        function: Parts = eval(f"lambda node: {source}", {"table": table})
        return function

    table = PerClass(derive)
    return table


def mapper(kind: str) -> PerClass[Mapper]:
    """Return a table of functions, one for each node class, that apply a function to the children
    of type `kind` and rebuild the node; the node itself is returned if no child changes."""

    def derive(cls: type) -> Mapper:
        held = _held(cls, kind)
        if not held:
            return lambda node, change: node
        lines = ["def mapped(node, change):"]
        for name, form in held.items():
            if form is _NESTED:
                change = f"same(node.{name}, lambda part: table[type(part)](part, change))"
            else:
                change = _FORMS[form][1].format(f"node.{name}")
            lines.append(f"    {name} = {change}")
        lines.append(f"    if {' and '.join(f'{name} is node.{name}' for name in held)}:")
        lines.append("        return node")
        fields = (field.name for field in dataclasses.fields(cls))
        arguments = (name if name in held else f"node.{name}" for name in fields)
        lines.append(f"    return node.__class__({', '.join(arguments)})")
        namespace: dict[str, Any] = {"same": _same, "table": table}
        exec("\n".join(lines), namespace)
        function: Mapper = namespace["mapped"]
        return function

    table = PerClass(derive)
    return table


def leaves(kind: str) -> PerClass[Parts]:
    """Return a table of functions, one for each node class, that return the fields that hold no
    nodes of type `kind`."""

    def derive(cls: type) -> Parts:
        held = _held(cls, kind)
        names = [field.name for field in dataclasses.fields(cls) if field.name not in held]
        source = "".join(f"node.{name}," for name in names)
        function: Parts = eval(f"lambda node: ({source})")
        return function

    return PerClass(derive)


_NESTED = "parts that hold children, such as the tiles of an Intrinsic"


def _held(cls: type, kind: str) -> dict[str, str]:
    """Return, by field name, the form (such as a tuple or an optional value) in which each field of
    a class holds children of type `kind`."""
    held = {}
    for field in dataclasses.fields(cls):
        annotation = str(field.type)
        if re.search(rf"\b{kind}\b", annotation):
            form = re.sub(rf"\b{kind}\b", "T", annotation)
            if form not in _FORMS:
                raise TypeError(f"{cls.__name__}.{field.name}: {annotation} is not traversed")
            held[field.name] = form
        elif (part := re.fullmatch(r"tuple\[(\w+), \.\.\.\]", annotation)) is not None:
            part_class = getattr(sys.modules[cls.__module__], part[1], None)
            if dataclasses.is_dataclass(part_class) and _held(part_class, kind):  # type: ignore[arg-type]
                held[field.name] = _NESTED
    return held


def _same(items: tuple[T, ...], change: Callable[[T], T]) -> tuple[T, ...]:
    """Return the items after `change`; the original tuple if none of them changes."""
    new = tuple(map(change, items))
    return items if all(map(operator.is_, new, items)) else new
