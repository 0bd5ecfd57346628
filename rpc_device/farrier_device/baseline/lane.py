"""An engine's process from its keeper's side: loaded, asked for rounds, and stopped in between.

Engines keep threads spinning after a run, in the hope of the next one. A process that is not being
measured is therefore stopped (SIGSTOP) with all that it started: it takes no core from the
engine that is.
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
    """The reason why an engine is not timed, or no more."""


class Process(Protocol):
    """A process that a lane stops and continues."""

    @property
    def sock(self) -> socket.socket: ...

    def stop(self) -> None: ...

    def go_on(self) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """An order to load a model into an engine's process. Files go along with it: one for each
    tensor of `inputs`, then one for each of `expected`, the outputs to compare with, and, if it
    `keeps` the outputs, one to write them to. The process is bound to `cpus`, if there are any.
    `limit` is a limit of the engine, and the folder for the copies of libraries that it changes."""

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
        """Return the message that `process` takes."""
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
    """An engine's answer to an order: it has run the model once.

    `limited` is the way in which it was kept to a level, "" if it was not. `load_s` are the seconds
    from the file to the first outputs, the engine being imported. `max_error` is the error of the
    outputs, None if there are none to compare with. The `kept` tensors lie in its file.
    """

    version: str
    limited: str
    load_s: float
    max_error: float | None
    kept: tuple[dict[str, Any], ...]


class Lane:
    """An engine in a race. Every method raises EngineError if the engine fails, TimeoutError if no
    answer comes in time, and the errors of `glance`."""

    def __init__(
        self,
        process: Process,
        *,
        ended: Callable[[], str],
        glance: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` returns how a process that no longer answers has ended. `glance` is called
        several times a second during a wait for an answer; an exception of it ends the wait."""
        self._process = process
        self._ended = ended
        self._glance = glance

    def load(self, order: Order, files: Sequence[int], within_s: float) -> Loaded:
        """Have the engine load a model, and run it once."""
        answer = self._ask(order.message(), files, within_s)
        try:
            return codec.decode(Loaded, answer)
        except ValueError:
            raise self._nonsense(answer) from None

    def run(self, count: int, warmup: int, within_s: float) -> tuple[int, ...]:
        """Return the nanoseconds of each of `count` runs, after `warmup` that are not counted."""
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
        """Send the process a message and return its answer. The process runs only until it has
        answered."""
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
            raise EngineError(f"its process answered with nonsense: {error}") from None
        self._process.stop()
        if type(failed := answer.get("failed")) is str:
            raise EngineError(f"it cannot run the model: {failed}")
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
        return EngineError(f"its process answered with nonsense: {str(answer)[:_MOST_TEXT]}")
