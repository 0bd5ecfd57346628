"""The process that tunes a model, seen from its parent.

parent → child   {"model": …, "options": …, "rounds": [<options>…]}
child → parent   {"say": <event>}
                 {"version": <path of an artifact in the folder>}
                 {"done": true} or {"failed": <problem>}, and it ends
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from farrier.background.child import serve
from farrier.background.rounds import rounds_of
from farrier.errors import StorageError
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.progress.debug import crash_directory
from farrier_device import wire
from farrier_device.child_process import ChildProcess
from farrier_device.closing import Closing
from farrier_device.python import command_of

_FOLLOWER_S = 10.0  # The time to load the code that it has begun to load.


class TuningProcess(Closing):
    """A child process that tunes, and the folder for its results and all its temporary files.

    Only the process that started the child owns both: a forked copy of it must release them
    (`leave`).
    """

    def __init__(self, model: Model, options: CompileOptions) -> None:
        """Start the process. Raises StorageError."""
        self._owner = os.getpid()
        self._process: ChildProcess | None = None
        self.is_ended_here = False
        # The thread that receives; the session waits for it at the end.
        self.follower: threading.Thread | None = None
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="farrier-tuning-"))
        except OSError as error:
            raise _not_started(error) from error
        try:
            self._process = ChildProcess(
                lambda line: command_of(serve, line, str(self.folder)),
                env={
                    **os.environ,
                    "TMPDIR": str(self.folder),
                    "FARRIER_CRASHES": str(crash_directory()),  # It outlives the folder.
                },
            )
            order = {
                "model": model.tells(self.folder / "model.onnx"),
                "options": options.to_dict(),
                "rounds": [round_options.to_dict() for round_options in rounds_of(options)],
            }
            # The receiving thread reports that the process has ended.
            with contextlib.suppress(wire.ClosedError):
                wire.send(self._process.sock, order)
        except OSError as error:
            self.close()
            raise _not_started(error) from error
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def receive(self) -> dict[str, Any]:
        """Wait for the next message of the process and return it. Raises ClosedError if the process
        has ended."""
        assert self._process is not None
        return wire.receive(self._process.sock)

    def ending(self) -> str:
        """Return a description of how the process ended, for use after its last message."""
        assert self._process is not None
        return self._process.ending()

    def end(self) -> None:
        """Kill the process with all processes that it has started; a second call does nothing."""
        if self._process is None or not self.is_ours:
            return
        self.is_ended_here = True
        self._process.end()

    def close(self) -> None:
        """Kill the process and remove the folder; a second call does nothing."""
        if not self.is_ours:
            return
        self.end()
        if self.follower is not None and self.follower is not threading.current_thread():
            self.follower.join(_FOLLOWER_S)
        if self._process is not None:
            self._process.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def is_ours(self) -> bool:
        """Check whether the current process started the child, rather than being a forked copy."""
        return os.getpid() == self._owner

    def leave(self) -> None:
        """Release the child in a forked process, so that the child communicates only with the
        process that started it."""
        assert self._process is not None
        self._process.sock.close()


def _not_started(error: OSError) -> StorageError:
    return StorageError(
        f"tuning in the background cannot be started: {error}",
        hint="free some space for temporary files; TMPDIR names another directory",
    )
