"""The file format of a listing: an index, and the texts of each kernel, which can be read
separately.

    magic | length of the index (u64, little-endian) | index | texts of kernel 0 | of kernel 1 | …

The index is the JSON object {"listing": …, "texts": [[offset, length] | null, …]}; offsets are
relative to its end. The texts of a kernel are a JSON object of strings, compressed separately
(zlib). The file is not trusted: all sizes are limited when reading and decompressing.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from farrier.errors import ArtifactError

MOST_BYTES = 64 << 20  # of the file
MOST_INDEX = 8 << 20  # Of the index, unpacked.
LONGEST_TEXT = 2 << 20  # The characters of one text of a kernel.
MOST_TEXTS = 24 << 20  # The characters of all texts of one kernel as JSON.
_MAGIC = b"farrier-listing1"
_LENGTH = struct.Struct("<Q")
_LEVEL = 3  # A level of zlib: 6 takes twice the time for a tenth less.


def packed(texts: Mapping[str, str]) -> bytes:
    """Return the texts of a kernel compressed for the file; texts that are too long are
    truncated."""
    cut = {name: _cut(text) for name, text in texts.items()}
    return zlib.compress(json.dumps(cut).encode(), _LEVEL)


def write(file: IO[bytes], listing: Mapping[str, Any], texts: Iterable[bytes]) -> None:
    """Write a listing with the `packed` texts of its kernels, in order. Texts beyond the size limit
    of the file are omitted."""
    places: list[tuple[int, int] | None] = []
    kept: list[bytes] = []
    at, room = 0, MOST_BYTES - MOST_INDEX - (1 << 10)
    for text in texts:
        fits = at + len(text) <= room
        places.append((at, len(text)) if fits else None)
        if fits:
            kept.append(text)
            at += len(text)
    index = zlib.compress(json.dumps({"listing": listing, "texts": places}).encode(), _LEVEL)
    file.write(_MAGIC + _LENGTH.pack(len(index)) + index)
    file.writelines(kept)


def read_listing(path: Path) -> Any:
    """Return the listing as JSON types. Raises ArtifactError for a file that is not a listing."""
    with path.open("rb") as file:
        return _index(file)[0].get("listing")


def read_texts(path: Path, kernel: int) -> dict[str, str] | None:
    """Return the texts of a kernel, or None if they were omitted. Raises ArtifactError as
    `read_listing` does, and LookupError if `kernel` is out of range."""
    with path.open("rb") as file:
        index, start = _index(file)
        places = index.get("texts")
        if not isinstance(places, list):
            raise _damaged("no table of texts")
        if not 0 <= kernel < len(places):
            raise LookupError(kernel)
        match places[kernel]:
            case None:
                return None
            case [int(offset), int(length)] if offset >= 0 and 0 <= length <= MOST_BYTES:
                file.seek(start + min(offset, MOST_BYTES))
                texts = _unpacked(file.read(length), MOST_TEXTS)
            case _:
                raise _damaged("no place of texts")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise _damaged("no texts")
    return texts


def _index(file: IO[bytes]) -> tuple[dict[str, Any], int]:
    """Return the index, and the file offset of its end."""
    head = file.read(len(_MAGIC) + _LENGTH.size)
    if len(head) != len(_MAGIC) + _LENGTH.size or not head.startswith(_MAGIC):
        raise _damaged("no listing")
    (length,) = _LENGTH.unpack_from(head, len(_MAGIC))
    if length > MOST_INDEX:
        raise _damaged("its index is too large")
    index = _unpacked(file.read(length), MOST_INDEX)
    if not isinstance(index, dict):
        raise _damaged("no index")
    return index, len(head) + length


def _unpacked(data: bytes, most: int) -> Any:
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(data, most + 1)
        if len(text) > most:
            raise _damaged("it unpacks to too much")
        if not reader.eof:
            raise _damaged("it is cut short")
        return json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise _damaged(f"{type(error).__name__}") from None


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n… cut here: the whole has {len(text)} characters\n"


def _damaged(what: str) -> ArtifactError:
    return ArtifactError(f"the listing cannot be read: {what}", hint="ask for it anew")
