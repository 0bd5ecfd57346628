"""Run what may crash in a child: ONNX Runtime, and code that is compiled from a random model."""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
T = TypeVar("T")


# No child has the writing end of another's pipe, which would keep that open. A child forks again.
_FORKING = threading.RLock()


class Died(Exception):
    """The child ended by a signal, or took too long."""


def in_child(function: Callable[..., T], *args: Any, seconds: float = 120.0) -> T:
    """Call a function in a forked child, which is silent, and return its result; raise what it
    raises, and Died."""
    with _FORKING:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            _answer(writer, function, args)
        os.close(writer)
    try:
        answer = _read(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
        if not _has_ended(child):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if answer is None:
        raise Died(f"no answer in {seconds:.0f} s")
    if not answer:
        raise Died("it crashed")
    is_result, value = pickle.loads(answer)
    if not is_result:
        raise value
    return value


def _answer(writer: int, function: Callable[..., Any], args: Sequence[Any]) -> None:
    """Write a pickled result, or what was raised, and end the process."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        answer = pickle.dumps((True, function(*args)))
    except BaseException as error:
        answer = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
    with os.fdopen(writer, "wb") as stream:
        stream.write(answer)
    os._exit(0)


def _read(reader: int, end: float) -> bytes | None:
    """All that a child writes; None where it goes on beyond the end."""
    answer = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(end - time.monotonic(), 0))
        if not ready:
            return None
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return answer
        answer += chunk


def _has_ended(child: int) -> bool:
    """Check whether a child that has closed its pipe ends by itself, which takes a moment."""
    for _ in range(200):
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.005)
    return False


def onnxruntime_outputs(model: bytes, feeds: Sequence[Mapping[str, Any]]) -> list[Arrays | None]:
    """ONNX Runtime's outputs by name for each feed, computed in a child; None where it has none."""
    try:
        return in_child(_run, model, feeds)
    except (Died, RuntimeError):
        return [None for _ in feeds]


def _run(model: bytes, feeds: Sequence[Mapping[str, Any]]) -> list[Arrays | None]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    results: list[Arrays | None] = []
    for feed in feeds:
        try:
            arrays = session.run(names, dict(feed))
            results.append(dict(zip(names, map(np.asarray, arrays), strict=True)))
        except Exception:  # Its errors have no common base class.
            results.append(None)
    return results
