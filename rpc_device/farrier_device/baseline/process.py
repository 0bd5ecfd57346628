"""The process of an engine. It takes one order from its parent (the keeper), followed by open
files:

    keeper → engine  {"adapter": path, "packages": [name…], "distribution": name,
                      "precision": p | null,
                      "limit": {"environment", "libraries", "folder"} | null,
                      "model": path, "threads": n, "cpus": [n…],
                      "inputs": [tensor…], "expected": [tensor…], "keeps": bool}
                     a file of each tensor (`arrays`), and one for the outputs if it `keeps` them
    engine → keeper  {"version": v, "limited": how, "load_s": s, "max_error": x | null,
                      "kept": [tensor…]}                         it has run the model once
    keeper → engine  {"warmup": n, "count": n}
    engine → keeper  {"samples": [ns…]}                          and so on, until the keeper ends it

If the engine raises an exception, the answer is {"failed": <text>} instead, and the process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.metadata
import os
import runpy
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import wire
from . import limit

_MOST_TEXT = 500  # An error has fewer characters.
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main(argv: Sequence[str]) -> None:
    """Serve the parent over the socket whose descriptor is `argv[0]`, without a sandbox."""
    # A process that was stopped between its rounds would outlive its keeper for ever.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.dup2(2, 1)  # An engine that prints its error before it aborts is heard.
    with socket.socket(fileno=int(argv[0])) as sock, contextlib.suppress(wire.ClosedError):
        serve(sock)


def serve(sock: socket.socket) -> None:
    """Take the order and run its engine on request, until the parent closes the socket; then raise
    ClosedError."""
    order = wire.receive(sock)
    described = (*order["inputs"], *order["expected"])
    files = wire.receive_files(sock, len(described) + order["keeps"])
    try:
        run, answer = _load(order, files)
    except Exception as failure:  # Engines' errors have no common base.
        wire.send(sock, {"failed": _text(failure)})
        return
    wire.send(sock, answer)
    while True:
        request = wire.receive(sock)
        try:
            samples = timed(run, request["warmup"], request["count"])
        except Exception as failure:
            wire.send(sock, {"failed": _text(failure)})
            return
        wire.send(sock, {"samples": samples})


def timed(run: Callable[[], Any], warmup: int, count: int) -> list[int]:
    """Return the nanoseconds of each of `count` runs, which follow `warmup` runs that are not
    timed."""
    for _ in range(warmup):
        run()
    samples = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        run()
        samples.append(time.perf_counter_ns() - begin)
    return samples


def _load(order: dict[str, Any], files: Sequence[int]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Load the model and run it once. Return its function `run`, and the answer to the order."""
    limited = _limit(order)
    # The walls that `enclosed` raises stand by now, and numpy is imported behind them.
    from . import arrays
    from .error import max_error

    if order["cpus"]:
        os.sched_setaffinity(0, order["cpus"])
    tensors = order["inputs"], order["expected"]
    inputs, expected = map(arrays.read_all, tensors, (files, files[len(tensors[0]) :]))
    for package in order["packages"]:
        importlib.import_module(package)
    load = runpy.run_path(order["adapter"])["load"]
    chosen = () if order["precision"] is None else (order["precision"],)
    begin = time.perf_counter()
    run, name = load(order["model"], inputs, order["threads"], *chosen)
    outputs = name(run())
    seconds = time.perf_counter() - begin
    kept = [arrays.describe(*item) for item in outputs.items()] if order["keeps"] else []
    for tensor in kept:
        arrays.write(outputs[tensor["name"]], files[-1])
    return run, {
        "version": importlib.metadata.version(order["distribution"]),
        "limited": limited,
        "load_s": seconds,
        "max_error": max_error(outputs, expected),
        "kept": kept,
    }


def _limit(order: dict[str, Any]) -> str:
    """Restrict the engine to the instruction-set limit of the order; return a description of the
    changes."""
    if order["limit"] is None:
        return ""
    bounds = limit.Limit(order["limit"]["environment"], tuple(order["limit"]["libraries"]))
    return limit.apply(bounds, order["packages"][0], Path(order["limit"]["folder"]))


def _text(failure: Exception) -> str:
    lines = str(failure).strip().splitlines() or [""]
    return f"{type(failure).__name__}: {lines[0]}"[:_MOST_TEXT]
