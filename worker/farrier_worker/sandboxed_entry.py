"""The start of a role's sandboxed processes, other than those of jobs.

    role → process   {"scratch": <path>, "secrets": [<path>…], "reads": [<path>…],
                      "memory_bytes": n}
    process → role   {"ready": <level of isolation>}

Further frames depend on the role. All frames use the same socket pair and have the format of
`farrier_device.wire`.
"""

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
    """Apply the limits and the sandbox to this process. Return a context with the socket to the
    role, whose descriptor is the first element of `argv`, and with the sandbox level, which the
    process reports when it is ready. If the role has ended, the context ends without an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the role.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(argv[0])) as sock, contextlib.suppress(wire.ClosedError):
        order = wire.receive(sock)
        limit_this_process(order["memory_bytes"])
        reads, secrets = map(Path, order["reads"]), map(Path, order["secrets"])
        yield sock, confinement.enter(reads, Path(order["scratch"]), secrets)
