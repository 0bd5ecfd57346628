"""The archive of a `.pt2` file: a zip whose members are stored uncompressed and read in place.

Nothing is unpacked or executed: JSON is parsed, raw weights become views of the mapped file, and a
member that is a pickle is rejected.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

from farrier.errors import InvalidModelError
from farrier.frontends.torch.contents import content_of

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # Signature, lengths of the name and of the extra field.
_ENCRYPTED = 1  # A flag of a member.
_MOST_JSON = 1 << 30  # Bytes; a graph of a million nodes has less.
_SAVE = 'torch.export.save(exported_program, "model.pt2")'


class Archive:
    """A mapped `.pt2` file. Members are named without their common top folder."""

    def __init__(self, data: memoryview) -> None:
        """Read the zip's directory. Raises InvalidModelError."""
        self._data = data
        try:
            with zipfile.ZipFile(_Reader(data)) as archive:
                members = archive.infolist()
        except (zipfile.BadZipFile, ValueError, OSError, struct.error, NotImplementedError) as e:
            raise InvalidModelError(
                f"the .pt2 archive cannot be read: {e}",
                hint=f"the file is incomplete: copy it again, or save it again with {_SAVE}",
            ) from e
        self._members = {info.filename.partition("/")[2]: info for info in members}
        if "archive_format" not in self._members or self.text("archive_format") != "pt2":
            content, hint = content_of([info.filename for info in members])
            raise InvalidModelError(f"the zip archive is not a .pt2 file: {content}", hint=hint)
        order = self.text("byteorder") if "byteorder" in self._members else "little"
        if order != "little":
            raise InvalidModelError(
                f"the .pt2 archive has weights in {order}-endian byte order",
                hint="save it on a little-endian machine",
            )

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @property
    def names(self) -> list[str]:
        """The names of the members."""
        return list(self._members)

    def member(self, name: str) -> memoryview:
        """Return the bytes of a member, a view of the file. Raises InvalidModelError."""
        info = self._members.get(name)
        if info is None:
            raise InvalidModelError(
                f"the .pt2 archive has no member {name!r}", hint=f"save it again with {_SAVE}"
            )
        if info.flag_bits & _ENCRYPTED or info.compress_type != zipfile.ZIP_STORED:
            how = "encrypted" if info.flag_bits & _ENCRYPTED else "compressed"
            raise InvalidModelError(
                f"the member {name!r} of the .pt2 archive is {how}, which torch never writes",
                hint=f"save it again with {_SAVE}",
            )
        at = info.header_offset
        header = self._data[at : at + _LOCAL_HEADER.size] if at >= 0 else b""
        if len(header) == _LOCAL_HEADER.size:
            signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
            start = at + _LOCAL_HEADER.size + name_bytes + extra_bytes
            if signature == b"PK\x03\x04" and start + info.file_size <= len(self._data):
                return self._data[start : start + info.file_size]
        raise InvalidModelError(
            f"the member {name!r} of the .pt2 archive lies outside of the file",
            hint="the file is incomplete: copy it again",
        )

    def text(self, name: str) -> str:
        """Return a member that is text. Raises InvalidModelError."""
        try:
            return bytes(self.member(name)).decode().strip()
        except UnicodeDecodeError as error:
            raise InvalidModelError(
                f"the member {name!r} of the .pt2 archive is not text",
                hint=f"save it again with {_SAVE}",
            ) from error

    def json(self, name: str) -> Mapping[str, Any]:
        """Return a member that is a JSON object. Raises InvalidModelError."""
        data = self.member(name)
        try:
            if len(data) > _MOST_JSON:
                raise ValueError(f"it has more than {_MOST_JSON} bytes")
            document = json.loads(bytes(data))
            if not isinstance(document, dict):
                raise ValueError("it is not an object")
        except (ValueError, RecursionError) as error:
            raise InvalidModelError(
                f"the member {name!r} of the .pt2 archive is malformed: {error}",
                hint=f"save it again with {_SAVE}",
            ) from error
        return document


class _Reader(io.RawIOBase):
    """A file object over bytes in memory, which are not copied."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        if start + offset < 0:
            raise OSError("a position before the start of the file")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = len(self._data) if size < 0 else self._at + size
        piece = bytes(self._data[self._at : end])
        self._at += len(piece)
        return piece
