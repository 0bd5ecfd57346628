"""The job process: one attempt at one job, then it ends. `python -m farrier_worker.job`.

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

from farrier.errors import FarrierError, StorageError
from farrier_worker import confinement
from farrier_worker.line import Line
from farrier_worker.memory import limit_this_process, out_of_memory
from farrier_worker.room import once_there_is_room
from farrier_worker.work import WORK
from farrier_worker.work.product import Product


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
    reads = [Path(order["message"]), *map(Path, order["data"].values())]
    reads += [Path(order[name]) for name in ("artifact", "cost_model") if name in order]
    scratch, secrets = Path(order["scratch"]), map(Path, order["secrets"])
    line.ready(confinement.enter(reads, scratch, secrets))
    return line


def run(line: Line) -> None:
    """Does what the job's kind asks for, and tells how it went. A FarrierError of that fails the
    job; anything else is a crash."""
    order = line.order
    try:
        product = WORK[order["kind"]](line)
        with tempfile.TemporaryFile(buffering=0) as file:
            write = functools.partial(_write, product, file.fileno())
            once_there_is_room(write, order["room_wait_s"], line.say)
            line.finish(file.fileno(), dict(product.report))
    except MemoryError:
        line.fail(out_of_memory(order["memory_bytes"]))
    except FarrierError as error:
        line.fail(error)


def _write(product: Product, descriptor: int) -> None:
    """Writes what the job made to an open file. Raises StorageError."""
    try:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        with open(descriptor, "wb", closefd=False) as file:
            product.write(file)
    except OSError as error:
        raise StorageError(
            f"cannot write the {product.name} to {tempfile.gettempdir()}: "
            f"{error.strerror or error}",
            hint="free some space there; the worker's TMPDIR names another directory",
        ) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
