"""Builders: remote processes of a farm that compile modules of kernels, as local helper processes
do.

The unit of work is a text with kernels, target and threads (`farrier.compile_pool.helper`). The
implementation of `RemoteCompilers` decides how the text and the answer are transferred.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from farrier.compile_pool.modules import Claim, Made, Module, ModuleQueue, failed

_COUNTED_S = 2.0  # The seconds between two queries of the number of builders.
_MOST_AT_ONCE = 64
_MOST_CHARACTERS = 4 << 20  # The limit for a module; a usual one has 1,000 to 100,000.


@dataclasses.dataclass(frozen=True, slots=True)
class Built:
    """The result of a message to a builder. If both fields are empty, no builder took the message,
    or the builders went away."""

    answer: str = ""  # The answer of `farrier.compile_pool.helper.build`.
    crashed: str = ""  # How the process ended in each of the attempts.


class RemoteCompilers(Protocol):
    """A connection to builders, safe to share between threads. Both methods raise FarrierError if
    the service cannot be reached."""

    def count(self) -> int:
        """Return the number of messages on which builders can work in parallel, including those of
        other clients; 0 means that nothing should be sent."""
        ...

    def build(self, message: str) -> Built:
        """Send a message, wait for a builder's answer and return it; return an empty result if the
        builders go away."""
        ...


class Dispatcher:
    """A dispatcher that sends builders the modules for which no local compiler is free.

    One thread watches the queue, and one more waits for each module in flight. Slightly more
    modules are in flight than the builders work on in parallel, so that a builder has its next
    module when it finishes one: the transfer takes a fifth of the time.
    """

    def __init__(
        self,
        builders: RemoteCompilers,
        queue: ModuleQueue,
        write: Callable[[Module], str | None],
        read: Callable[[Mapping[str, Any], Module], Made],
    ) -> None:
        """Start the thread that watches the queue. `write` returns the message for a module, or
        None if the module cannot be sent; `read` parses the answer."""
        self._builders = builders
        self._queue = queue
        self._write = write
        self._read = read
        self._under_way = 0
        self._allowed = 0
        self._counted = -_COUNTED_S
        self._thread = threading.Thread(target=self._run, name="builders", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        queue = self._queue
        while True:
            with queue.changed:
                queue.changed.wait_for(lambda: queue.is_closed or queue.has_surplus())
                if queue.is_closed:
                    return
            if not self._count():
                return
            with queue.changed:
                taken = []
                while self._under_way < self._allowed and (claim := queue.take_surplus()):
                    self._under_way += 1
                    taken.append(claim)
            for claim in taken:
                threading.Thread(target=self._build, args=(claim,), daemon=True).start()
            with queue.changed:
                queue.changed.wait_for(self._is_to_look, _COUNTED_S)

    def _is_to_look(self) -> bool:
        return self._queue.is_closed or (
            self._under_way < self._allowed and self._queue.has_surplus()
        )

    def _count(self) -> bool:
        """Update the number of modules that may be in flight; return False if the builders can no
        longer be reached."""
        if time.monotonic() - self._counted >= _COUNTED_S:
            try:
                count = self._builders.count()
                self._allowed = min(count + count // 4 + 1, _MOST_AT_ONCE) if count else 0
            except Exception:  # The farm is out of reach; a caller that needs it will report that.
                return False
            self._counted = time.monotonic()
        return True

    def _build(self, taken: Claim) -> None:
        """Compile a module, in a thread of its own. Whatever happens, the module is answered or
        returned to the queue."""
        results: Made | None = None
        try:
            results = self._made(taken.module)
        # The builders cannot be asked, or have no answer: the module is compiled locally.
        except Exception:
            results = None
        finally:
            with self._queue.changed:
                self._under_way -= 1
            if results is None:
                self._queue.give_back(taken)
            else:
                self._queue.answer(taken, results)

    def _made(self, module: Module) -> Made | None:
        message = self._write(module)
        if message is None:
            return {}
        if len(message) > _MOST_CHARACTERS:
            return None
        built = self._builders.build(message)
        if built.crashed:
            return failed(module, built.crashed)
        return self._read(json.loads(built.answer), module) if built.answer else None
