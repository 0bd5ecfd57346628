"""The paths of the Python installation and the system's libraries, which a process must be able to
read to load code when `landlock` denies all other paths."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from farrier_device.landlock import Access

_SYSTEM = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/vm",
    "/sys/devices",
    "/sys/bus/pci",
    "/sys/kernel/mm/transparent_hugepage",
    "/dev/urandom",
    "/dev/zero",
)


def readable(secrets: Iterable[Path]) -> dict[Path, Access]:
    """Return the paths that this interpreter, its packages and the system's libraries need, with
    the access to each. Paths at or below a path of `secrets` are excluded."""
    hidden = [Path(os.path.realpath(path)) for path in secrets]
    allowed: dict[Path, Access] = {}
    for place in _places():
        for path, access in without(Path(os.path.realpath(place)), hidden):
            allowed[path] = allowed.get(path, access) | access
    return allowed


def _places() -> Iterator[str]:
    yield from _SYSTEM
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.realpath(sys.executable))
    yield from filter(None, sys.path)
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))


def without(place: Path, hidden: Sequence[Path]) -> Iterator[tuple[Path, Access]]:
    """Yield the paths at or below `place` that stay readable, with the access to each, so that none
    of the `hidden` paths can be read.

    If no hidden path lies below `place`, this is `place` itself. Otherwise `place` may be listed,
    and its entries are treated in the same way. The result is empty if `place` is at or below a
    hidden path.
    """
    if any(place.is_relative_to(path) for path in hidden):
        return
    if not any(path.is_relative_to(place) for path in hidden):
        yield place, Access.READ
        return
    yield place, Access.LIST
    try:
        inside = [*place.iterdir()]
    except OSError:
        return
    for path in inside:
        if not path.is_symlink():  # The target of a link has a rule of its own, or none.
            yield from without(path, hidden)
