"""The job process: one attempt at one job, then it ends. `python -m farrier_worker.job`.

Models are parsed here and nowhere else on the farm, in a process that has limits, that can reach
nothing of the farm (`confinement.py`) and that may crash: the supervisor sees it. What it has to
say goes through its line, and the supervisor records it."""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from farrier.errors import FarrierError
from farrier_worker import confinement
from farrier_worker.job_channel_client import JobChannelClient
from farrier_worker.memory import limit_this_process, out_of_memory
from farrier_worker.work import WORK


def main(argv: Sequence[str]) -> int:
    """`argv`: the descriptor of the line; what follows is for people who list processes."""
    line = enclosed(argv)
    run(line)
    return 0


def enclosed(argv: Sequence[str]) -> JobChannelClient:
    """The line, once this process has its limits and its walls."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    line = JobChannelClient(socket.socket(fileno=int(argv[0])))
    order = line.order
    limit_this_process(order["memory_bytes"])
    reads = [Path(order["message"]), *map(Path, order["data"].values())]
    reads += [Path(order[name]) for name in ("artifact", "cost_model") if name in order]
    scratch, secrets = Path(order["scratch"]), map(Path, order["secrets"])
    line.ready(confinement.enter(reads, scratch, secrets))
    return line


def run(line: JobChannelClient) -> None:
    """Do what the job's kind asks for, and tell how it went. A FarrierError of that fails the
    job; anything else is a crash."""
    order = line.order
    try:
        WORK[order["kind"]](line)
    except MemoryError:
        line.fail(out_of_memory(order["memory_bytes"]))
    except FarrierError as error:
        line.fail(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
