"""The protocol of a process in which another engine runs a model as a reference, over a socket.

child → parent   {"ready": <version>}
parent → child   {"path": <path> | null, "names": [<name>…], "extra": [<name>…],
                  "inputs": {<name>: <array>…}, …}
                 with the message as an open file if the path is null, and one for each array
child → parent   {"outputs": [<array>…], "counts": [<int> | null…]} with an open file for each
                  array, or {"failed": <text>, "lacks_memory": bool}

An array is {"dtype", "shape"}, with its elements in the file; an array of strings is {"strings",
"shape"}, with an empty file. The outputs are those of `names`, then those of `extra`: values inside
the model that it does not return. An output is one array or, if its count is a number, a sequence
of that number of items.
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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier_device import wire
from farrier_device.storage import durable

Array: TypeAlias = npt.NDArray[Any]
Order: TypeAlias = Mapping[str, Any]
# Runs a model: maps an order and its open files to the outputs.
Run: TypeAlias = Callable[[Order, Sequence[int]], list[Array | list[Array]]]

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_NO_MEMORY = ("bad_alloc", "bad allocation", "failed to allocate", "out of memory")


def serve_engine(start: Callable[[], str], run: Run) -> None:
    """Answer orders until the parent closes the socket. `start` imports the engine and returns its
    version; `run` computes the outputs of an order."""
    (descriptor,) = (json.loads(word) for word in sys.argv[2:])
    _enter()
    with socket.socket(fileno=descriptor) as sock, contextlib.suppress(wire.ClosedError):
        wire.send(sock, {"ready": start()})
        while True:
            _answer(sock, wire.receive(sock), run)


def _enter() -> None:
    """Arrange that the process ends when its parent thread ends, leaves no core dump, and is the
    first to be killed by the kernel if memory is short."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # The sandbox of a job forbids it.
        Path("/proc/self/oom_score_adj").write_text("1000")


def _answer(sock: socket.socket, order: Order, run: Run) -> None:
    has_file = order["path"] is None
    files = wire.receive_files(sock, has_file + len(order["inputs"]))
    try:
        outputs = run(order, files)
    except Exception as error:  # Errors of engines have no common base.
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


def send_arrays(
    sock: socket.socket,
    message: Mapping[str, Any],
    key: str,
    arrays: Sequence[Array] | Mapping[str, Array],
    files: Sequence[int] = (),
) -> None:
    """Send a message with arrays under `key`, followed by `files` and one file for each array.
    Raises ClosedError, OSError."""
    values = list(arrays.values()) if isinstance(arrays, Mapping) else arrays
    descriptions = [_told(array) for array in values]
    named = (
        dict(zip(arrays, descriptions, strict=True))
        if isinstance(arrays, Mapping)
        else descriptions
    )
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_file(array)) for array in values]
        wire.send(sock, {**message, key: named})
        wire.send_files(sock, [*files, *opened])


def read_arrays(descriptions: Any, files: Sequence[int]) -> list[Array]:
    """Return the arrays that `send_arrays` sent, mapped from their files."""
    return [
        _array(description, file) for description, file in zip(descriptions, files, strict=True)
    ]


def copied_arrays(records: Any, files: Sequence[int]) -> list[Array]:
    """Return copies of the arrays that `send_arrays` sent. A mapped file would not be safe: the
    sender, which may run untrusted code, can truncate it. Raises ValueError for other files."""
    return [_copied(record, file) for record, file in zip(records, files, strict=True)]


def _copied(record: Mapping[str, Any], file: int) -> Array:
    if "strings" in record or not math.prod(record["shape"]):
        return _array(record, file)
    dtype = _dtype(record["dtype"])
    nbytes = math.prod(record["shape"]) * dtype.itemsize
    if dtype.hasobject or nbytes != os.fstat(file).st_size or nbytes > _memory_bytes():
        raise ValueError(f"a file that does not hold {nbytes} bytes")
    content = np.empty(nbytes, np.uint8)
    at = 0
    while at < nbytes:
        count = os.preadv(file, [content[at:].data], at)
        if not count:
            raise ValueError("a file that became shorter")
        at += count
    return content.view(dtype).reshape(record["shape"])


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _told(array: Array) -> dict[str, Any]:
    if array.dtype.kind in "OUS":
        return {"strings": array.reshape(-1).tolist(), "shape": array.shape}
    return {"dtype": array.dtype.name, "shape": array.shape}


@contextlib.contextmanager
def _file(array: Array) -> Any:
    """Yield an open anonymous file that contains the array's elements."""
    file = os.memfd_create("farrier-array", os.MFD_CLOEXEC)
    try:
        if array.dtype.kind not in "OUS" and array.size:
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            durable.write_all(file, content.data)
        yield file
    finally:
        os.close(file)


def _array(description: Mapping[str, Any], file: int) -> Array:
    shape = tuple(description["shape"])
    if "strings" in description:
        return np.array(description["strings"], object).reshape(shape)
    dtype = _dtype(description["dtype"])
    if not math.prod(shape):
        return np.empty(shape, dtype)
    content = mmap.mmap(file, 0)  # The kernel keeps the elements for as long as they are read.
    return np.frombuffer(content, dtype).reshape(shape)


def _dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of that name: one of numpy's, or of ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
