"""A model as stored by its user: the ONNX message, and the data files that the message names.

    Model.of_path(Path("m.onnx"))                    data in its folder, named by the message
    Model.of_bytes(data)                             a message in memory, of a self-contained model
    Model.of_bytes(data, folder=Path("models"))      a message in memory, with data in a folder
    Model.of_files(blob, {"m.onnx.data": other})     files in a store that names them by content

Files are read lazily: a message is mapped, and a data file is mapped when a tensor in it is first
requested. The onnx package is not imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from farrier.errors import InvalidModelError, UsageError
from farrier.files.atomic import write_atomically
from farrier.files.mapped import MappedFile, Pieces
from farrier.frontends.formats import HEAD, Format, format_of
from farrier.frontends.onnx.model.wire import (
    BYTES,
    VARINT,
    MalformedError,
    Readable,
    fields,
    text,
    varint,
)

__all__ = ["MAX_BYTES", "Model", "check_location", "check_size", "model_of", "quoted"]

MAX_BYTES = (2 << 30) - 1  # The limit is protobuf's own on one message.

# The fields of messages that hold tensors, by the messages' kinds and the numbers of the fields
# (onnx.proto3).
_ATTRIBUTE = {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"}
_MESSAGES = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": _ATTRIBUTE,
    "sparse": {1: "tensor", 2: "tensor"},
}
_EXTERNAL_DATA, _DATA_LOCATION, _EXTERNAL = 13, 14, 1  # of TensorProto
_KEY, _VALUE = 1, 2  # of StringStringEntryProto
_NUMBER = re.compile(r"[0-9]{1,19}")  # The importer refuses any other offset.
_FEW = 1 << 16  # In bytes; a longer message is searched for the word first.
_LONGEST_NAME, _LONGEST = 255, 4095  # In bytes, the limits of Linux on a name and a path.
_MOST_SHOWN = 200  # In characters, of a location in a message.
_MOST_LEVELS = 500  # The limit on nested messages; protobuf itself reads 100 levels.


class Model:
    """A model's files. `message` are the read-only bytes of its ModelProto; `path` is the file that
    contains them, None for a message in memory; `name` is for display.

    `files` and `external` find the data files' names by scanning the message once, without the onnx
    package.
    """

    def __init__(
        self,
        message: bytes | memoryview,
        name: str,
        *,
        file: MappedFile | None = None,
        folder: Path | None = None,
        data: Mapping[str, Path] | None = None,
    ) -> None:
        """Use one of the constructors below instead. Data files are looked up in `folder`, or by
        name in `data`."""
        self.message = memoryview(message).toreadonly()
        # Read, not mapped: a file that shrinks meanwhile would end the process.
        self.format = format_of(message if file is None else file.read(0, HEAD))
        self.name = name
        self._file = file
        self._folder = folder
        self._data = data
        self._opened: dict[str, MappedFile] = {}

    @classmethod
    def of_path(cls, path: str | os.PathLike[str], name: str = "") -> Model:
        """Open a model file, with its data files in the same folder. Raises UsageError if it cannot
        be read, InvalidModelError if it is too large for an ONNX message."""
        place = Path(path)
        file = _message(place)
        return cls(file.view, name or place.stem, file=file, folder=place.parent)

    @classmethod
    def of_bytes(
        cls, message: bytes | memoryview, name: str = "model", folder: Path | None = None
    ) -> Model:
        """Wrap a message in memory; its data files, if any, are in `folder`."""
        return cls(message, name, folder=folder)

    @classmethod
    def of_files(cls, message: Path, data: Mapping[str, Path], name: str = "model") -> Model:
        """Open a model whose files are in a store that names them by content and therefore never
        changes them. `data` maps the locations in the message to files. Raises as `of_path` does.
        """
        file = _message(message, fixed=True)
        return cls(file.view, name, file=file, data=MappingProxyType(dict(data)))

    @classmethod
    def of_told(cls, description: Mapping[str, Any]) -> Model:
        """Open the model that another process described by `tells`. Raises as `of_path` does, and
        InvalidModelError if a file has changed since then."""
        file = _message(Path(description["message"]), fixed=description["data"] is not None)
        folder = None if description["folder"] is None else Path(description["folder"])
        data = description["data"]
        if data is not None:
            data = MappingProxyType({name: Path(path) for name, path in data.items()})
        model = cls(file.view, description["name"], file=file, folder=folder, data=data)
        for location, stamp in description["stamps"].items():
            opened = model.data(location) if location else file
            if list(opened.stamp) != stamp:
                raise InvalidModelError(
                    f"{opened.shown} has changed since {model.name} was compiled",
                    hint="compile the model again when nobody writes to its files",
                )
        return model

    def tells(self, copy: Path) -> dict[str, Any]:
        """Describe the model, in JSON types, for another process of this machine, which opens it by
        `of_told`. A message in memory is first written to `copy`. Raises StorageError."""
        opened = dict(self._opened)
        if self._file is None:
            write_atomically(copy, lambda file: file.writelines([self.message]))
        else:
            copy = self._file.path
            opened[""] = self._file
        stamps = {location: list(file.stamp) for location, file in opened.items()}
        folder, data = self._folder, self._data
        return {
            "name": self.name,
            "message": str(copy.absolute()),
            "folder": None if folder is None else str(folder.absolute()),
            "data": None if data is None else {key: str(p.absolute()) for key, p in data.items()},
            "stamps": stamps if data is None else {},
        }

    @property
    def path(self) -> Path | None:
        return None if self._file is None else self._file.path

    @property
    def file(self) -> MappedFile | None:
        """The file of the message, or None for a message in memory."""
        return self._file

    @property
    def has_folder(self) -> bool:
        """Check whether another program that opens the file `path` finds the data files next to it,
        at the locations in the message."""
        return self._file is not None and self._data is None

    @property
    def locations(self) -> tuple[str, ...]:
        """The locations of data files in the message, each once, in order; for a malformed message
        the locations before the error. Raises InvalidModelError if the message's file has changed,
        UsageError if it cannot be read."""
        return tuple(self._needs)

    @cached_property
    def _needs(self) -> Mapping[str, int]:
        """The least size in bytes of each data file, by location, such that it contains all tensors
        that the message places in it."""
        sizes: dict[str, int] = {}
        if self.format is not Format.ONNX:  # Other formats hold all of their data.
            return sizes
        read = self.message if self._file is None else Pieces(self._file)
        try:
            for location, end in _locations(read, 0, len(self.message), "model", 0):
                sizes[location] = max(end, sizes.get(location, 0))
        except MalformedError:
            pass  # The parser of the message reports it.
        return sizes

    @property
    def external(self) -> Mapping[str, MappedFile]:
        """All data files by location, opened. Raises as `data` does."""
        return {location: self.data(location) for location in self.locations}

    @property
    def files(self) -> tuple[tuple[str, Path], ...]:
        """All files of the model, as (location, path). The location of the message is ""; it is
        absent for a message in memory. Raises as `data` does."""
        own = () if self._file is None else (("", self._file.path),)
        return (*own, *((location, file.path) for location, file in self.external.items()))

    def data(self, location: str, what: str = "") -> MappedFile:
        """Return the data file at a location, which is opened once; `what` names the tensor in
        errors.

        Raises InvalidModelError if the file does not exist, or the model is not allowed to use it:
        locations are relative paths of regular files in the folder of the model's file. Links are
        followed, but not out of that folder (or out of the folder of the file that the model's own
        path links to).
        """
        if location not in self._opened:
            self._opened[location] = self._open(location, what)
        return self._opened[location]

    @property
    def nbytes(self) -> int:
        """The total size in bytes of the message and the data files opened so far."""
        return len(self.message) + sum(file.size for file in self._opened.values())

    @property
    def mapped(self) -> list[memoryview]:
        """The mapped views of the model's files opened so far."""
        files = [file for file in (self._file, *self._opened.values()) if file is not None]
        return [file.view for file in files if file.is_mapped]

    def check_complete(self) -> None:
        """Raise InvalidModelError if a data file is shorter than the message requires, and the
        errors of `data`."""
        for location, least in self._needs.items():
            file = self.data(location)
            if file.size < least:
                raise InvalidModelError(
                    f"{self.name} needs {least} bytes of the data file {location!r}, and "
                    f"{file.shown} has {file.size}",
                    hint="the file is incomplete, or of another model: copy or download it again",
                )

    def check_unchanged(self) -> None:
        """Raise InvalidModelError if a file has changed since it was opened."""
        for file in (self._file, *self._opened.values()):
            if file is not None:
                file.check_unchanged()

    def _open(self, location: str, what: str) -> MappedFile:
        of = f"{what or self.name} is in the data file {quoted(location)}"
        check_location(location, of)
        if self._data is not None:
            if location not in self._data:
                raise InvalidModelError(f"{of}, which was not given", hint=_known(self._data))
            # The reader of an error knows the location, but not the path in a store.
            return _existing(self._data[location], of, Path(location), fixed=True)
        if self._folder is None:
            raise InvalidModelError(
                f"{of}, and bytes have no folder",
                hint="pass the path of the .onnx file instead of its bytes, or the folder of its "
                "data (folder=…)",
            )
        path = self._folder / location
        file = _existing(path, of)
        allowed = {Path(os.path.realpath(self._folder))}
        if self._file is not None:
            allowed.add(self._file.place.parent)
        if not any(file.place.is_relative_to(folder) for folder in allowed):
            raise InvalidModelError(
                f"{of}, a link to {file.place}, which is not in the model's folder",
                hint=f"put a copy of the file there: cp --remove-destination $(realpath {path}) "
                f"{path}",
            )
        own = None if self._file is None else self._file.stat.st_uid
        if own is not None and file.stat.st_nlink > 1 and file.stat.st_uid != own:
            raise InvalidModelError(
                f"{of}, which is a hard link to a file of another user",
                hint="put a copy of the file in its place",
            )
        return file


