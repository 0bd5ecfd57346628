"""The job process, which makes one attempt at one job, then ends. `python -m farrier_worker.job`.

On a worker, only this process parses models. It has resource limits, cannot reach any other part of
the farm (`confinement.py`), and may crash, which the supervisor detects. It reports over its
channel, and the supervisor records the reports."""

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
    """Run the job and return the exit code. `argv` starts with the descriptor of the channel; its
    other elements only serve people who list processes."""
    line = enclosed(argv)
    run(line)
    return 0


def enclosed(argv: Sequence[str]) -> JobChannelClient:
    """Apply the limits and the sandbox to this process, and return its channel."""
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
    """Do the work for the job's kind, and report the end of the job over the channel `line`. A
    FarrierError fails the job; any other exception counts as a crash."""
    order = line.order
    try:
        WORK[order["kind"]](line)
    except MemoryError:
        line.fail(out_of_memory(order["memory_bytes"]))
    except FarrierError as error:
        line.fail(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
