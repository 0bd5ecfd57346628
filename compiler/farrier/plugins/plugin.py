"""An object that another package registers as an entry point, with a `group`, a name and a value:

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
    """An object `loaded` from the entry point of a package. `kind` is the word for such objects in
    messages."""

    kind: str
    name: str
    value: str  # The location of the object: module:attribute.
    package: str
    loaded: T

    def __str__(self) -> str:
        return f"the {self.kind} {self.name} ({self.value}) of the package {self.package}"

    @property
    def way_out(self) -> str:
        """The hint for the user in errors about a broken plugin."""
        return f"update the package, or pip uninstall {self.package}"


def plugins(group: str, kind: str, wanted: type[T], known_as: str) -> tuple[Plugin[T], ...]:
    """Return the plugins that installed packages register as entry points of `group`. Each object
    must be an instance of `wanted`, which messages call `known_as`; `kind` is the word for such
    objects. Raises UsageError for another object, and for an entry point that cannot be loaded. The
    first call reads the metadata of every installed distribution."""
    return tuple(_loaded(point, kind, wanted, known_as) for point in _points(group))


@functools.cache
def declared() -> tuple[str, ...]:
    """Return a description of every entry point that may affect generated code: its package with
    version, group and value. None of them is loaded."""
    points = (point for group in GROUPS for point in _points(group))
    return tuple(
        f"{_package(point)} {_version(point)} {point.group} {point.value}" for point in points
    )


@functools.cache
def _all_points() -> Any:
    """Return all entry points as an object with the method `select`; its class depends on the
    version of Python."""
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
        loaded = point.load()
    except Exception as error:  # Third-party code may raise any exception when it is imported.
        loaded, why = None, f"cannot be loaded: {type(error).__name__}: {error}"
    else:
        class_name = "class" if isinstance(loaded, type) else type(loaded).__name__
        why = f"is a {class_name}, no instance of {known_as}"
    plugin = Plugin(kind, point.name, point.value, _package(point), loaded)
    # A protocol's subclasses can only be recognized by their ancestors.
    if wanted not in type(loaded).__mro__:
        raise UsageError(f"{plugin} {why}", hint=plugin.way_out)
    return plugin
