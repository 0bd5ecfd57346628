"""The modules that wait to be compiled, and who compiles which.

A module is some kernels that become one object. Three kinds of compilers take modules: helper
processes, builders elsewhere, and the thread that waits for a job's kernels, in this process. Jobs
are served in the order in which they came, and one thread at a time compiles here: two would only
take turns at the interpreter's lock.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from farrier.compile_pool.compile import BuildInput, Compiled
from farrier.errors import CompilerError

Module: TypeAlias = Mapping[str, BuildInput]  # the kernels of one object
Made: TypeAlias = dict[str, Compiled | CompilerError]  # what became of each


@dataclasses.dataclass(eq=False, slots=True)
class CompileRequest:
    """Modules that somebody asked for: the numbers of those that nobody has taken, by who may take
    them, and what became of the others."""

    modules: Sequence[Module]
    waiting: collections.deque[int]  # for whoever is free
    local: collections.deque[int]  # builders gave them back: for helpers, and for this process
    here: collections.deque[int]  # helpers could not: for this process, which finds the error
    made: dict[int, Made]
    is_awaited: bool = False  # by a thread, which compiles meanwhile

    @classmethod
    def of(cls, modules: Sequence[Module]) -> CompileRequest:
        waiting = collections.deque(range(len(modules)))
        return cls(modules, waiting, collections.deque(), collections.deque(), {})

    @property
    def is_done(self) -> bool:
        return len(self.made) == len(self.modules)

    def numbers(self, wanted: Collection[str]) -> list[int]:
        """Of the modules of which all kernels are `wanted`."""
        modules = enumerate(self.modules)
        return [number for number, module in modules if all(key in wanted for key in module)]

    def within(self, wanted: Collection[str]) -> Iterator[str]:
        """The keys of the kernels of those modules."""
        for number in self.numbers(wanted):
            yield from self.modules[number]


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A module that somebody compiles now. Each is answered exactly once, by a method of the queue
    that it is from."""

    job: CompileRequest
    number: int

    @property
    def module(self) -> Module:
        return self.job.modules[self.number]


class ModuleQueue:
    """The modules of all jobs. Safe to share between threads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()  # what each method holds
        self._jobs: list[CompileRequest] = []  # that are not done, in the order in which they came
        self._idle = 0  # helpers that wait for a module
        self._is_here_busy = False
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def put(self, modules: Sequence[Module]) -> CompileRequest:
        """Have helpers and builders compile modules from now on."""
        job = CompileRequest.of(modules)
        with self.changed:
            self._jobs.append(job)
            self.changed.notify_all()
        return job

    def take_local(self) -> Claim | None:
        """The next module for a helper, waiting until there is one; None once closed."""
        with self.changed:
            self._idle += 1
            try:
                while not self._is_closed:
                    for job in self._jobs:
                        if found := job.local or job.waiting:
                            return Claim(job, found.popleft())
                    self.changed.wait()
                return None
            finally:
                self._idle -= 1

    def take_surplus(self) -> Claim | None:
        """The next module for a builder; None where those who compile here are free for all that
        there are: they have it without a way to go. To be called with `changed` held."""
        if not self.has_surplus():
            return None
        job = next(job for job in self._jobs if job.waiting)
        return Claim(job, job.waiting.popleft())

    def has_surplus(self) -> bool:
        """Whether `take_surplus` would give one. To be called with `changed` held."""
        is_here_free = not self._is_here_busy and self._next_here() is not None
        return sum(len(job.waiting) for job in self._jobs) > self._idle + is_here_free

    @contextlib.contextmanager
    def awaited(self, job: CompileRequest, wanted: Collection[int]) -> Iterator[None]:
        """Within it the calling thread compiles modules of a job by `take_here`. Those that are not
        `wanted` count as made, of nothing."""
        with self.changed:
            for number in range(len(job.modules)):
                if number not in wanted:
                    job.made.setdefault(number, {})
            for line in (job.waiting, job.local, job.here):
                kept = [number for number in line if number not in job.made]
                line.clear()
                line.extend(kept)
            job.is_awaited = True
            self.changed.notify_all()
        try:
            yield
        finally:
            with self.changed:
                self._jobs.remove(job)
                self.changed.notify_all()

    def take_here(self, job: CompileRequest) -> Claim | None:
        """The next module of a job for the thread that awaits it, once it is its turn to compile
        here; None once all are made."""
        with self.changed:
            self.changed.wait_for(
                lambda: job.is_done or (not self._is_here_busy and self._next_here() is job)
            )
            if job.is_done:
                return None
            self._is_here_busy = True
            line = job.here or job.local or job.waiting
            return Claim(job, line.popleft())

    def leave_here(self) -> None:
        """Let another thread compile here."""
        with self.changed:
            self._is_here_busy = False
            self.changed.notify_all()

    def answer(self, taken: Claim, made: Made) -> None:
        """What became of a module's kernels; without any, this process compiles it once more, for
        its error."""
        with self.changed:
            if taken.number not in taken.job.made:
                if made:
                    taken.job.made[taken.number] = made
                else:
                    taken.job.here.append(taken.number)
            self.changed.notify_all()

    def give_back(self, taken: Claim) -> None:
        """A module that no builder compiles after all: it is compiled locally."""
        with self.changed:
            if taken.number not in taken.job.made:
                taken.job.local.append(taken.number)
            self.changed.notify_all()

    def close(self) -> None:
        """Nobody gets another module."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()

    def _next_here(self) -> CompileRequest | None:
        """Whose turn it is to compile here."""
        for job in self._jobs:
            if job.is_awaited and (job.here or job.local or job.waiting):
                return job
        return None


def failed(module: Module, how: str) -> Made:
    """What becomes of a module whose process ended; `how` reads on from what it compiled."""
    names = ", ".join(build_input.name for build_input in module.values())
    error = CompilerError(f"the process that compiled {names} {how}")
    return dict.fromkeys(module, error)
