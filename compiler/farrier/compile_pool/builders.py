"""Builders: processes of a farm, elsewhere, that compile modules of kernels as helpers do.

The unit is one text with kernels, target and threads (`farrier.compile_pool.helper`). The
implementation of `RemoteCompilers` decides how it is transferred to a builder and back.
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
    """The result of a message. With neither field, no builder took it, or they went away."""

    answer: str = ""  # The answer of `farrier.compile_pool.helper.build`.
    crashed: str = ""  # How the process ended in each of the attempts.


class RemoteCompilers(Protocol):
    """A connection to builders, safe to share between threads. Both methods raise FarrierError if
    it is out of reach."""

    def count(self) -> int:
        """Return the number of messages that builders work on in parallel, those of others
        included; 0 means that nothing is to be sent."""
        ...

    def build(self, message: str) -> Built:
        """Wait for a builder's answer; it ends if the builders go away."""
        ...


class Dispatcher:
    """Send builders the modules that local compilers are not free for, in one thread for each
    module under way, and one for the queue. There are somewhat more under way than the builders
    work on in parallel, so that a builder has the next one when it is done: the transfer takes a
    fifth of the time."""

    def __init__(
        self,
        builders: RemoteCompilers,
        queue: ModuleQueue,
        write: Callable[[Module], str | None],
        read: Callable[[Mapping[str, Any], Module], Made],
    ) -> None:
        """Start the thread. `write` returns the message of a module, or None if it cannot be sent;
        `read` reads its answer. self._builders = builders self._queue = queue self._write = write
        self._read = read self._under_way = 0 self._allowed = 0 self._counted = -_COUNTED_S
        self._thread = threading.Thread(target=self._run, name="builders", daemon=True)
        self._thread.start()"""
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
        """Update the number of modules that may be under way; return False if the builders cannot
        be asked any more."""
        if time.monotonic() - self._counted >= _COUNTED_S:
            try:
                count = self._builders.count()
                self._allowed = min(count + count // 4 + 1, _MOST_AT_ONCE) if count else 0
            except Exception:  # The farm is out of reach; a caller that needs it will report that.
                return False
            self._counted = time.monotonic()
        return True

    def _build(self, taken: Claim) -> None:
        """Compile a module in its thread: it is answered or given back, whatever happens."""
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
