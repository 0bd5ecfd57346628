"""The main program of the tuning process (`farrier.background.process`)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farrier import pipeline, progress
from farrier.errors import CompilerError, FarrierError, problem_of
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier_device import wire
from farrier_device.interrupts import guarded

_NICE = 10  # The calls of sessions go first.


def serve() -> None:
    """Run the process. The command line contains, each as JSON, the descriptor of the socket, and
    the folder for results."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.nice(_NICE)
    guarded(_main)


def _main() -> None:
    descriptor, folder = map(json.loads, sys.argv[2:])
    with socket.socket(fileno=descriptor) as sock:
        try:
            order = wire.receive(sock)
            line = _Line(sock)
            line.send(_outcome(order, Path(folder), line))
        # The parent has ended, and cannot remove the folder.
        except (KeyboardInterrupt, wire.ClosedError):
            shutil.rmtree(folder, ignore_errors=True)


def _outcome(order: Mapping[str, Any], folder: Path, line: _Line) -> dict[str, Any]:
    """Tune the model of the order, report each version to the parent, and return the final message.
    Raises ClosedError."""
    try:
        _tune(order, folder, line)
    except FarrierError as error:
        return {"failed": problem_of(error)}
    except wire.ClosedError:
        raise
    except Exception as error:
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}"
        return {"failed": problem_of(CompilerError(f"tuning in the background failed: {what}"))}
    return {"done": True}


def _tune(order: Mapping[str, Any], folder: Path, line: _Line) -> None:
    model = Model.of_told(order["model"])
    versions = pipeline.improved_models(
        model,
        CompileOptions.from_dict({**order["options"], "trials": None, "budget_s": None}),
        [CompileOptions.from_dict(options) for options in order["rounds"]],
        listener=lambda event: line.send({"say": progress.to_dict(event)}),
        begins=False,
    )
    with contextlib.closing(versions):
        for number, artifact in enumerate(versions, 2):  # The first version is in use already.
            path = artifact.save(folder / f"{number}.farrier")
            line.send({"version": str(path)})


class _Line:
    """The child's end of the socket, through which several threads send messages."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises ClosedError if the parent has ended."""
        with self._sending:
            wire.send(self._sock, message)

    def _watch(self) -> None:
        """Wait until the parent ends, which sends no more messages, and let the main thread end
        cleanly."""
        with contextlib.suppress(OSError, wire.ClosedError):
            wire.receive(self._sock)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
