"""The process that compiles in the background while a graph runs in eager mode. It does not import
torch.

parent → child   {"model": …, "options": …, "artifact": <path to write>}
child → parent   {"done": true} or {"failed": <problem>}
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path

from farrier import pipeline
from farrier.errors import CompilerError, FarrierError, problem_of
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier_device import wire

_PR_SET_PDEATHSIG = 1  # Of prctl(2).
_NICE = 10  # Calls of the compiled module go first.


def serve() -> None:
    """Compile a model in this process, which was started for it. The first command-line argument is
    the descriptor of the socket, as JSON."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.nice(_NICE)
    with (
        socket.socket(fileno=json.loads(sys.argv[2])) as sock,
        contextlib.suppress(wire.ClosedError),
    ):
        order = wire.receive(sock)
        try:
            model = Model.of_told(order["model"])
            options = CompileOptions.from_dict(order["options"])
            pipeline.compile_model(model, options).save(Path(order["artifact"]))
        except FarrierError as error:
            wire.send(sock, {"failed": problem_of(error)})
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            wire.send(sock, {"failed": problem_of(CompilerError(f"the compiler failed: {what}"))})
        else:
            wire.send(sock, {"done": True})
