"""The parent's side of an engine's process: load a model, request rounds of runs, and stop the
process between rounds.

Engines keep threads spinning after a run, in expectation of the next one. A process that is not
being measured is therefore stopped (SIGSTOP), together with all processes that it has started, so
that it takes no core from the engine that is being measured.
"""

from __future__ import annotations

import dataclasses
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from farrier_device import codec, wire
from farrier_device.baseline.engines import Engine
from farrier_device.baseline.limit import Limit

_WIRE_TIMEOUT_S = 10.0  # The rest of a frame that has begun takes less.
_GLANCE_S = 0.2  # A keeper that waits looks up as often.
_MOST_FRAME = 1 << 20  # An answer without samples has fewer bytes.
_SAMPLE_BYTES = 21  # These are the digits of 64 bits, and a comma.
_MOST_TEXT = 100  # An error shows these first characters of an answer that is nonsense.


class EngineError(Exception):
    """The reason why an engine could not be timed, or could not be timed any further."""


class Process(Protocol):
    """A process that a lane can stop and continue."""

    @property
    def sock(self) -> socket.socket: ...

    def stop(self) -> None: ...

    def go_on(self) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """An order to load a model into an engine's process.

    Open files are sent with the order: one for each tensor of `inputs`, one for each tensor of
    `expected` (the outputs with which the engine's outputs are compared), and, if `keeps` is true,
    one to which the engine writes its outputs. The process is bound to the CPUs `cpus`, if there
    are any. `limit` is an instruction-set limit, with the folder for the changed copies of the
    engine's libraries.
    """

    engine: Engine
    model: Path
    threads: int
    inputs: Sequence[Mapping[str, Any]]
    expected: Sequence[Mapping[str, Any]] = ()
    keeps: bool = False
    precision: str = "f32"
    cpus: Sequence[int] = ()
    limit: tuple[Limit, Path] | None = None

    def message(self) -> dict[str, Any]:
        """Return the order as the message that `process` takes."""
        limit = None
        if self.limit is not None:
            limit = {**dataclasses.asdict(self.limit[0]), "folder": str(self.limit[1])}
        return {
            "adapter": str(self.engine.adapter),
            "packages": self.engine.packages,
            "distribution": self.engine.distribution,
            "precision": self.precision if len(self.engine.precisions) > 1 else None,
            "limit": limit,
            "model": str(self.model),
            "threads": self.threads,
            "cpus": list(self.cpus),
            "inputs": list(self.inputs),
            "expected": list(self.expected),
            "keeps": self.keeps,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """The answer of an engine to an order, after it has run the model once.

    `limited` describes how the engine was restricted to an x86-64 level, "" if it was not. `load_s`
    is the time in seconds from opening the model file to the first outputs, without the import of
    the engine. `max_error` is the error of the outputs, None without outputs to compare with.
    `kept` describes the tensors that the engine wrote to the file of outputs.
    """

    version: str
    limited: str
    load_s: float
    max_error: float | None
    kept: tuple[dict[str, Any], ...]


class Lane:
    """An engine in a race, in its own process. Every method raises EngineError if the engine fails,
    TimeoutError if no answer comes in time, and the exceptions of the callback `glance`."""

    def __init__(
        self,
        process: Process,
        *,
        ended: Callable[[], str],
        glance: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a lane for a process. `ended` returns a text on how a process that no longer
        answers has ended. `glance` is called several times a second while an answer is awaited; if
        it raises an exception, the wait ends."""
        self._process = process
        self._ended = ended
        self._glance = glance

    def load(self, order: Order, files: Sequence[int], within_s: float) -> Loaded:
        """Have the engine load a model and run it once; return its answer."""
        answer = self._ask(order.message(), files, within_s)
        try:
            return codec.decode(Loaded, answer)
        except ValueError:
            raise self._nonsense(answer) from None

    def run(self, count: int, warmup: int, within_s: float) -> tuple[int, ...]:
        """Return the nanoseconds of each of `count` runs, which follow `warmup` runs that are not
        timed."""
        most = _MOST_FRAME + count * _SAMPLE_BYTES
        answer = self._ask({"warmup": warmup, "count": count}, (), within_s, most)
        match answer:
            case {"samples": list(samples)} if len(samples) == count and all(
                type(ns) is int and ns > 0 for ns in samples
            ):
                return tuple(samples)
        raise self._nonsense(answer)

    def _ask(
        self,
        message: dict[str, Any],
        files: Sequence[int],
        within_s: float,
        most: int = _MOST_FRAME,
    ) -> dict[str, Any]:
        """Continue the stopped process, send it a message with open files, and return its answer,
        which must arrive within `within_s` and have at most `most` bytes. The process is stopped
        again after its answer."""
        sock = self._process.sock
        self._process.go_on()
        sock.settimeout(_WIRE_TIMEOUT_S)
        try:
            wire.send(sock, message)
            wire.send_files(sock, files)
            self._await(time.monotonic() + within_s)
            answer = wire.receive(sock, most, _WIRE_TIMEOUT_S)
        except wire.ClosedError:
            raise EngineError(self._ended()) from None
        except wire.WireError as error:
            raise EngineError(f"the engine's process sent an invalid answer: {error}") from None
        self._process.stop()
        if type(failed := answer.get("failed")) is str:
            raise EngineError(f"the engine cannot run the model: {failed}")
        return answer

    def _await(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._process.sock, select.POLLIN)
        while True:
            self._glance()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if poll.poll(1000 * min(left, _GLANCE_S)):
                return

    def _nonsense(self, answer: dict[str, Any]) -> EngineError:
        return EngineError(
            f"the engine's process sent an invalid answer: {str(answer)[:_MOST_TEXT]}"
        )
