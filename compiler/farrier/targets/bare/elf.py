"""Objects of 32 bits: the sizes of their sections, and the symbols that they lack.

The layout is that of the ELF specification (Tool Interface Standard, version 1.2): little endian.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator

# A section is its name, type, flags, address, offset, size, link and three more; a symbol is its
# name, value, size, info, other and section.
_SECTION = struct.Struct("<10I")
_SYMBOL = struct.Struct("<3IBBH")
_WRITE, _ALLOC = 1, 2
_SYMBOLS, _NO_BITS = 2, 8
_WEAK = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Sections:
    """The bytes of an object in flash and in RAM."""

    flash_bytes: int
    ram_bytes: int


def sections_of(content: bytes) -> Sections:
    """Return the sizes of the sections that a program loads. A variable counts in both memories,
    because its first value lies in flash."""
    flash = ram = 0
    for _, kind, flags, _, _, size, *_ in _sections(content):
        if flags & _ALLOC:
            flash += size if kind != _NO_BITS else 0
            ram += size if flags & _WRITE else 0
    return Sections(flash, ram)


def undefined_symbols(content: bytes) -> list[str]:
    """Return the symbols that an object needs and does not define, sorted."""
    sections = list(_sections(content))
    names: set[str] = set()
    for section in sections:
        if section[1] != _SYMBOLS:
            continue
        offset, size, strings = section[4], section[5], sections[section[6]][4]
        for at in range(offset + _SYMBOL.size, offset + size, _SYMBOL.size):  # The first is empty.
            name, _, _, info, _, index = _SYMBOL.unpack_from(content, at)
            if index == 0 and info >> 4 != _WEAK:
                end = content.index(b"\0", strings + name)
                names.add(content[strings + name : end].decode())
    return sorted(names)


def _sections(content: bytes) -> Iterator[tuple[int, ...]]:
    (start,) = struct.unpack_from("<I", content, 32)
    size, count = struct.unpack_from("<2H", content, 46)
    for number in range(count):
        yield _SECTION.unpack_from(content, start + number * size)
