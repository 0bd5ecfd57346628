"""The process of an engine on a device: it puts up its walls, then runs `process`.

Started by `sandbox.SandboxedProcess`, it encloses itself, greets, and takes its order.

It parses what a stranger wrote, in a program that was made by others still. So it reads the Python
installation, the system's libraries and the model, and no other file; it writes none, makes no
socket, starts and signals no process. numpy and the engine are imported behind these walls.
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
    """Run the process. `argv` holds the limits as JSON, the process id of the keeper and the
    descriptor of the socket; then the folders of packages, the forbidden paths, and the folder of
    the model."""
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
