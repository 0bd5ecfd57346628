"""The supervisor of a measurement child, which replaces the child when a candidate crashes or hangs
it."""

from __future__ import annotations

import contextlib
import dataclasses
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from farrier_device import measurement, wire
from farrier_device.child_process import describe_exit, is_from_outside
from farrier_device.library_form import HOST_CODE
from farrier_device.measurement import CandidateResult, MeasureRequest, Status
from farrier_device.runners.children import Children
from farrier_device.runners.files import BatchFiles
from farrier_device.sandbox import Limits

_SETUP_TIMEOUT_S = 60.0  # The time to load a library, or to fill one candidate's arguments.
_READ_BYTES_S = 20e6  # The reading speed of large arguments, from a slow disk.
_MOST_SETUP_S = 900.0
_CLEAR_UP_S = 10.0  # The time to end the threads and unload the library, after the last candidate.
_WIRE_TIMEOUT_S = 10.0  # The time for the rest of a frame that has begun.
# A child's largest frame is a result: 2,000 characters of text, each of which JSON may write in 12
# bytes, with the names of the fields; and samples of 20 digits with a comma.
_TEXT_BYTES = 32 << 10
_SAMPLE_BYTES = 21
_GLANCE_S = 0.2  # The interval at which a cancelled batch is noticed.
_EXIT_S = 1.0  # The time from the end of the connection to the end of the process.


