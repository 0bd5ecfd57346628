"""The conversion of programs to UF2 files, which boards accept on the disk that they expose over
USB.

Each block of 512 bytes carries 256 bytes of the program and their address (Microsoft, "USB Flashing
Format"). The blocks leave no gap: the RP2040 decides by the number of a block when it erases flash,
so that after a gap it would erase the wrong places (RP2040 datasheet, erratum E14).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from farrier.targets.bare.elf import loaded

_HEAD = struct.Struct("<8I")
_TAIL = struct.Struct("<I")
_FIRST, _SECOND, _LAST = 0x0A324655, 0x9E5D5157, 0x0AB16F30
_HAS_FAMILY = 0x2000
_BLOCK_BYTES, _PAGE_BYTES = 512, 256


def uf2_of(program: bytes, family: int) -> bytes:
    """Return an ELF file as the UF2 blocks for a board family."""
    pages = _pages(program)
    return b"".join(
        _block(address, bytes(pages[address]), number, len(pages), family)
        for number, address in enumerate(sorted(pages))
    )


def _pages(program: bytes) -> dict[int, bytearray]:
    """Return the 256-byte pages from the first to the last byte of a program, by address. Bytes
    between its segments are zero."""
    segments = list(loaded(program))
    first = min(begin for begin, _ in segments) // _PAGE_BYTES * _PAGE_BYTES
    end = max(begin + len(content) for begin, content in segments)
    pages = {at: bytearray(_PAGE_BYTES) for at in range(first, end, _PAGE_BYTES)}
    for begin, content in segments:
        for at, piece in _pieces(begin, content):
            page = pages[at - at % _PAGE_BYTES]
            page[at % _PAGE_BYTES : at % _PAGE_BYTES + len(piece)] = piece
    return pages


def _pieces(begin: int, content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of `content`, placed at the address `begin`, that do not cross a page boundary,
    each with its address."""
    at = 0
    while at < len(content):
        end = at + _PAGE_BYTES - (begin + at) % _PAGE_BYTES
        yield begin + at, content[at:end]
        at = end


def _block(address: int, page: bytes, number: int, count: int, family: int) -> bytes:
    head = _HEAD.pack(_FIRST, _SECOND, _HAS_FAMILY, address, _PAGE_BYTES, number, count, family)
    return (head + page).ljust(_BLOCK_BYTES - _TAIL.size, b"\0") + _TAIL.pack(_LAST)
