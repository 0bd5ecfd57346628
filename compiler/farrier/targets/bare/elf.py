"""A reader of 32-bit ELF files: section sizes, symbols, segments and relocations.

The layout follows the ELF specification (Tool Interface Standard, version 1.2), little endian.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator

# The fields of a section header are name, type, flags, address, offset, size, link and three more;
# the fields of a symbol are name, value, size, info, other and section.
_SECTION = struct.Struct("<10I")
_SYMBOL = struct.Struct("<3IBBH")
# The fields of a program header are type, offset, virtual and physical address, size in the file
# and three more.
_SEGMENT = struct.Struct("<8I")
_LOAD = 1
_WRITE, _ALLOC = 1, 2
_SYMBOLS, _NO_BITS = 2, 8
_FUNCTION, _GLOBAL, _WEAK, _ABSOLUTE = 2, 1, 2, 0xFFF1
# A relocation begins with its offset, and a word with the symbol number above the type. The sizes
# in bytes are by the type of the section: with and without an addend.
_RELOCATION = struct.Struct("<2I")
_RELOCATIONS = {4: 12, 9: 8}
# The position in the file header of the index of the section with all section names.
_NAMES_AT = 50


@dataclasses.dataclass(frozen=True, slots=True)
class Sections:
    """The number of bytes that an object occupies in flash and in RAM."""

    flash_bytes: int
    ram_bytes: int


def sections_of(content: bytes) -> Sections:
    """Return the bytes of flash and RAM that the sections of an object occupy. An initialized
    variable counts in both, because its initial value is stored in flash."""
    flash = ram = 0
    for _, kind, flags, _, _, size, *_ in _sections(content):
        if flags & _ALLOC:
            flash += size if kind != _NO_BITS else 0
            ram += size if flags & _WRITE else 0
    return Sections(flash, ram)


def loaded(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the loadable segments of a program, as flash address and content."""
    (start,) = struct.unpack_from("<I", content, 28)
    size, count = struct.unpack_from("<2H", content, 42)
    for number in range(count):
        kind, offset, _, address, nbytes, *_ = _SEGMENT.unpack_from(content, start + number * size)
        if kind == _LOAD and nbytes:
            yield address, content[offset : offset + nbytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """An entry of a symbol table. `section` is 0 if the symbol is defined in another file."""

    name: str
    value: int
    kind: int
    binding: int
    section: int


def undefined_symbols(content: bytes) -> list[str]:
    """Return the symbols that an object uses but does not define, sorted. Weak references do not
    count."""
    lacks = (each for each in _symbols(content) if each.name and not each.section)
    return sorted({each.name for each in lacks if each.binding != _WEAK})


def functions(content: bytes) -> dict[str, int]:
    """Return the global functions that an object defines, and their addresses."""
    return {
        each.name: each.value
        for each in _symbols(content)
        if each.section and each.kind == _FUNCTION and each.binding == _GLOBAL
    }


def contents(content: bytes, name: str) -> bytes:
    """Return the bytes of the section `name`. Raises LookupError if there is none."""
    sections = list(_sections(content))
    (index,) = struct.unpack_from("<H", content, _NAMES_AT)
    names = sections[index][4]
    for section in sections:
        at = names + section[0]
        if content[at : content.index(b"\0", at)].decode() == name:
            return content[section[4] : section[4] + section[5]]
    raise LookupError(name)


def relocations(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the address and the type of each relocation that refers to a symbol defined in a
    section of this file."""
    symbols = list(_symbols(content))
    for _, kind, _, _, offset, size, *_ in _sections(content):
        if kind in _RELOCATIONS:
            entry = _RELOCATIONS[kind]
            for at in range(offset, offset + size, entry):
                place, info = _RELOCATION.unpack_from(content, at)
                if symbols[info >> 8].section not in (0, _ABSOLUTE):
                    yield place, info & 0xFF


def _symbols(content: bytes) -> Iterator[Symbol]:
    sections = list(_sections(content))
    for section in sections:
        if section[1] != _SYMBOLS:
            continue
        offset, size, strings = section[4], section[5], sections[section[6]][4]
        for at in range(offset, offset + size, _SYMBOL.size):
            name, value, _, info, _, index = _SYMBOL.unpack_from(content, at)
            end = content.index(b"\0", strings + name)
            text = content[strings + name : end].decode()
            yield Symbol(text, value, info & 15, info >> 4, index)


def _sections(content: bytes) -> Iterator[tuple[int, ...]]:
    (start,) = struct.unpack_from("<I", content, 32)
    size, count = struct.unpack_from("<2H", content, 46)
    for number in range(count):
        yield _SECTION.unpack_from(content, start + number * size)