class CancelledError(Exception):
    """The batch was cancelled."""


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """The results of a run, one per candidate, in order. The first candidate that ran in the same
    child as candidate `i` was candidate `begins[i]`."""

    results: list[CandidateResult]
    begins: list[int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Ending:
    """The end of a child before it has finished its batch."""

    how: str
    timed_out: bool = False
    outside: bool = False  # The child was ended from outside.
    loaded: bool = False  # The library was loaded.
    started: bool = False  # The candidate's own code was running.


class Supervisor:
    """An owner of one measurement child at a time, which has loaded one library. At most one thread
    may use a supervisor at a time."""

    def __init__(
        self,
        limits: Limits,
        required: str,
        pin: bool,
        device: str = "",
        secrets: Sequence[Path] = (),
    ) -> None:
        """Create the supervisor, without a child yet. `device` and `secrets` have the meaning that
        they have for `Children`."""
        self._limits = limits
        self._pin = pin
        self._children = Children(limits, required, device, secrets)
        self._kind = HOST_CODE
        self._spent_s = 0.0  # The processor time that the child may have used.

    @contextlib.contextmanager
    def batch(self, kind: str = HOST_CODE) -> Iterator[str]:
        """Return a context for the runs of one batch on a kind of device. Its value is the
        isolation level of the child. At its end, the child and all processes that the child has
        started are killed. Raises SandboxError."""
        self._kind = kind
        try:
            yield self._children.child(kind).level
        finally:
            self._end()

    def _end(self) -> None:
        self._children.end()
        self._spent_s = 0.0

    def run(
        self,
        request: MeasureRequest,
        files: BatchFiles,
        cancelled: threading.Event,
        *,
        fresh: bool = False,
    ) -> Run:
        """Measure the candidates. With `fresh`, they run in a child that has not run any code yet.
        Raises SandboxError, CancelledError."""
        if fresh:
            self._end()
        results: list[CandidateResult] = []
        begins: list[int] = []
        again = -1  # The candidate that has had its second chance.
        while len(results) < len(request.candidates):
            begin = len(results)
            try:
                ending = self._follow(request, files, results, cancelled)
            except BaseException:
                self._end()
                raise
            begins += [begin] * (len(results) - begin)
            if ending is None or len(results) == len(request.candidates):
                break  # The child could not clear up and is gone, but all results are here.
            index = len(results)
            if (ending.outside or not ending.loaded) and again != index:
                again = index
                continue
            left = 1 if ending.loaded else len(request.candidates) - index
            results += [_verdict(ending, request.policy.timeout_s)] * left
            begins += [begin] * left
        if self._spent_s > self._limits.cpu_s / 2:
            self._end()
        return Run(results, begins)

    def close(self) -> None:
        self._children.close()

    def _follow(
        self,
        request: MeasureRequest,
        files: BatchFiles,
        results: list[CandidateResult],
        cancelled: threading.Event,
    ) -> _Ending | None:
        """Send the child the rest of the batch, and append its results to `results` as they arrive.
        Return the child's ending if it ends before the batch is finished, otherwise None."""
        child = self._children.child(self._kind)
        progress = _Progress(request, results)
        begin = time.monotonic()
        try:
            self._send(child.sock, request, files, first=len(results))
            while not progress.is_over:
                _await(child.sock, progress.deadline, cancelled)
                progress.take(wire.receive(child.sock, progress.most_bytes, _WIRE_TIMEOUT_S))
            return None
        except TimeoutError:
            self._end()
            return progress.ending("hung", timed_out=True)
        except wire.ClosedError:
            code, said = self._children.end(_EXIT_S) or (None, "")
            how = "hung up" if code is None else describe_exit(code)
            how = f"{said}; {how}" if code is not None and code > 0 else how
            return progress.ending(how, outside=is_from_outside(code))
        except wire.TooLongError:
            self._end()
            return progress.ending(f"sent more than {progress.most_bytes} bytes")
        except (wire.WireError, ValueError) as error:
            self._end()
            return progress.ending(f"sent an invalid message: {error}")
        finally:
            self._spent_s += (time.monotonic() - begin) * request.policy.threads

    def _send(
        self, sock: socket.socket, request: MeasureRequest, files: BatchFiles, first: int
    ) -> None:
        sock.settimeout(_WIRE_TIMEOUT_S)
        wire.send(sock, self._order(request, files, first))
        wire.send_files(sock, files.descriptors)

    def _order(self, request: MeasureRequest, files: BatchFiles, first: int) -> dict[str, object]:
        return {
            "request": measurement.to_json(request),
            "first": first,
            "pin": self._pin,
            "blobs": files.names,
        }


class _Progress:
    """The progress of a child with its batch, according to the child's messages."""

    def __init__(self, request: MeasureRequest, results: list[CandidateResult]) -> None:
        """Set the state before the first message. Results are appended to `results` as they
        arrive."""
        self._request = request
        self._results = results
        self._is_loaded = self._is_started = False
        self._setup_s = min(_SETUP_TIMEOUT_S + request.most_bytes / _READ_BYTES_S, _MOST_SETUP_S)
        self.deadline = time.monotonic() + self._setup_s  # The deadline of the next message.
        self.most_bytes = _most_bytes(request)  # of a message
        self.is_over = False

    def take(self, message: dict[str, Any]) -> None:
        """Process a message of the child. Raises WireError or ValueError for an unexpected
        message."""
        match message:
            case {"loaded": True} if not self._is_loaded:
                self._is_loaded = True
            case {"started": int(index)} if self._is_next(index) and not self._is_started:
                self._is_started = True
                self.deadline = time.monotonic() + self._request.policy.timeout_s
            case {"result": int(index), "value": dict(value)} if self._is_next(index):
                self._results.append(measurement.candidate_result(value))
                self._is_started = False
                left_s = _CLEAR_UP_S if self._has_all else self._setup_s
                self.deadline = time.monotonic() + left_s
            case {"done": True} if self._has_all:
                self.is_over = True
            case _:
                raise wire.WireError(f"an unexpected message {str(message)[:100]}")

    def ending(self, how: str, *, timed_out: bool = False, outside: bool = False) -> _Ending:
        """Return the ending of a child that ends now: for the reason `how`, because of a timeout,
        or by a signal from outside."""
        return _Ending(how, timed_out, outside, self._is_loaded, self._is_started)

    @property
    def _has_all(self) -> bool:
        return len(self._results) == len(self._request.candidates)

    def _is_next(self, index: int) -> bool:
        return index == len(self._results) and not self._has_all


def _most_bytes(request: MeasureRequest) -> int:
    """Return an upper bound of the size in bytes of a single message of the child that measures
    this request."""
    steps = max((1 + len(candidate.parts) for candidate in request.candidates), default=1)
    samples = max(request.policy.max_repeats, 1) * steps
    return min(_TEXT_BYTES + _SAMPLE_BYTES * samples, wire.MAX_FRAME)


def _await(sock: socket.socket, deadline: float, cancelled: threading.Event) -> None:
    """Wait until the child sends something. Raises TimeoutError, CancelledError."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    while not cancelled.is_set():
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if poll.poll(1000 * min(left, _GLANCE_S)):
            return
    raise CancelledError


def _verdict(ending: _Ending, timeout_s: float) -> CandidateResult:
    """Return the failed result of the candidate that was being loaded, prepared or run when its
    process ended."""
    if not ending.loaded:
        return CandidateResult(Status.REJECTED, message=f"loading the library: {ending.how}")
    if not ending.started:
        return CandidateResult(Status.REJECTED, message=f"making the arguments: {ending.how}")
    if ending.timed_out:
        return CandidateResult(Status.TIMEOUT, message=f"did not return within {timeout_s:g} s")
    return CandidateResult(Status.CRASHED, message=ending.how)
