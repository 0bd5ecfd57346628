"""The process of another engine, which runs a model beside Farrier's code of it.

Started by `sandbox.SandboxedProcess`, it encloses itself, greets, and takes one order. The inputs
and what the outputs should be follow it as open files, in this order:

    runner → engine  {"engine": name, "model": <path>, "threads": n, "cpus": [n…], "tolerance": x,
                      "inputs": [{"name", "dtype", "shape"}…], "outputs": [the same]}
    engine → runner  {"load_s": s, "max_error": x | null}        it has run the model once
    runner → engine  {"warmup": n, "count": n}
    engine → runner  {"samples": [ns…]}                          and so on, until the runner ends it

Whatever the engine raises is {"failed": <text>} instead, and the end.

It parses what a stranger wrote, in a program that was made by others still. So it reads the Python
installation, the system's libraries and the model, and no other file; it writes none, makes no
socket, starts and signals no process. numpy and the engine are imported behind these walls.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farrier_device import denials, engines, installation, sandbox, wire
from farrier_device.landlock import Access

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_LINE_BYTES = 64  # of a cache: where inputs start
_MOST_TEXT = 500


def main(argv: Sequence[str]) -> None:
    """`argv`: the limits as JSON, the process id of the keeper, the descriptor of the socket; where
    packages lie, the paths that stay closed, and the folder of the model."""
    limits, parent, descriptor, packages, secrets, folder = argv
    sys.path += json.loads(packages)
    reads = installation.readable(map(Path, json.loads(secrets)))
    reads[Path(folder)] = Access.READ
    with contextlib.suppress(
        OSError
    ):  # where memory is short, this process is to end, not the agent
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's own threads are of no use here
    os.environ["HOME"] = os.getcwd()  # which some engines ask for: an empty folder
    with socket.socket(fileno=int(descriptor)) as sock:
        level = sandbox.enter(
            sandbox.Limits(**json.loads(limits)),
            int(parent),
            reads=reads,
            filtered=denials.restrict_alone,
        )
        with contextlib.suppress(wire.ClosedError):
            wire.send(sock, {"ready": level})
            _serve(sock, wire.receive(sock))


def _serve(sock: socket.socket, order: dict[str, Any]) -> None:
    given, expected = order["inputs"], order["outputs"]
    files = wire.receive_files(sock, len(given) + len(expected))
    try:
        if order["cpus"]:
            os.sched_setaffinity(0, order["cpus"])
        arrays = [_array(*one) for one in zip((*given, *expected), files, strict=True)]
        inputs = {one["name"]: array for one, array in zip(given, arrays, strict=False)}
        begin = time.perf_counter()
        run, named = _loaded(order["engine"], order["model"], inputs, order["threads"])
        outputs = named(run())
        load_s = time.perf_counter() - begin
        error = _max_error([one["name"] for one in expected], arrays[len(given) :], outputs)
    except Exception as failure:  # engines' errors have no common base
        wire.send(sock, {"failed": _text(failure)})
        return
    wire.send(sock, {"load_s": load_s, "max_error": error})
    while True:
        asked = wire.receive(sock)
        try:
            samples = _timed(run, asked["warmup"], asked["count"])
        except Exception as failure:
            wire.send(sock, {"failed": _text(failure)})
            return
        wire.send(sock, {"samples": samples})


def _loaded(
    engine: str, model: str, inputs: dict[str, Array], threads: int
) -> tuple[Callable[[], Any], Callable[[Any], dict[str, Array]]]:
    if engine not in engines.NAMES:
        raise ValueError(f"{engine} is none of {', '.join(engines.NAMES)}")
    loader = importlib.import_module(f"{engines.__name__}.{engine}")
    run, named = loader.load(model, inputs, threads)
    return run, named


def _timed(run: Callable[[], Any], warmup: int, count: int) -> list[int]:
    for _ in range(warmup):
        run()
    samples = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        run()
        samples.append(time.perf_counter_ns() - begin)
    return samples


def _array(tensor: dict[str, Any], file: int) -> Array:
    """The array in a file, from a cache line on: no engine gets a worse place by chance."""
    import numpy as np

    dtype = np.dtype(engines.DTYPES[tensor["dtype"]])
    shape = tuple(tensor["shape"])
    nbytes = math.prod(shape) * dtype.itemsize
    room = np.empty(nbytes + _LINE_BYTES, np.uint8)
    start = -room.ctypes.data % _LINE_BYTES
    place = room[start : start + nbytes]
    with open(file, "rb", buffering=0) as stream:
        done = 0
        while done < nbytes:  # one call reads 2 GiB at most
            count = stream.readinto(place.data[done:])
            if not count:
                raise ValueError(f"{tensor['name']} has {done} bytes of {nbytes}")
            done += count
    return place.view(dtype).reshape(shape)


def _max_error(
    names: Sequence[str], expected: Sequence[Array], outputs: dict[str, Array]
) -> float | None:
    """The worst of all outputs: max |out - expected| over max |expected|; infinite where one has
    another shape. One that the engine calls by another name is found by its place."""
    found = list(outputs.values())
    errors = []
    for place, (name, one) in enumerate(zip(names, expected, strict=True)):
        if name not in outputs and place >= len(found):
            return math.inf
        errors.append(_error(outputs.get(name, found[min(place, len(found) - 1)]), one))
    return max(errors, default=None)


def _error(one: Array, other: Array) -> float:
    import numpy as np

    if np.shape(one) != other.shape:
        return math.inf
    left, right = np.asarray(one).astype(np.float64), other.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        if same.all():
            return 0.0
        off = float(np.max(np.abs(left - right)[~same]))
        span = float(np.max(np.abs(right), where=np.isfinite(right), initial=0.0))
    return off / span if span and math.isfinite(off) else math.inf


def _text(failure: Exception) -> str:
    lines = str(failure).strip().splitlines() or [""]
    return f"{type(failure).__name__}: {lines[0]}"[:_MOST_TEXT]