def model_of(model: Model | bytes | memoryview) -> Model:
    """Return the argument if it is a `Model`, else wrap the bytes of a message in one."""
    return model if isinstance(model, Model) else Model.of_bytes(model)


def check_size(path: Path, size: int) -> None:
    """Raise InvalidModelError for a file larger than an ONNX message can be, before it is read."""
    if size > MAX_BYTES:
        raise InvalidModelError(
            f"{path} has more than 2 GiB, which no ONNX message can",
            hint="keep its weights as external data: onnx.save(model, path, "
            "save_as_external_data=True), as torch.onnx.export(…, dynamo=True) does",
        )


def _message(path: Path, *, fixed: bool = False) -> MappedFile:
    file = MappedFile(path, fixed=fixed)
    if format_of(file.read(0, HEAD)) is not Format.TORCH:  # An archive may have any size.
        check_size(path, file.size)
    return file


def quoted(location: str) -> str:
    """Return a location for messages: escaped, and with the middle of a long one left out."""
    half = _MOST_SHOWN // 2
    if len(location) > _MOST_SHOWN:
        return f"{location[:half]!r} … {location[-half:]!r}"
    return repr(location)


def check_location(location: str, of: str) -> None:
    """Raise InvalidModelError for a location that is not a relative path, or that leaves the
    model's folder."""
    path = PurePosixPath(location)
    if not location or "\0" in location or "\\" in location or location.endswith("/"):
        reason = "which is not a path of a file"
    elif path.is_absolute() or location[1:2] == ":":
        reason = "which is an absolute path"
    elif ".." in path.parts:
        reason = "which leads out of the model's folder"
    elif _nbytes(location) > _LONGEST or max(map(_nbytes, path.parts), default=0) > _LONGEST_NAME:
        reason = f"which is too long for a file: it has {len(location)} characters"
    else:
        return
    raise InvalidModelError(
        f"{of}, {reason}",
        hint="data lies in the model's folder: save the model again with "
        "onnx.save(model, path, save_as_external_data=True, location='weights.data')",
    )


