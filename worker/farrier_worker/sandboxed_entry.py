"""How a process begins that a role keeps within walls, other than that of a job.

    role → process   {"scratch": <path>, "secrets": [<path>…], "reads": [<path>…],
                      "memory_bytes": n}
    process → role   {"ready": <level of isolation>}

What follows is theirs, over the same socket pair, in frames of `farrier_device.wire`."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from farrier_device import wire
from farrier_worker import confinement
from farrier_worker.memory import limit_this_process


@contextlib.contextmanager
def enclosed(argv: Sequence[str]) -> Iterator[tuple[socket.socket, str]]:
    """The socket whose descriptor is the first word of `argv`, once this process has its limits and
    its walls, and the level of these; to be told when the process is ready. Ends quietly where the
    role is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the role's business
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(argv[0])) as sock, contextlib.suppress(wire.ClosedError):
        order = wire.receive(sock)
        limit_this_process(order["memory_bytes"])
        reads, secrets = map(Path, order["reads"]), map(Path, order["secrets"])
        yield sock, confinement.enter(reads, Path(order["scratch"]), secrets)
