"""ONNX Runtime as a reference: in a process of its own, which it may take down with it.

It runs what strangers wrote, in code that is not Farrier's. A model on which it crashes, hangs or
lacks memory is one on which it has no answer, and another reference decides.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt

from farrier.errors import FarrierError
from farrier.frontends.onnx.model.file import Model
from farrier.packaging.onnxruntime_child import read_arrays, send_arrays, serve
from farrier_device import wire
from farrier_device.child_process import ChildProcess
from farrier_device.closing import Closing
from farrier_device.python import command_of
from farrier_device.storage.durable import write_all

Array: TypeAlias = npt.NDArray[Any]

# ONNX Runtime takes seconds for the largest models of docs/performance.md, and a machine that
# compiles is busy. A device has as long for one candidate (`packaging/verify.py`).
_TIMEOUT_S = 120.0
_BYTES_A_SECOND = 10 << 20  # of weights, beyond that: a slow disk


class OnnxRuntime(Closing):
    """One process that runs one model, for as many inputs as are asked for. It starts at once, and
    begins to import while this process goes on; one that has ended is started again when it is
    asked next, but for one that had no answer in its time, which another one would not have either.
    `warn` is told, once, that it had no answer for a reason of its own."""

    def __init__(
        self, model: Model, warn: Callable[[str], object], timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._model = model
        self._warn = warn
        self._timeout_s = timeout_s + model.nbytes / _BYTES_A_SECOND
        self._warned = False
        self._is_too_slow = False
        self._process: ChildProcess | None = None
        self._is_ready = False
        self._version = ""
        with contextlib.suppress(OSError):  # it is started again when it is asked
            self._start()

    @classmethod
    def of(
        cls, model: Model, warn: Callable[[str], object], most_s: float = _TIMEOUT_S
    ) -> OnnxRuntime | None:
        """The process for a model, which has `most_s` at most for an answer, and more for a large
        model; None where ONNX Runtime is not installed."""
        return (
            cls(model, warn, min(most_s, _TIMEOUT_S))
            if importlib.util.find_spec("onnxruntime")
            else None
        )

    @property
    def name(self) -> str:
        """Its name with its version, for people."""
        return f"ONNX Runtime {self._version or _installed_version()}"

    @property
    def pid(self) -> int:
        """The number of the process, which has not ended."""
        assert self._process is not None
        return self._process.pid

    def run(
        self,
        inputs: Mapping[str, Array],
        names: Sequence[str],
        *,
        extra: Sequence[str] = (),
        is_plain: bool = False,
    ) -> list[Any] | None:
        """The outputs of these names, then the values inside the model that are called `extra`:
        arrays, and lists of arrays for sequences. None where ONNX Runtime does not run the model on
        these inputs. `is_plain` leaves its optimizer out, which may round otherwise, and has had
        defects."""
        if self._is_too_slow:
            return None
        try:
            answer, outputs = self._asked(inputs, names, extra, is_plain)
        except (wire.ClosedError, wire.WireError):
            self._say(self._ended())
            return None
        except TimeoutError:
            self._is_too_slow = True
            self._say(f"gave none within {self._timeout_s:.0f} s")
            self.close()
            return None
        except OSError as error:
            self._say(f"could not be started: {error}")
            self.close()
            return None
        except FarrierError:  # a file of the model is gone: who needs it says so
            return None
        if answer.get("lacks_memory"):
            self._say(f"lacks memory: {answer['failed']}")
        return outputs

    def close(self) -> None:
        """End the process; a second call does nothing."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _start(self) -> None:
        self._is_ready = False
        self._process = ChildProcess(
            lambda line: command_of(serve, line),
            own_group=False,
            stderr=subprocess.DEVNULL,  # Its last words mean nothing to a user.
        )
        self._process.sock.settimeout(self._timeout_s)

    def _asked(
        self,
        inputs: Mapping[str, Array],
        names: Sequence[str],
        extra: Sequence[str],
        is_plain: bool,
    ) -> tuple[dict[str, Any], list[Any] | None]:
        """The answer, and the outputs in it. Raises ClosedError, WireError, OSError (a time-out is
        one), and FarrierError for a file of the model."""
        if self._process is None:
            self._start()
        assert self._process is not None
        sock = self._process.sock
        if not self._is_ready:
            self._version = str(wire.receive(sock)["ready"])
            self._is_ready = True
        with self._source() as (source, files):
            order = {
                **source,
                "is_plain": is_plain or bool(extra) or bool(self._model.locations),
                "names": list(names),
                "extra": list(extra),
            }
            send_arrays(sock, order, "inputs", inputs, files)
            answer = wire.receive(sock)
        if "failed" in answer:
            return answer, None
        files = wire.receive_files(sock, len(answer["outputs"]))
        try:
            arrays = iter(read_arrays(answer["outputs"], files))
            return answer, [_output(arrays, count) for count in answer["counts"]]
        finally:
            for file in files:
                os.close(file)

    @contextlib.contextmanager
    def _source(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """From what the process reads the model, and the files that go with it: its path, beside
        which it finds the data; or else the message, with data in a folder."""
        model = self._model
        if model.path is not None and (model.has_folder or not model.locations):
            yield {"path": str(model.path.absolute()), "folder": None}, []
            return
        message: bytes | memoryview = model.message
        folder: Path | None = None
        if model.locations:
            from farrier.frontends.onnx.importer import relocated  # It imports onnx, which is slow.

            message, folder = relocated(model)
        file = os.memfd_create("farrier-model", os.MFD_CLOEXEC)
        try:
            write_all(file, memoryview(message))
            yield {"path": None, "folder": None if folder is None else str(folder)}, [file]
        finally:
            os.close(file)

    def _ended(self) -> str:
        """How the process has ended, in words, once it says nothing more."""
        assert self._process is not None
        how = self._process.ending()
        self.close()
        return f"was {how}" if how.startswith("killed") else how

    def _say(self, how: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(
                f"{self.name} has no answer to compare with: it {how}; "
                "the model is compared with Farrier's own operators in float64 alone"
            )


def _output(arrays: Iterator[Array], count: int | None) -> Array | list[Array]:
    """The next output of the arrays: one of them, or the next `count` as a sequence."""
    return next(arrays) if count is None else list(itertools.islice(arrays, count))


def _installed_version() -> str:
    try:
        return importlib.metadata.version("onnxruntime")
    except importlib.metadata.PackageNotFoundError:  # another distribution has the module
        return ""
