"""Memory-mapped files: read in place, checked for changes, and released page by page."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import mmap
import os
import resource
import stat
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from farrier.errors import InvalidModelError, StorageError, UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

_READ_BYTES = 1 << 20
_PIECE_BYTES = 1 << 14  # Bytes after the requested ones, which are probably requested next.


class _Pages(mmap.mmap):
    """A memory mapping that knows its `MappedFile` by a weak reference, so that an array on the
    mapping can be checked for changes of the file."""

    file: weakref.ref[MappedFile] | None = None


class FileMemory:
    """Zeroed memory backed by an anonymous temporary file: released pages take no memory of the
    process, and the disk space is freed with the last reference to `view`."""

    def __init__(self, nbytes: int) -> None:
        """Allocate the memory. Raises StorageError if the disk is full."""
        self.nbytes = nbytes
        try:
            self._file, name = tempfile.mkstemp(prefix="farrier-")
            weakref.finalize(self, os.close, self._file)
            os.unlink(name)
            if nbytes:  # Now: a page without room later would end the process.
                os.posix_fallocate(self._file, 0, nbytes)
            self.view = memoryview(mmap.mmap(self._file, nbytes) if nbytes else bytearray())
        except OSError as error:
            raise StorageError(
                f"cannot make a file of {nbytes} bytes in {tempfile.gettempdir()}: "
                f"{error.strerror}",
                hint="free some space there; TMPDIR names another directory",
            ) from error

    @property
    def path(self) -> Path:
        """The path by which this process can open the file, while this object exists."""
        return Path(f"/proc/self/fd/{self._file}")


class MappedFile:
    """A regular file that is mapped at the first use of `view`; pages that are not accessed take no
    memory of the process.

    The file is held open, so all bytes come from one file, even if it is renamed or replaced. A
    program that truncates it during an access to `view` kills this process (SIGBUS), except within
    `farrier.frontends.onnx.model.bus_errors`: readers call `check_unchanged` before each larger
    piece, and once more before they rely on their result. `read` and `Pieces` are safe anywhere.
    """

    def __init__(
        self, path: Path, of: str = "", *, shown: Path | None = None, fixed: bool = False
    ) -> None:
        """Open the file.

        If the file has changed, the error describes its content as `of`. Errors name the path
        `shown` instead of `path` if it is set. `fixed` means that the file's name is a hash of its
        content: if another process updates its time or replaces it by the same bytes, it counts as
        unchanged. Raises UsageError if the path does not lead to a readable regular file.
        """
        self.path = path
        self.shown = shown or path
        self._of = of
        self._fixed = fixed
        check_is_file(path)
        try:
            # A pipe that took the file's place since would make us wait for who writes to it.
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise UsageError(
                f"cannot read {self.shown}: {error.strerror}", hint=_way_out(error)
            ) from error
        weakref.finalize(self, os.close, self._file)
        _make_room(self._file)
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{self.shown} is not a regular file")
        self.size = status.st_size
        self.stat = status
        self._view: memoryview | None = None

    @property
    def place(self) -> Path:
        """The current path of the open file."""
        return Path(os.readlink(f"/proc/self/fd/{self._file}"))

    @property
    def stamp(self) -> tuple[int, ...]:
        """A value that is equal for every process that opens the file, as long as the file is not
        written to."""
        return _stamp(self.stat)

    @property
    def view(self) -> memoryview:
        """All bytes of the file, read-only."""
        if self._view is None:
            try:
                if not self.size:
                    return memoryview(b"")
                pages = _Pages(self._file, self.size, access=mmap.ACCESS_READ)
            # It has shrunk, or its file system cannot map files.
            except (OSError, ValueError) as error:
                self.check_unchanged()
                reason = getattr(error, "strerror", None) or error
                raise UsageError(
                    f"cannot map {self.shown}: {reason}", hint=_way_out(error)
                ) from error
            pages.file = weakref.ref(self)
            self._view = memoryview(pages)
        return self._view

    @property
    def is_mapped(self) -> bool:
        """Check whether `view` has been used."""
        return self._view is not None

    def read(self, at: int, count: int) -> bytes:
        """Return `count` bytes from offset `at` on, fewer at the end, without mapping the file.
        Raises UsageError."""
        try:
            return os.pread(self._file, count, at)
        except OSError as error:
            raise UsageError(f"cannot read {self.shown}: {error.strerror}") from error

    def check_unchanged(self) -> None:
        """Raise InvalidModelError if the file has changed since it was opened: its size, its time,
        or the file to which its path leads."""
        if self._fixed and os.fstat(self._file).st_size == self.size:
            return
        try:
            now, named = os.fstat(self._file), os.stat(self.path)
        except FileNotFoundError:
            how = "is gone"
        except OSError as error:
            how = f"cannot be read: {error.strerror}"
        else:
            if _stamp(now) == _stamp(named) == _stamp(self.stat):
                return
            how = f"had {self.size} bytes and has {named.st_size}"
            if now.st_size == named.st_size == self.size:
                how = "is another file" if now.st_ino != named.st_ino else "has other bytes"
        raise InvalidModelError(
            f"{self._of and self._of + ': '}{self.shown} {how}, changed while it was read",
            hint="compile the model again when nobody writes to its files",
        )

    @functools.cached_property
    def sha1(self) -> str:
        """Return the SHA-1 digest of all bytes in hex, reading the file in pieces."""
        state, at = hashlib.sha1(usedforsecurity=False), 0
        while piece := os.pread(self._file, _READ_BYTES, at):
            state.update(piece)
            at += len(piece)
        return state.hexdigest()


class Pieces:
    """The bytes of a file by index, read on access and not mapped: if the file was truncated, an
    access raises an error instead of causing a bus error. Raises InvalidModelError, UsageError."""

    def __init__(self, file: MappedFile) -> None:
        self._file = file
        self._at, self._piece = 0, b""

    @overload
    def __getitem__(self, index: int, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> bytes: ...
    def __getitem__(self, index: int | slice, /) -> int | bytes:
        if isinstance(index, int):
            start = self._offset(index, index + 1)
            return self._piece[start]
        start = self._offset(index.start, index.stop)
        return self._piece[start : start + index.stop - index.start]

    def _offset(self, start: int, end: int) -> int:
        """Return the offset of the byte `start` in the buffered piece of the file. If the piece
        does not contain the range from `start` to `end`, another piece is read first."""
        if start < self._at or end > self._at + len(self._piece):
            piece = self._file.read(start, max(end - start, _PIECE_BYTES))
            if len(piece) < end - start:
                self._file.check_unchanged()
                raise UsageError(f"cannot read {self._file.shown}: it ends at {start + len(piece)}")
            self._at, self._piece = start, piece
        return start - self._at


def pages_of(array: npt.NDArray[Any]) -> mmap.mmap | None:
    """Return the mapping of which an array is a view, or None."""
    owner: Any = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    mapping = owner.obj if isinstance(owner, memoryview) else None
    return mapping if isinstance(mapping, mmap.mmap) else None


def check_unchanged(array: npt.NDArray[Any]) -> None:
    """Raise InvalidModelError if an array is a view of a mapped file that has changed."""
    pages = pages_of(array)
    file = pages.file() if isinstance(pages, _Pages) and pages.file is not None else None
    if file is not None:
        file.check_unchanged()


def release(array: npt.NDArray[Any]) -> None:
    """Release the pages of a mapped file of which an array is a view; another access reads them
    from the file again. Other arrays are not affected."""
    import numpy as np

    pages = pages_of(array)
    if pages is None or not array.size:
        return
    base = np.frombuffer(pages, np.uint8).__array_interface__["data"][0]
    sides = zip(array.strides, array.shape, strict=True)
    steps = [stride * (extent - 1) for stride, extent in sides]
    first = array.__array_interface__["data"][0] - base
    low = first + sum(step for step in steps if step < 0)
    high = first + sum(step for step in steps if step > 0) + array.itemsize
    start = low - low % mmap.PAGESIZE
    pages.madvise(mmap.MADV_DONTNEED, start, high - start)


def check_is_file(path: Path) -> None:
    """Raise UsageError if the path does not lead to a regular file."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"no such file: {path}") from None
    except OSError as error:
        reason = "its links go in a circle" if error.errno == errno.ELOOP else error.strerror
        raise UsageError(f"cannot read {path}: {reason}") from error
    if stat.S_ISDIR(mode):
        if (path / "saved_model.pb").exists():
            raise UsageError(
                f"{path} is a SavedModel of TensorFlow, which TensorFlow has to convert",
                hint=f"farrier convert {path} -o model.tflite",
            )
        raise UsageError(f"{path} is a directory", hint="name a file in it")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is not a regular file")


def _make_room(descriptor: int) -> None:
    """Raise this process's limit of open files to the maximum once half of it is in use. A mapping
    holds a descriptor in addition to the open file's, and a model may have one file for each
    tensor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and soft != resource.RLIM_INFINITY and 2 * descriptor >= soft:
        with contextlib.suppress(ValueError, OSError):  # The limit stays then.
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _way_out(error: Exception) -> str:
    """Return the hint for a file that cannot be opened or mapped: a way to avoid the limit of open
    files, if that is the cause, else ""."""
    if getattr(error, "errno", None) not in (errno.EMFILE, errno.ENFILE):
        return ""
    return (
        "raise the limit on open files (`ulimit -n`), or save the model with all data in one file: "
        "onnx.save(model, path, save_as_external_data=True, all_tensors_to_one_file=True)"
    )


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