def _nbytes(name: str) -> int:
    return len(name.encode(errors="surrogatepass"))


def _existing(path: Path, of: str, shown: Path | None = None, *, fixed: bool = False) -> MappedFile:
    try:
        return MappedFile(path, of, shown=shown, fixed=fixed)
    except UsageError as error:
        raise InvalidModelError(
            f"{of}: {error.message}",
            hint=error.hint or "keep the model's files together: copy all of them",
        ) from error


def _known(data: Mapping[str, Path]) -> str:
    names = ", ".join(map(repr, list(data)[:5]))
    return f"given are {names}" if data else "no data files were given"


def _locations(
    view: Readable, start: int, end: int, kind: str, level: int
) -> Iterator[tuple[str, int]]:
    """Yield the locations in a protobuf message of type `kind` and its nested messages, each with
    the end offset of a tensor's bytes in that data file."""
    if kind == "tensor":
        yield from _location(view, start, end)
        return
    if level > _MOST_LEVELS:
        raise MalformedError
    inner = _MESSAGES[kind]
    for field in fields(view, start, end):
        if field.kind == BYTES and field.number in inner:
            if field.end - field.value < _FEW and b"location" not in bytes(
                view[field.value : field.end]
            ):
                continue
            yield from _locations(view, field.value, field.end, inner[field.number], level + 1)


def _location(view: Readable, start: int, end: int) -> Iterator[tuple[str, int]]:
    """Yield the location of a tensor's data file, and the offset in it at which the tensor's bytes
    end. Yield nothing for a tensor whose elements are in the message."""
    entries, is_external = {}, False
    for field in fields(view, start, end):
        if field.number == _DATA_LOCATION and field.kind == VARINT:
            is_external = varint(view, field.value, field.end)[0] == _EXTERNAL
        elif field.number == _EXTERNAL_DATA and field.kind == BYTES:
            entry = {f.number: f for f in fields(view, field.value, field.end) if f.kind == BYTES}
            key, value = (
                "" if f is None else text(view[f.value : f.end])
                for f in (entry.get(_KEY), entry.get(_VALUE))
            )
            entries[key] = value
    if is_external:
        sizes = [entries.get(key, "") for key in ("offset", "length")]
        yield entries.get("location", ""), sum(int(n) for n in sizes if _NUMBER.fullmatch(n))
