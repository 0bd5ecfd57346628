"""The format of code for a core that is loaded into a board's memory: a line of JSON, then the
bytes.

The code is linked at the address 0 and is relocated by multiples of 64 KB: then only whole words,
and instructions that contain the upper half of an address, have to be changed.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping

from farrier_device import codec

IMAGE = "board-image"
"""The kind of a code object that is such an image."""
WORD, THUMB_UPPER, RISCV_UPPER = "word", "thumb-upper", "riscv-upper"
_WORD = struct.Struct("<I")
_HALVES = struct.Struct("<2H")


class ImageError(ValueError):
    """The bytes are not an image, or the image lacks the requested entry point."""


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """The core, the entry points by name, and the offsets to relocate, by kind of relocation."""

    core: str
    entries: Mapping[str, int]
    moved: Mapping[str, tuple[int, ...]]


class BoardImage:
    """An image, parsed from its bytes. Raises ImageError."""

    def __init__(self, header: Header, content: bytes) -> None:
        self.header = header
        self.content = content
        places = [place for moved in header.moved.values() for place in moved]
        if not all(0 <= place <= len(content) - _WORD.size for place in places):
            raise ImageError("a board image has an address to relocate beyond its end")
        if unknown := header.moved.keys() - _MOVES.keys():
            raise ImageError(f"a board image has relocations of the unknown kind {min(unknown)}")

    def to_bytes(self) -> bytes:
        return json.dumps(codec.encode(self.header)).encode() + b"\n" + self.content

    @classmethod
    def of_bytes(cls, data: bytes) -> BoardImage:
        head, _, content = data.partition(b"\n")
        try:
            return cls(codec.loads(Header, head, name="image"), content)
        except ValueError as error:
            raise ImageError(f"this is not code for a board: {error}") from None

    def entry(self, symbol: str) -> int:
        """Return the offset of the entry point with this symbol. Raises ImageError."""
        offset = self.header.entries.get(symbol)
        if offset is None or not 0 <= offset < len(self.content):
            raise ImageError(f"the code has no entry point {symbol}")
        return offset

    def at(self, address: int) -> bytes:
        """Return the bytes of the image relocated to an address, a multiple of 64 KB."""
        content = bytearray(self.content)
        for form, places in self.header.moved.items():
            for place in places:
                _MOVES[form](content, place, address)
        return bytes(content)


def _move_word(content: bytearray, place: int, by: int) -> None:
    (word,) = _WORD.unpack_from(content, place)
    _WORD.pack_into(content, place, (word + by) & 0xFFFFFFFF)


def _move_thumb(content: bytearray, place: int, by: int) -> None:
    """Add `by`, a multiple of 64 KB, to the address whose upper half is the immediate of the MOVT
    instruction at the offset `place` (encoding T1; Armv7-M Architecture Reference Manual, A7.7.79).
    The 16 bits of the immediate are the fields imm4, i, imm3 and imm8 in two halfwords."""
    first, second = _HALVES.unpack_from(content, place)
    upper = (first & 15) << 12 | (first >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | second & 255
    upper = upper + (by >> 16) & 0xFFFF
    first = first & ~0x040F | upper >> 12 | (upper >> 11 & 1) << 10
    second = second & ~0x70FF | (upper >> 8 & 7) << 12 | upper & 255
    _HALVES.pack_into(content, place, first, second)


def _move_riscv(content: bytearray, place: int, by: int) -> None:
    """Add `by`, a multiple of 64 KB, to the address whose upper 20 bits are in the LUI instruction
    at the offset `place` (RISC-V Instruction Set Manual, volume I, 2.3)."""
    (word,) = _WORD.unpack_from(content, place)
    _WORD.pack_into(content, place, word & 0xFFF | (word + by) & 0xFFFFF000)


_MOVES = {WORD: _move_word, THUMB_UPPER: _move_thumb, RISCV_UPPER: _move_riscv}
