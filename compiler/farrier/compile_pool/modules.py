"""The queue of modules to compile, and their assignment to compilers.

A module is a group of kernels that become one object file. Three kinds of compilers take modules:
helper processes, remote builders, and the thread in this process that waits for a job's kernels.
Jobs are served in the order of their arrival. Only one thread compiles in this process at a time,
because two would only alternate in holding the interpreter's lock.
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

Module: TypeAlias = Mapping[str, BuildInput]  # The kernels of one object.
Made: TypeAlias = dict[str, Compiled | CompilerError]  # The result of each kernel.


@dataclasses.dataclass(eq=False, slots=True)
class CompileRequest:
    """The progress of one request to compile modules. Modules that no compiler has claimed yet are
    listed by number, separately for the kinds of compilers that may claim them. The results of
    finished modules are collected."""

    modules: Sequence[Module]
    waiting: collections.deque[int]  # Modules for any free compiler.
    local: collections.deque[int]  # Returned by builders: for helpers, and for this process.
    here: collections.deque[int]  # Failed in helpers: for this process, which finds the error.
    results: dict[int, Made]
    is_awaited: bool = False  # Set if a thread waits for the request and compiles in the meantime.

    @classmethod
    def of(cls, modules: Sequence[Module]) -> CompileRequest:
        waiting = collections.deque(range(len(modules)))
        return cls(modules, waiting, collections.deque(), collections.deque(), {})

    @property
    def is_done(self) -> bool:
        return len(self.results) == len(self.modules)

    def numbers(self, wanted: Collection[str]) -> list[int]:
        """Return the numbers of the modules whose kernels are all `wanted`."""
        modules = enumerate(self.modules)
        return [number for number, module in modules if all(key in wanted for key in module)]

    def within(self, wanted: Collection[str]) -> Iterator[str]:
        """Yield the keys of the kernels in the modules whose kernels are all `wanted`."""
        for number in self.numbers(wanted):
            yield from self.modules[number]


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A module on which one compiler works. Each claim is ended exactly once, by a method of the
    queue."""

    job: CompileRequest
    number: int

    @property
    def module(self) -> Module:
        return self.job.modules[self.number]


class ModuleQueue:
    """The queue of the modules of all requests; safe to share between threads."""

    def __init__(self) -> None:
        self.changed = (
            threading.Condition()
        )  # The lock that every method holds; notified of changes.
        self._jobs: list[CompileRequest] = []  # The unfinished jobs, in the order of their arrival.
        self._idle = 0  # The number of helpers that wait for a module.
        self._is_here_busy = False
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def put(self, modules: Sequence[Module]) -> CompileRequest:
        """Queue modules for helpers and builders, and return the request."""
        job = CompileRequest.of(modules)
        with self.changed:
            self._jobs.append(job)
            self.changed.notify_all()
        return job

    def take_local(self) -> Claim | None:
        """Take the next module for a helper process, waiting for one if necessary; None once the
        queue is closed."""
        with self.changed:
            self._idle += 1
            try:
                while not self._is_closed:
                    for job in self._jobs:
                        if numbers := job.local or job.waiting:
                            return Claim(job, numbers.popleft())
                    self.changed.wait()
                return None
            finally:
                self._idle -= 1

    def take_surplus(self) -> Claim | None:
        """Take a module for a remote builder; None if local compilers have capacity for all waiting
        modules. The caller must hold `changed`."""
        if not self.has_surplus():
            return None
        job = next(job for job in self._jobs if job.waiting)
        return Claim(job, job.waiting.popleft())

    def has_surplus(self) -> bool:
        """Check whether `take_surplus` would return a module. The caller must hold `changed`."""
        is_here_free = not self._is_here_busy and self._next_here() is not None
        return sum(len(job.waiting) for job in self._jobs) > self._idle + is_here_free

    @contextlib.contextmanager
    def awaited(self, job: CompileRequest, wanted: Collection[int]) -> Iterator[None]:
        """Within the context, let the calling thread compile modules of a job by `take_here`.
        Modules that are not `wanted` count as finished without kernels."""
        with self.changed:
            for number in range(len(job.modules)):
                if number not in wanted:
                    job.results.setdefault(number, {})
            for line in (job.waiting, job.local, job.here):
                kept = [number for number in line if number not in job.results]
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
        """Take the next module of a job for the thread that waits for the job, as soon as that
        thread may compile; None once all modules are finished."""
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
        """Allow another thread to compile in this process."""
        with self.changed:
            self._is_here_busy = False
            self.changed.notify_all()

    def answer(self, taken: Claim, results: Made) -> None:
        """Store the results of a module's kernels. If there are none, this process compiles the
        module again, to determine the error."""
        with self.changed:
            if taken.number not in taken.job.results:
                if results:
                    taken.job.results[taken.number] = results
                else:
                    taken.job.here.append(taken.number)
            self.changed.notify_all()

    def give_back(self, taken: Claim) -> None:
        """Return a module that no builder compiles to the queue, for local compilers."""
        with self.changed:
            if taken.number not in taken.job.results:
                taken.job.local.append(taken.number)
            self.changed.notify_all()

    def close(self) -> None:
        """Close the queue; compilers get no more modules."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()

    def _next_here(self) -> CompileRequest | None:
        """Return the job whose waiting thread may compile in this process now."""
        for job in self._jobs:
            if job.is_awaited and (job.here or job.local or job.waiting):
                return job
        return None


def failed(module: Module, how: str) -> Made:
    """Return the results for a module whose compiler process ended; `how` completes the sentence
    "the process that compiled …"."""
    names = ", ".join(build_input.name for build_input in module.values())
    error = CompilerError(f"the process that compiled {names} {how}")
    return dict.fromkeys(module, error)
