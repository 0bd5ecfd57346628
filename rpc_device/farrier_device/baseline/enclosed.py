"""The process of an engine on a device: it sandboxes itself, then runs `process`.

`sandbox.SandboxedProcess` starts this process, which encloses itself, sends a greeting, and takes
its order.

The process parses a stranger's model with third-party software. It may therefore read only the
Python installation, the system's libraries and the model; it can write no file, create no socket,
and start or signal no process. numpy and the engine are imported inside this sandbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from farrier_device import denials, installation, sandbox, wire
from farrier_device.baseline import process
from farrier_device.landlock import Access


def main(argv: Sequence[str]) -> None:
    """Run the process. `argv` contains the limits as JSON, the process id of the parent and the
    descriptor of the socket; then the folders of Python packages, the paths that stay unreadable,
    and the folder of the model."""
    limits, parent, descriptor, packages, secrets, folder = argv
    sys.path += json.loads(packages)
    reads = installation.readable(map(Path, json.loads(secrets)))
    reads[Path(folder)] = Access.READ
    # Where memory is short, this process is to end, not the agent.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # Threads of numpy's own are of no use here.
    os.environ["HOME"] = os.getcwd()  # Some engines ask for it: an empty folder.
    with socket.socket(fileno=int(descriptor)) as sock:
        level = sandbox.enter(
            sandbox.Limits(**json.loads(limits)),
            int(parent),
            reads=reads,
            filtered=denials.restrict_alone,
        )
        with contextlib.suppress(wire.ClosedError):
            wire.send(sock, {"ready": level})
            process.serve(sock)
