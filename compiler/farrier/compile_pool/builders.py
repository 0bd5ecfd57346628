"""Builders: processes elsewhere, of a farm, that compile modules of kernels as helpers do.

The unit is one text with kernels, target and threads (`farrier.compile_pool.helper`). Whoever
implements `RemoteCompilers` decides how it gets to a builder and back.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from farrier.compile_pool.modules import Claim, Made, Module, ModuleQueue, failed

_COUNTED_S = 2.0  # between two looks at how many builders there are
_MOST_AT_ONCE = 64
_MOST_CHARACTERS = 4 << 20  # of a module; a usual one has 1,000 to 100,000


@dataclasses.dataclass(frozen=True, slots=True)
class Built:
    """What became of a message. With neither field, no builder took it, or they went away."""

    answer: str = ""  # as `farrier.compile_pool.helper.build` gives it
    crashed: str = ""  # how the process ended, each time that it was tried


class RemoteCompilers(Protocol):
    """Safe to share between threads. Both methods raise FarrierError where nobody can be asked."""

    def count(self) -> int:
        """How many messages they work on at once, those of others included. 0: nothing is to be
        sent."""
        ...

    def build(self, message: str) -> Built:
        """Wait for a builder's answer; it ends where the builders do."""
        ...


class Dispatcher:
    """Hands builders what those who compile here are not free for: a thread, and one for each
    module under way. As many are under way as the builders work on at once, and some more, so that
    a builder finds the next one when it is done: the way there and back is a fifth of the time."""

    def __init__(
        self,
        builders: RemoteCompilers,
        queue: ModuleQueue,
        write: Callable[[Module], str | None],
        read: Callable[[Mapping[str, Any], Module], Made],
    ) -> None:
        """`write` makes the message of a module, or None for one that cannot be sent; `read` reads
        its answer."""
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
                while self._under_way < self._allowed and (one := queue.take_surplus()):
                    self._under_way += 1
                    taken.append(one)
            for one in taken:
                threading.Thread(target=self._build, args=(one,), daemon=True).start()
            with queue.changed:
                queue.changed.wait_for(self._is_to_look, _COUNTED_S)

    def _is_to_look(self) -> bool:
        return self._queue.is_closed or (
            self._under_way < self._allowed and self._queue.has_surplus()
        )

    def _count(self) -> bool:
        """Sets how many modules may be under way; False where nobody is to be asked any more."""
        if time.monotonic() - self._counted >= _COUNTED_S:
            try:
                count = self._builders.count()
                self._allowed = min(count + count // 4 + 1, _MOST_AT_ONCE) if count else 0
            except Exception:  # the farm is out of reach, and whoever needs it will say so
                return False
            self._counted = time.monotonic()
        return True

    def _build(self, taken: Claim) -> None:
        """The thread of a module: whatever happens, it is answered or given back."""
        made: Made | None = None
        try:
            made = self._made(taken.module)
        except Exception:  # nobody can be asked, or the answer is none: it is compiled locally
            made = None
        finally:
            with self._queue.changed:
                self._under_way -= 1
            if made is None:
                self._queue.give_back(taken)
            else:
                self._queue.answer(taken, made)

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
