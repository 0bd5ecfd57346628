"""A child process of a role that has a folder of its own for temporary files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from farrier_device.child_process import ChildProcess
from farrier_farm.roles.children import bound_to_this_process
from farrier_worker.confinement import environment


def start(
    what: str, command: Callable[[int], Sequence[str]], stderr: int | None = None
) -> tuple[ChildProcess, tempfile.TemporaryDirectory[str]]:
    """Start a process in a new folder for its temporary files, and return both. `what` is part of
    the folder's name, and `command` returns the command line from the descriptor of the process's
    socket. The process ends with this one, so that none runs along with its replacement. Raises
    OSError if it cannot start."""
    folder = tempfile.TemporaryDirectory(prefix=f"farrier-{what}-", ignore_cleanup_errors=True)
    scratch = Path(folder.name)
    try:
        process = ChildProcess(
            command,
            stderr=stderr,
            env=environment(scratch, os.environ),
            cwd=scratch,
            preexec_fn=bound_to_this_process(),
        )
    except OSError:
        folder.cleanup()
        raise
    return process, folder
