"""The job process: compiles one model for one attempt, then ends. `python -m farrier_worker.job`.

Models are parsed here and nowhere else on the farm, in a process that has limits, that can reach
nothing of the farm (`confinement.py`) and that may crash: the supervisor sees it. What it has to
say goes through its line, and the supervisor records it."""

from __future__ import annotations

import functools
import os
import resource
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from farrier.errors import FarrierError, StorageError
from farrier_worker import confinement
from farrier_worker.line import Line
from farrier_worker.memory import limit_this_process, out_of_memory
from farrier_worker.remote import RemoteRecords, RemoteRunner
from farrier_worker.room import once_there_is_room

if TYPE_CHECKING:
    from farrier.runtime.artifact import Artifact


def main(argv: Sequence[str]) -> int:
    """`argv`: the descriptor of the line; what follows is for people who list processes."""
    line = enclosed(argv)
    run(line)
    return 0


def enclosed(argv: Sequence[str]) -> Line:
    """The line, once this process has its limits and its walls."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    line = Line(socket.socket(fileno=int(argv[0])))
    order = line.order
    limit_this_process(order["memory_bytes"])
    model = [Path(order["message"]), *map(Path, order["data"].values())]
    scratch, secrets = Path(order["scratch"]), map(Path, order["secrets"])
    line.ready(confinement.enter(model, scratch, secrets))
    return line


def run(line: Line) -> None:
    """Compiles, and tells how it went. A FarrierError of the compilation fails the job; anything
    else is a crash."""
    from farrier.model.file import Model  # under the limits
    from farrier.options import CompileOptions
    from farrier.pipeline import compile_model

    order = line.order
    data = {location: Path(path) for location, path in order["data"].items()}
    try:
        artifact = compile_model(
            Model.of_files(Path(order["message"]), data, order["name"]),
            CompileOptions.from_dict(order["options"]),
            runner=RemoteRunner(line),
            records=RemoteRecords(line),
            listener=line.say,
        )
        with tempfile.TemporaryFile(buffering=0) as file:
            write = functools.partial(_write, artifact, file.fileno())
            once_there_is_room(write, order["room_wait_s"], line.say)
            line.finish(file.fileno(), artifact.report)
    except MemoryError:
        line.fail(out_of_memory(order["memory_bytes"]))
    except FarrierError as error:
        line.fail(error)


def _write(artifact: Artifact, descriptor: int) -> None:
    """Writes the artifact to an open file. Raises StorageError."""
    try:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        with open(descriptor, "wb", closefd=False) as file:
            artifact.write(file)
    except OSError as error:
        raise StorageError(
            f"cannot write the artifact to {tempfile.gettempdir()}: {error.strerror or error}",
            hint="free some space there; the worker's TMPDIR names another directory",
        ) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
