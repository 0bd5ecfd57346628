"""The process of an emulator: it sandboxes itself, then executes qemu.

`sandbox.SandboxedProcess` starts this process, which encloses itself, sends a greeting, and becomes
qemu, with the socket as the line of its board. The code on the board is a stranger's: if it broke
out of the emulator, it could read the system's libraries and the board's program, but write no file
and create no socket. qemu's own filter keeps it from starting processes.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from farrier_device import denials, installation, sandbox, wire
from farrier_device.landlock import Access

_FILTER = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


def main(argv: Sequence[str]) -> None:
    """Run the process. `argv` contains the limits as JSON, the process id of the parent and the
    descriptor of the socket; then the path of qemu, its arguments as JSON, and the path of the
    board's program."""
    limits, parent, descriptor, qemu, words, program = argv
    reads = installation.readable(())
    reads[Path(program)] = Access.READ
    sock = socket.socket(fileno=int(descriptor))
    level = sandbox.enter(
        sandbox.Limits(**json.loads(limits)), int(parent), reads=reads, filtered=denials.restrict
    )
    wire.send(sock, {"ready": level})
    line = sock.detach()
    os.set_inheritable(line, True)
    command = [qemu, *json.loads(words), "-display", "none", "-monitor", "none"]
    command += ["-sandbox", _FILTER, "-chardev", f"socket,id=line,fd={line}"]
    command += ["-serial", "chardev:line", "-kernel", program]
    try:
        os.execv(qemu, command)
    except OSError as error:
        sys.exit(f"qemu cannot be started: {error.strerror}")
