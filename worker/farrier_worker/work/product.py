"""The products of jobs, such as artifacts and documents."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from farrier.errors import StorageError
from farrier_worker.disk_space import once_there_is_room
from farrier_worker.job_channel_client import JobChannelClient

if TYPE_CHECKING:
    from farrier.frontends.onnx.model.file import Model


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """A result of a job that is sent as a file, such as an artifact or a document. `name` is its
    name in messages. `write` writes the content to a file, and may be called several times."""

    name: str
    write: Callable[[IO[bytes]], None]
    report: Mapping[str, Any]

    def hand_over(
        self, line: JobChannelClient, tell: Callable[[int, dict[str, Any]], None]
    ) -> None:
        """Write the product to a temporary file, and call `tell` with the descriptor of the file
        and the report; `tell` sends both to the supervisor. Wait while the disk is full. Raises
        StorageError, and the errors of `tell`."""
        with tempfile.TemporaryFile(buffering=0) as file:
            once_there_is_room(
                lambda: self._write_to(file.fileno()), line.order["room_wait_s"], line.say
            )
            tell(file.fileno(), dict(self.report))

    def _write_to(self, descriptor: int) -> None:
        try:
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            with open(descriptor, "wb", closefd=False) as file:
                self.write(file)
        except OSError as error:
            raise StorageError(
                f"cannot write the {self.name} to {tempfile.gettempdir()}: "
                f"{error.strerror or error}",
                hint="free some space there; the worker's TMPDIR names another directory",
            ) from error


def model_of(order: Mapping[str, Any]) -> Model:
    """Return the model of a job from the job's order."""
    from farrier.frontends.onnx.model.file import Model

    data = {location: Path(path) for location, path in order["data"].items()}
    return Model.of_files(Path(order["message"]), data, order["name"])
