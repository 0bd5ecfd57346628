"""The process that tunes, as the one that has started it sees it.

parent → child   {"model": …, "options": …, "rounds": [<options>…]}
child → parent   {"say": <event>}
                 {"version": <path of an artifact in the folder>}
                 {"done": true} or {"failed": <problem>}, and it ends
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
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
from farrier_device.closing import Closing
from farrier_device.python import command_of
from farrier_device.sandbox import describe_exit

_EXIT_S = 10.0  # from the end of what it says to its end
_FOLLOWER_S = 10.0  # to load the code that it has begun to load


class TuningProcess(Closing):
    """One child process, and the folder in which it leaves what it makes and all that is temporary.
    It is this process's alone: one that was forked from this one lets go of it (`leave`)."""

    def __init__(self, model: Model, options: CompileOptions) -> None:
        """Start it. Raises StorageError."""
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self.is_ended_here = False
        self.follower: threading.Thread | None = None  # who receives, to be waited for at the end
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="farrier-tuning-"))
        except OSError as error:
            raise _not_started(error) from error
        self._sock, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command_of(serve, theirs.fileno(), str(self.folder)),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={
                        **os.environ,
                        "TMPDIR": str(self.folder),
                        "FARRIER_CRASHES": str(crash_directory()),  # which outlives the folder
                    },
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # our terminal's Ctrl-C is not its
                )
            order = {
                "model": model.tells(self.folder / "model.onnx"),
                "options": options.to_dict(),
                "rounds": [one.to_dict() for one in rounds_of(options)],
            }
            with contextlib.suppress(wire.ClosedError):  # who receives is told
                wire.send(self._sock, order)
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
        """The next message. Raises ClosedError where the process is gone."""
        return wire.receive(self._sock)

    def ending(self) -> str:
        """How it has ended, in words, once it says nothing more."""
        assert self._process is not None
        try:
            return describe_exit(self._process.wait(_EXIT_S))
        except subprocess.TimeoutExpired:
            return "still there, and silent"

    def end(self) -> None:
        """End it at once, with all that it has started; a second call does nothing."""
        if self._process is None or not self.is_ours:
            return
        self.is_ended_here = True
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """End it and remove the folder; a second call does nothing."""
        if not self.is_ours:
            return
        self.end()
        if self.follower is not None and self.follower is not threading.current_thread():
            self.follower.join(_FOLLOWER_S)
        self._sock.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that has started it, and not one forked from that."""
        return os.getpid() == self._owner

    def leave(self) -> None:
        """In a forked process: the one that has started it is to be the only one that it hears."""
        self._sock.close()


def _not_started(error: OSError) -> StorageError:
    return StorageError(
        f"tuning in the background cannot be started: {error}",
        hint="free some space for temporary files; TMPDIR names another directory",
    )
