"""The restriction of an engine to the instructions of an x86-64 level, on a machine that supports
more.

Before it uses AVX-512, a library has to check with XGETBV whether the system saves the AVX-512
registers (Intel 64 manual, volume 1, section 15.2). The engine is imported from a folder of links
to its own files, with copies of such libraries in which

    xor ecx, ecx; xgetbv    has become    xor ecx, ecx; lea eax, [rcx + 7]

which reports that the system saves the x87, SSE and AVX registers only.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

_ASKS = b"\x31\xc9\x0f\x01\xd0"
_SAYS_AVX = b"\x31\xc9\x8d\x41\x07"


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """The means to restrict an engine to a level: environment variables, and patterns (relative to
    the folder of its package) of the libraries that query the processor themselves."""

    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    libraries: tuple[str, ...] = ()


def apply(limit: Limit, package: str, folder: Path) -> str:
    """Restrict the engine of `package`, which must not be imported yet. Changed copies of libraries
    are written to `folder`. Return a description of the changes. Raises RuntimeError if a library
    is missing or contains no XGETBV."""
    done = []
    for name, value in limit.environment.items():
        os.environ[name] = value
        done.append(f"{name}={value}")
    if limit.libraries:
        spec = importlib.util.find_spec(package)
        (source,) = map(Path, (spec and spec.submodule_search_locations) or ())
        libraries = {path for pattern in limit.libraries for path in source.glob(pattern)}
        if len(libraries) < len(limit.libraries):
            raise RuntimeError(
                f"the folder {source} lacks one of the libraries {', '.join(limit.libraries)}"
            )
        around = {parent for path in libraries for parent in path.parents}
        _link(source, folder / package, around, libraries)
        sys.path.insert(0, str(folder))
        done += [f"XGETBV of {path.name} says AVX" for path in sorted(libraries)]
    return ", ".join(done)


def _link(source: Path, to: Path, around: Collection[Path], libraries: Collection[Path]) -> None:
    """Create the folder `to` with the content of `source`: symbolic links to its entries, but
    patched copies of the files in `libraries`. The folders in `around`, which contain such files,
    are created and filled in the same way."""
    to.mkdir(parents=True)
    for path in source.iterdir():
        if path in around:
            _link(path, to / path.name, around, libraries)
        elif path in libraries:
            (to / path.name).write_bytes(saying_avx(path))
        else:
            (to / path.name).symlink_to(path)


def saying_avx(library: Path) -> bytes:
    """Return the content of a library file in which each XGETBV is patched. The library then
    behaves as if the system saved only the x87, SSE and AVX registers. Raises RuntimeError if the
    file contains no XGETBV."""
    code = library.read_bytes()
    if _ASKS not in code:
        raise RuntimeError(f"{library} contains no XGETBV instruction to patch")
    return code.replace(_ASKS, _SAYS_AVX)
