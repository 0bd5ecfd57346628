"""Keeps a measurement child at work on a batch, and replaces it when a candidate takes it down."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import select
import socket
import threading
import time

from farrier_device import measurement, wire
from farrier_device.measurement import CandidateResult, MeasureRequest, Status
from farrier_device.runners.files import BatchFiles
from farrier_device.sandbox import Limits, SandboxedProcess, is_from_outside

_CHILD = "farrier_device.child"
_SETUP_TIMEOUT_S = 60.0  # to load a library, or to fill one candidate's arguments
_READ_BYTES_S = 20e6  # of large ones, from a slow disk
_MOST_SETUP_S = 900.0
_CLEAR_UP_S = 10.0  # to end the threads and unload the library, after the last candidate
_WIRE_TIMEOUT_S = 10.0  # for the rest of a frame that has begun
_GLANCE_S = 0.2  # how often to look whether the batch was cancelled
_EXIT_S = 1.0  # from the end of the conversation to the end of the process


class CancelledError(Exception):
    """The batch was called off."""


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One result a candidate, in order. The child that measured candidate `i` had begun with
    candidate `begins[i]`."""

    results: list[CandidateResult]
    begins: list[int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Ending:
    """How a child ended before its batch did."""

    how: str
    timed_out: bool = False
    outside: bool = False  # not by its own doing
    loaded: bool = False  # whether the library was in
    started: bool = False  # whether the candidate's own code was running


class Supervisor:
    """One warm child at a time. Not for use by two threads at once."""

    def __init__(self, limits: Limits, required: str, pin: bool) -> None:
        self._limits = limits
        self._required = required
        self._pin = pin
        self._child: SandboxedProcess | None = None
        self._spent_s = 0.0  # of processor time that the child may have used
        # A child dies with the thread that started it, so that is one that lives as long as this.
        self._spawner = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="farrier-spawn")
        # The pool knows its thread before there is a child: a signal while it began the thread for
        # one would leave that thread unknown, and `close` would not wait for it.
        self._spawner.submit(int).result()

    def child(self) -> SandboxedProcess:
        """The child at work, started if there is none. Raises SandboxError."""
        return self._child or self._spawner.submit(self._started).result()

    def _started(self) -> SandboxedProcess:
        """The child, from the thread that starts it: whoever waited may have been interrupted, and
        `close` must know of it all the same."""
        if self._child is None:
            self._child = SandboxedProcess(_CHILD, self._limits, required=self._required)
            self._spent_s = 0.0
        return self._child

    def run(
        self,
        request: MeasureRequest,
        files: BatchFiles,
        cancelled: threading.Event,
        *,
        fresh: bool = False,
    ) -> Run:
        """Measures the candidates; `fresh` asks for a child that has run nothing. Raises
        SandboxError, CancelledError."""
        if fresh:
            self._drop()
        results: list[CandidateResult] = []
        begins: list[int] = []
        again = -1  # the candidate that has had its second chance
        while len(results) < len(request.candidates):
            begin = len(results)
            try:
                ending = self._follow(request, files, results, cancelled)
            except BaseException:
                self._drop()
                raise
            begins += [begin] * (len(results) - begin)
            if ending is None or len(results) == len(request.candidates):
                break  # where it could not clear up, the child is gone, and all results are here
            index = len(results)
            if (ending.outside or not ending.loaded) and again != index:
                again = index
                continue
            left = 1 if ending.loaded else len(request.candidates) - index
            results += [_verdict(ending, request.policy.timeout_s)] * left
            begins += [begin] * left
        if self._spent_s > self._limits.cpu_s / 2:
            self._drop()
        return Run(results, begins)

    def close(self) -> None:
        self._spawner.shutdown()  # when it is over, nothing starts any more
        self._drop()

    def _drop(self) -> str:
        if self._child is None:
            return ""
        how = self._child.kill()  # a signal may end this early: then `close` does it once more
        self._child = None
        return how

    def _follow(
        self,
        request: MeasureRequest,
        files: BatchFiles,
        results: list[CandidateResult],
        cancelled: threading.Event,
    ) -> _Ending | None:
        """Gives the child what is left of the batch and appends its results as they come; returns
        how it ended if it did before the last."""
        child = self.child()
        sock = child.sock
        sock.settimeout(_WIRE_TIMEOUT_S)
        loaded = started = False
        begin = time.monotonic()
        try:
            wire.send(sock, self._order(request, files, first=len(results)))
            wire.send_files(sock, files.descriptors)
            setup_s = min(_SETUP_TIMEOUT_S + request.most_bytes / _READ_BYTES_S, _MOST_SETUP_S)
            deadline = time.monotonic() + setup_s
            while True:
                _await(sock, deadline, cancelled)
                match wire.receive(sock):
                    case {"loaded": True} if not loaded:
                        loaded = True
                    case {"started": int(index)} if index == len(results) and not started:
                        started = True
                        deadline = time.monotonic() + request.policy.timeout_s
                    case {"result": int(index), "value": dict(value)} if index == len(results):
                        results.append(measurement.candidate_result(value))
                        started = False
                        is_last = len(results) == len(request.candidates)
                        deadline = time.monotonic() + (_CLEAR_UP_S if is_last else setup_s)
                    case {"done": True} if len(results) == len(request.candidates):
                        return None
                    case message:
                        raise wire.WireError(f"an unexpected message {str(message)[:100]}")
        except TimeoutError:
            self._drop()
            return _Ending("hung", timed_out=True, loaded=loaded, started=started)
        except wire.ClosedError:
            code = child.wait(_EXIT_S)
            how = f"{child.said()}; " if code is not None and code > 0 else ""
            how += self._drop()
            return _Ending(how, outside=is_from_outside(code), loaded=loaded, started=started)
        except (wire.WireError, ValueError) as error:
            self._drop()
            return _Ending(f"answered with nonsense: {error}", loaded=loaded, started=started)
        finally:
            self._spent_s += (time.monotonic() - begin) * request.policy.threads

    def _order(self, request: MeasureRequest, files: BatchFiles, first: int) -> dict[str, object]:
        return {
            "request": measurement.to_json(request),
            "first": first,
            "pin": self._pin,
            "blobs": files.names,
        }


def _await(sock: socket.socket, deadline: float, cancelled: threading.Event) -> None:
    """Waits until the child says something. Raises TimeoutError, CancelledError."""
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
    """What the end of its process says about the candidate that was being measured."""
    if not ending.loaded:
        return CandidateResult(Status.REJECTED, message=f"loading the library: {ending.how}")
    if not ending.started:
        return CandidateResult(Status.REJECTED, message=f"making the arguments: {ending.how}")
    if ending.timed_out:
        return CandidateResult(Status.TIMEOUT, message=f"did not return within {timeout_s:g} s")
    return CandidateResult(Status.CRASHED, message=ending.how)
