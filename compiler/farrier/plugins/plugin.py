"""An object that another package declares as an entry point: its `group`, name and value.

[project.entry-points."farrier.backends"]
abacus = "abacus:BACKEND"
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
from typing import Any, Generic, TypeVar

from farrier.errors import UsageError

BACKENDS, INTRINSICS, OPERATORS, TEMPLATES = GROUPS = (
    "farrier.backends",
    "farrier.intrinsics",
    "farrier.operators",
    "farrier.templates",
)
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Plugin(Generic[T]):
    """The object `loaded`, and whose it is. `kind` is the word for such objects."""

    kind: str
    name: str
    value: str  # where it is: module:attribute
    package: str
    loaded: T

    def __str__(self) -> str:
        return f"the {self.kind} {self.name} ({self.value}) of the package {self.package}"

    @property
    def way_out(self) -> str:
        """What helps where it is broken."""
        return f"update the package, or pip uninstall {self.package}"


def plugins(group: str, kind: str, wanted: type[T], known_as: str) -> tuple[Plugin[T], ...]:
    """Every entry point of a group, whose objects are instances of `wanted`, which errors know as
    `known_as`. Raises UsageError for one that is not, or cannot be loaded. To look for the first
    reads every installed distribution."""
    return tuple(_loaded(point, kind, wanted, known_as) for point in _points(group))


@functools.cache
def declared() -> tuple[str, ...]:
    """Every entry point that may show in code, and its package's version; none is loaded."""
    found = (point for group in GROUPS for point in _points(group))
    return tuple(f"{_package(one)} {_version(one)} {one.group} {one.value}" for one in found)


@functools.cache
def _all_points() -> Any:
    """What has `select`; its class depends on Python's version."""
    return importlib.metadata.entry_points()


def _points(group: str) -> list[importlib.metadata.EntryPoint]:
    points = _all_points().select(group=group)
    return sorted(points, key=lambda point: (_package(point), point.name))


def _package(point: importlib.metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "unknown"


def _version(point: importlib.metadata.EntryPoint) -> str:
    return point.dist.version if point.dist is not None else ""


def _loaded(
    point: importlib.metadata.EntryPoint, kind: str, wanted: type[T], known_as: str
) -> Plugin[T]:
    try:
        made = point.load()
    except Exception as error:  # whatever a stranger's module does when it is imported
        made, why = None, f"cannot be loaded: {type(error).__name__}: {error}"
    else:
        found = "class" if isinstance(made, type) else type(made).__name__
        why = f"is a {found}, no instance of {known_as}"
    plugin = Plugin(kind, point.name, point.value, _package(point), made)
    # A protocol's subclasses are told by their ancestors alone.
    if wanted not in type(made).__mro__:
        raise UsageError(f"{plugin} {why}", hint=plugin.way_out)
    return plugin
