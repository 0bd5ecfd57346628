"""The process in which ONNX Runtime runs a model as a reference, over a socket.

child → parent   {"ready": <version>}
parent → child   {"path": <path> | null, "folder": <path> | null, "is_plain": bool,
                  "names": [<name>…], "extra": [<name>…], "inputs": {<name>: <array>…}}
                 with the message as an open file where there is no path, and one for each array
child → parent   {"outputs": [<array>…], "counts": [<int> | null…]} with an open file for each
                  array, or {"failed": <text>, "lacks_memory": bool}

An array is {"dtype", "shape"}, its elements in the file; one of strings is {"strings", "shape"},
and its file is empty. Outputs are those of `names`, then those of `extra`: values inside the model,
which the model does not return by itself. An output is one array, or as many as its count says,
the items of a sequence. `is_plain` leaves the optimizer of ONNX Runtime out.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import math
import mmap
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier_device import wire
from farrier_device.storage import durable

Array: TypeAlias = npt.NDArray[Any]

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_NO_MEMORY = ("bad_alloc", "bad allocation", "failed to allocate", "out of memory")


def serve() -> None:
    """The `main` of the process: it is told the descriptor of its socket."""
    (descriptor,) = (json.loads(word) for word in sys.argv[2:])
    _enter()
    with socket.socket(fileno=descriptor) as sock, contextlib.suppress(wire.ClosedError):
        import onnxruntime

        wire.send(sock, {"ready": onnxruntime.__version__})
        while True:
            _answer(sock, wire.receive(sock))


def _enter() -> None:
    """Have the process end with the thread that started it, leave no core dump, and be the first
    that the kernel ends where memory is short."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # a job's walls forbid it
        Path("/proc/self/oom_score_adj").write_text("1000")


def _answer(sock: socket.socket, order: Mapping[str, Any]) -> None:
    has_file = order["path"] is None
    files = wire.receive_files(sock, has_file + len(order["inputs"]))
    try:
        outputs = _outputs(order, files)
    except Exception as error:  # the errors of ONNX Runtime have no common base
        text = f"{type(error).__name__}: {error}"
        is_short = isinstance(error, MemoryError) or any(
            word in text.lower() for word in _NO_MEMORY
        )
        wire.send(sock, {"failed": text[:2000], "lacks_memory": is_short})
        return
    finally:
        for file in files:
            os.close(file)
    counts = [len(output) if isinstance(output, list) else None for output in outputs]
    parts = [output if isinstance(output, list) else [output] for output in outputs]
    arrays = list(itertools.chain.from_iterable(parts))
    send_arrays(sock, {"counts": counts}, "outputs", arrays)


def _outputs(order: Mapping[str, Any], files: Sequence[int]) -> list[Array | list[Array]]:
    """Return the outputs of the model. The session, which holds the weights, ends with it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_prepacking", "1")  # a third copy
    if order["is_plain"]:  # it maps the data; what it makes of weights lives from node to node
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
        options.enable_cpu_mem_arena = False
    folder = order["folder"]
    if order["extra"] and order["path"] is not None:  # it is handed the message, of no path
        folder = str(Path(order["path"]).parent)
    if folder is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
    session = onnxruntime.InferenceSession(
        _source(order, files), options, providers=["CPUExecutionProvider"]
    )
    inputs = read_arrays(order["inputs"].values(), files[order["path"] is None :])
    given = dict(zip(order["inputs"], inputs, strict=True))
    outputs = session.run([*order["names"], *order["extra"]], given)
    return [_arrays(output) for output in outputs]


def _arrays(output: Any) -> Array | list[Array]:
    """An output as an array, or a sequence as a list of arrays; maps are rows, with a column for
    each key in ascending order."""
    if not isinstance(output, list):
        return np.asarray(output)
    if output and isinstance(output[0], dict):
        return np.array([[row[key] for key in sorted(row)] for row in output], np.float32)
    return [np.asarray(item) for item in output]


def _source(order: Mapping[str, Any], files: Sequence[int]) -> str | bytes:
    """What a session reads the model from: a path, or the message where its data lies in a folder
    of its own, or the model is to return more than it does."""
    path: str = order["path"] or f"/proc/self/fd/{files[0]}"
    if order["extra"]:
        from farrier.frontends.onnx.importer import exposed

        return exposed(Path(path).read_bytes(), order["extra"])
    return path if order["folder"] is None else Path(path).read_bytes()


def send_arrays(
    sock: socket.socket,
    message: Mapping[str, Any],
    key: str,
    arrays: Sequence[Array] | Mapping[str, Array],
    files: Sequence[int] = (),
) -> None:
    """Send a message, in which the arrays are under `key`, then `files` and those of the arrays.
    Raises ClosedError, OSError."""
    values = list(arrays.values()) if isinstance(arrays, Mapping) else arrays
    told = [_told(array) for array in values]
    named = dict(zip(arrays, told, strict=True)) if isinstance(arrays, Mapping) else told
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_file(array)) for array in values]
        wire.send(sock, {**message, key: named})
        wire.send_files(sock, [*files, *opened])


def read_arrays(told: Any, files: Sequence[int]) -> list[Array]:
    """The arrays that `send_arrays` has sent."""
    return [_array(one, file) for one, file in zip(told, files, strict=True)]


def _told(array: Array) -> dict[str, Any]:
    if array.dtype.kind in "OUS":
        return {"strings": array.reshape(-1).tolist(), "shape": array.shape}
    return {"dtype": array.dtype.name, "shape": array.shape}


@contextlib.contextmanager
def _file(array: Array) -> Any:
    """An open file, which only its descriptor names, with the array's elements."""
    file = os.memfd_create("farrier-array", os.MFD_CLOEXEC)
    try:
        if array.dtype.kind not in "OUS" and array.size:
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            durable.write_all(file, content.data)
        yield file
    finally:
        os.close(file)


def _array(told: Mapping[str, Any], file: int) -> Array:
    shape = tuple(told["shape"])
    if "strings" in told:
        return np.array(told["strings"], object).reshape(shape)
    dtype = _dtype(told["dtype"])
    if not math.prod(shape):
        return np.empty(shape, dtype)
    content = mmap.mmap(file, 0)  # the kernel keeps the elements for as long as they are read
    return np.frombuffer(content, dtype).reshape(shape)


def _dtype(name: str) -> np.dtype[Any]:
    """The type of that name: one of numpy's, or one that numpy has only with ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
