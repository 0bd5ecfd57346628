"""Measure on this machine: a runner in a sandboxed child process, and a folder for its blobs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from farrier.errors import StorageError
from farrier.measure.runner import Blobs, Runner
from farrier_device.blobstore import BlobStore, NoSpaceError
from farrier_device.closing import Closing
from farrier_device.runners.local import ChildRunner

_BLOB_BYTES = 2 << 30


class _LocalBlobs(BlobStore):
    """A blob store in a folder that is removed when the process ends. A full disk raises
    StorageError."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        super().__init__(root, max_bytes, durable=False)
        self._lent: dict[str, Path] = {}

    def lend(self, sha256: str, path: Path) -> None:
        self._lent[sha256] = path

    def path(self, sha256: str) -> Path:
        return self._lent.get(sha256) or super().path(sha256)

    def put(self, data: bytes | memoryview) -> str:
        try:
            return super().put(data)
        except NoSpaceError as error:
            hint = f"free some space in {tempfile.gettempdir()}; TMPDIR names another directory"
            raise StorageError(f"cannot keep what is measured: {error}", hint=hint) from error


class LocalDevice(Closing):
    """A runner for this machine and a store for the blobs of its batches, in a temporary folder.
    Native code runs in a sandboxed child process."""

    def __init__(self, runner: Runner | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="farrier-measure-"))
        self.blobs: Blobs = _LocalBlobs(self._folder, _BLOB_BYTES)
        self.runner: Runner = ChildRunner() if runner is None else runner

    def close(self) -> None:
        """End the runner and remove the blobs; a second call does nothing."""
        self.runner.close()
        shutil.rmtree(self._folder, ignore_errors=True)
