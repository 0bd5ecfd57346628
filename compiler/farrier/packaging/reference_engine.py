"""Run another engine as a reference, in a process of its own, since it may crash.

The engine runs untrusted models in code that is not Farrier's. If it crashes on a model, hangs or
lacks memory, it returns no result, and another reference decides.
"""

from __future__ import annotations

import abc
import contextlib
import importlib.metadata
import importlib.util
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy.typing as npt

from farrier.errors import FarrierError
from farrier.frontends.onnx.model.file import Model
from farrier.packaging.reference_child import copied_arrays, send_arrays
from farrier_device import wire
from farrier_device.child_process import ChildProcess
from farrier_device.closing import Closing
from farrier_device.python import command_of

Array: TypeAlias = npt.NDArray[Any]

# Engines take seconds for the largest models of docs/performance.md, and a machine that
# compiles is busy. A device has as long for one candidate (`packaging/verify.py`).
_TIMEOUT_S = 120.0
# For each second beyond that, in bytes of weights: the speed of a slow disk.
_BYTES_A_SECOND = 10 << 20


class ReferenceEngine(Closing, abc.ABC):
    """A process that runs one model on any number of inputs.

    The process starts immediately, and imports its modules in parallel with this process. If it has
    ended, it is restarted for the next inputs, unless it exceeded its time limit, which a new
    process would, too. `warn` is called once if the engine fails for a reason that is not the
    model's.
    """

    title: ClassVar[str]  # The engine's name, for people.
    module: ClassVar[str]  # The module whose presence shows that it is installed.
    distribution: ClassVar[str]  # The distribution with its version.
    serve: ClassVar[Callable[[], None]]  # The `main` of the process.

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
        with contextlib.suppress(OSError):  # It is started again when it is needed.
            self._start()

    @classmethod
    def of(
        cls, model: Model, warn: Callable[[str], object], most_s: float = _TIMEOUT_S
    ) -> Self | None:
        """Return the engine's process for a model, or None if the engine is not installed. An
        answer may take `most_s` seconds, and more for a large model."""
        if not importlib.util.find_spec(cls.module):
            return None
        return cls(model, warn, min(most_s, _TIMEOUT_S))

    @property
    def name(self) -> str:
        """The name and version of the engine, for people."""
        return f"{self.title} {self._version or self._installed_version()}"

    @property
    def pid(self) -> int:
        """The process id of the running process."""
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
        """Return the outputs of these names, then the internal values of the model named in
        `extra`: arrays, or lists of arrays for sequences. None if the engine cannot run the model
        on these inputs. `is_plain` switches the engine's optimizer off, which may round differently
        and has had defects."""
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
        except FarrierError:  # A file of the model is gone; code that needs it reports that.
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
            lambda line: command_of(type(self).serve, line),
            own_group=False,
            stderr=subprocess.DEVNULL,  # Its last words mean nothing to a user.
            env=self._environment(),
        )
        self._process.sock.settimeout(self._timeout_s)

    def _asked(
        self,
        inputs: Mapping[str, Array],
        names: Sequence[str],
        extra: Sequence[str],
        is_plain: bool,
    ) -> tuple[dict[str, Any], list[Any] | None]:
        """Let the process, started if necessary, run the model with the arguments of `run`.

        Return its answer, and the outputs in it; None for these if the engine failed. Raises
        ClosedError, WireError, OSError (TimeoutError if no answer comes in time), and FarrierError
        if a file of the model cannot be read.
        """
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
            arrays = iter(copied_arrays(answer["outputs"], files))
            return answer, [_output(arrays, count) for count in answer["counts"]]
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise wire.WireError(f"a malformed answer: {error}") from error
        finally:
            for file in files:
                os.close(file)

    def _environment(self) -> Mapping[str, str] | None:
        """Return the environment variables of the process; None for those of this process."""
        return None

    @abc.abstractmethod
    def _source(self) -> contextlib.AbstractContextManager[tuple[dict[str, Any], list[int]]]:
        """Return a context with the fields of an order that locate the model for the process, and
        the open files that belong to them."""

    def _installed_version(self) -> str:
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:  # Another distribution has the module.
            return ""

    def _ended(self) -> str:
        """Return a description of how the process ended, after its socket closed."""
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
    """Return the next output from `arrays`: one array, or the next `count` arrays as a sequence."""
    return next(arrays) if count is None else list(itertools.islice(arrays, count))
