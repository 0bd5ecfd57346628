"""Keep an engine to the instructions of an x86-64 level on a machine that has more.

    ENVIRONMENT   variables by which the engine is told
    LIBRARIES     its libraries that ask the processor themselves: patterns in its package's folder

A library that wants AVX-512 has to ask XGETBV whether the system saves its registers (Intel 64
manual, volume 1, section 15.2). The engine gets a package of links to its own files, with copies of
those libraries in which

    xor ecx, ecx; xgetbv    has become    xor ecx, ecx; lea eax, [rcx + 7]

which says: x87, SSE and AVX registers, no others.

Run by `engine.py`, so it needs nothing of Farrier.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

_ASKS = b"\x31\xc9\x0f\x01\xd0"
_SAYS_AVX = b"\x31\xc9\x8d\x41\x07"


def limit(package: str, how: Mapping[str, Any], folder: Path) -> str:
    """Limit the engine of `package` as `how` says; to be called before its import. Copies go to
    `folder`. Says what was done. Raises RuntimeError where a library is not there, or does not ask.
    """
    done = []
    for name, value in how.get("ENVIRONMENT", {}).items():
        os.environ[name] = value
        done.append(f"{name}={value}")
    if "LIBRARIES" in how:
        spec = importlib.util.find_spec(package)
        (source,) = map(Path, (spec and spec.submodule_search_locations) or ())
        libraries = {path for pattern in how["LIBRARIES"] for path in source.glob(pattern)}
        if len(libraries) < len(how["LIBRARIES"]):
            raise RuntimeError(f"{source} lacks one of {', '.join(how['LIBRARIES'])}")
        around = {parent for path in libraries for parent in path.parents}
        _link(source, folder / package, around, libraries)
        sys.path.insert(0, str(folder))
        done += [f"XGETBV of {path.name} says AVX" for path in sorted(libraries)]
    return ", ".join(done)


def _link(source: Path, to: Path, around: Collection[Path], libraries: Collection[Path]) -> None:
    """Link all of a folder but `libraries`, which are changed, and the folders around them."""
    to.mkdir(parents=True)
    for path in source.iterdir():
        if path in around:
            _link(path, to / path.name, around, libraries)
        elif path in libraries:
            (to / path.name).write_bytes(saying_avx(path))
        else:
            (to / path.name).symlink_to(path)


def saying_avx(library: Path) -> bytes:
    """A library that believes of the system that it saves no registers beyond those of AVX."""
    code = library.read_bytes()
    if _ASKS not in code:
        raise RuntimeError(f"{library} does not ask what registers the system saves")
    return code.replace(_ASKS, _SAYS_AVX)
