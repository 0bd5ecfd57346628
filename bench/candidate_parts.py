"""Divide a search's processor time into parts, by the functions in which it is spent.

`python -m bench.candidate_cost` prints the tables; this module also runs in helper processes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from farrier import llvm
from farrier.compile_pool import helper, helpers
from farrier.cost_model import CostModel
from farrier.measure import batch
from farrier.records import FileRecords
from farrier.schedule_search.evolution import EvolutionarySearch
from farrier.space import Space
from farrier.targets.cpu.backend import CpuBackend
from farrier.targets.cpu.codegen import batch as emitting
from farrier_device.blobstore import BlobStore

OTHER = "other"  # The name of the rest, which no part in PARTS covers.
_START_S = 60.0  # The time limit for helpers to start.
_PREFIX = "farrier-candidate-cost-"
_serve = helper.serve


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A part of the cost: the time in a set of functions, each given by its owner and its name
    there. If `whole`, the time of all functions that they call counts; otherwise calls of other
    parts' functions are excluded. If `waits`, the time of child processes that they wait for counts
    too."""

    name: str
    functions: tuple[tuple[Any, str], ...]
    whole: bool = False
    waits: bool = False


PARTS = (
    Part("task data", ((batch, "make_task_data"),), whole=True),
    Part("propose", ((EvolutionarySearch, "propose"), (EvolutionarySearch, "update"))),
    Part("fit", ((CostModel, "fit"),)),
    Part("schedule, lower", ((helpers, "lower"), (helper, "lower"))),
    Part("emit", ((emitting, "emit_module"),)),
    Part("LLVM", ((llvm, "object_of"),)),
    Part("packing", ((batch, "packing_function"), (batch, "packing_objects")), whole=True),
    Part("link", ((CpuBackend, "library"),), whole=True, waits=True),
    Part("blobs", ((BlobStore, "put"),)),
    Part(
        "helpers' text",
        (
            (helpers, "print_ir"),
            (helpers, "read_interface"),
            (helper, "parse_ir"),
            (helper, "print_ir"),
        ),
    ),
    Part("records", ((FileRecords, "add"), (Space, "trace"))),
)


class Stopwatch:
    """An accumulator of this process's time by part. A nested call counts only for the inner
    part."""

    def __init__(self) -> None:
        self.ns: Counter[str] = Counter()
        self._threads = threading.local()

    def time(self, parts: Iterable[Part]) -> None:
        """Start timing the functions of the parts, until the process ends."""
        for part in parts:
            for owner, name in part.functions:
                setattr(owner, name, self._timed(getattr(owner, name), part))

    def _timed(self, function: Callable[..., Any], part: Part) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            stack: list[Part] = self._threads.__dict__.setdefault("stack", [])
            if stack and stack[-1].whole:
                return function(*args, **named)
            began = time.thread_time_ns()
            if stack:
                self.ns[stack[-1].name] += began - self._threads.since
            stack.append(part)
            self._threads.since = began
            children = _children_ns() if part.waits else 0
            try:
                return function(*args, **named)
            finally:
                self._threads.since, since = time.thread_time_ns(), self._threads.since
                self.ns[part.name] += self._threads.since - since
                self.ns[part.name] += _children_ns() - children if part.waits else 0
                stack.pop()

        return timed


def _children_ns() -> int:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((used.ru_utime + used.ru_stime) * 1e9)


@functools.cache
def watch() -> Stopwatch:
    """Return this process's stopwatch. The first call starts timing the functions of PARTS."""
    llvm.initialized()  # Every compilation would wait for this once.
    watched = Stopwatch()
    watched.time(PARTS)
    return watched


def process_ns() -> int:
    """Return the processor time, in nanoseconds, of this process and of its children that have
    ended."""
    return time.process_time_ns() + _children_ns()


class Others:
    """The helper processes' times, which they write to files after each answer."""

    def __init__(self, count: int) -> None:
        """Wait until `count` helpers have started, at most `_START_S` seconds."""
        deadline = time.monotonic() + _START_S
        while len(self._files()) < count and time.monotonic() < deadline:
            time.sleep(0.01)

    def spent(self) -> Counter[str]:
        """Return the helpers' nanoseconds by part since they started, and remove their files."""
        total: Counter[str] = Counter()
        for file in self._files():
            total.update(json.loads(file.read_text()))
            file.unlink()
        return total

    def _files(self) -> list[Path]:
        return list(Path(tempfile.gettempdir()).glob(f"{_PREFIX}{os.getpid()}-*.json"))


def serve() -> None:
    """Run a helper process (`farrier.compile_pool.helper.serve`) that writes its times to a
    file."""
    file = Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getppid()}-{os.getpid()}.json"
    watched, began = watch(), process_ns()
    answer = helper._answer

    def tell() -> None:
        spent = process_ns() - began
        part = file.with_suffix(".part")
        part.write_text(json.dumps({**watched.ns, OTHER: spent - sum(watched.ns.values())}))
        part.rename(file)

    def answered(*args: Any) -> dict[str, Any]:
        result = answer(*args)
        tell()
        return result

    vars(helper)["_answer"] = answered
    tell()
    _serve()
