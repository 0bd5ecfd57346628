"""The compiling process of a builder: modules of kernels of one job, one after the other, until the
builder ends it. `python -m farrier_worker.build`.

What it compiles was made of a stranger's model, so it has the walls and limits of a job's process,
and speaks over a socket pair alone, in frames of `farrier_device.wire`:

    builder → process   {"scratch": <path>, "secrets": [<path>…], "memory_bytes": n}
    process → builder   {"ready": <level of isolation>}
    builder → process   {"build": <message>}
    process → builder   {"built": <answer>}

Message and answer are texts of `farrier.kernels.helper`."""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from farrier_device import wire
from farrier_worker import confinement
from farrier_worker.memory import limit_this_process


def main(argv: Sequence[str]) -> int:
    """`argv`: the descriptor of the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the builder's business
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(argv[0])) as sock, contextlib.suppress(wire.ClosedError):
        order = wire.receive(sock)
        limit_this_process(order["memory_bytes"])
        level = confinement.enter([], Path(order["scratch"]), map(Path, order["secrets"]))
        from farrier.kernels.helper import build

        gc.disable()  # IR is made of trees, and counted references free it
        wire.send(sock, {"ready": level})
        while True:
            message = wire.receive(sock)["build"]
            wire.send(sock, {"built": json.dumps(build(json.loads(message)))})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
