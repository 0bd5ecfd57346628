"""Keeps an engine to the instructions of an x86-64 level on a machine that has more.

    ENVIRONMENT   variables by which the engine is told
    LIBRARIES     its libraries that ask the processor themselves: patterns in its package's folder

A library that wants AVX-512 has to ask XGETBV whether the system saves its registers (Intel 64
manual, volume 1, section 15.2). In the memory of this process, before anybody calls the library,

    xor ecx, ecx; xgetbv    becomes    xor ecx, ecx; lea eax, [rcx + 7]

which says: x87, SSE and AVX registers, no others. What the library's static initializers have asked
by then stands. The file on the disk is left alone.

Run by `engine.py`, so it needs nothing of Farrier.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ASKS = re.compile(re.escape(b"\x31\xc9\x0f\x01\xd0"))
_SAYS_AVX = b"\x31\xc9\x8d\x41\x07"
_READ, _WRITE, _EXECUTE = 1, 2, 4


def limit(package: str, how: Mapping[str, Any]) -> str:
    """Limits the engine of `package` as `how` says; to be called before its import. Says what was
    done. Raises RuntimeError where a library does not ask, or is not there."""
    done = []
    for name, value in how.get("ENVIRONMENT", {}).items():
        os.environ[name] = value
        done.append(f"{name}={value}")
    for pattern in how.get("LIBRARIES", ()):
        spec = importlib.util.find_spec(package)
        folders = (spec and spec.submodule_search_locations) or ()
        found = [path for folder in folders for path in Path(folder).glob(pattern)]
        if not found:
            raise RuntimeError(f"{package} has no {pattern}")
        done += [f"{path.name}: {patch(path)} XGETBV say AVX" for path in found]
    return ", ".join(done)


def patch(library: Path) -> int:
    """Loads a library and changes what it will believe of the system; how often it asks."""
    ctypes.CDLL(str(library))
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    places = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *_, name = line.split(maxsplit=5)
        if name != os.path.realpath(library) or "x" not in rights:
            continue
        begin, end = (int(text, 16) for text in span.split("-"))
        asks = [match.start() for match in _ASKS.finditer(ctypes.string_at(begin, end - begin))]
        if mprotect(begin, end - begin, _READ | _WRITE | _EXECUTE):
            raise OSError(ctypes.get_errno(), f"cannot write to the code of {library}")
        for offset in asks:
            ctypes.memmove(begin + offset, _SAYS_AVX, len(_SAYS_AVX))
        mprotect(begin, end - begin, _READ | _EXECUTE)
        places += len(asks)
    if not places:
        raise RuntimeError(f"{library} does not ask what registers the system saves")
    return places
