"""From decisions to machine code, every kernel of a model: here, and in helper processes beside.

Nearly all of a compilation is this, and no kernel depends on another. A helper is told of kernels
as text, and answers with their object (`farrier.kernels.helper`). Which kernels share a module does
not depend on who compiles them, so the code is the same whatever help there is.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import gc
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from farrier.errors import CompilerError
from farrier.ir.loop import Function
from farrier.ir.printer import print_ir
from farrier.kernels.compile import BuildInput, Compiled, codegen, lower
from farrier.kernels.helper import read_interface, serve
from farrier.targets import Target
from farrier.targets.interface import Interface
from farrier_device import wire
from farrier_device.closing import Closing
from farrier_device.sandbox import describe_exit

_KERNELS_A_MODULE = 2  # LLVM's set-up costs a module 3 ms; few, so that work is shared evenly
_NODES_A_HELPER = 24  # of a model, for which it pays to start one more: that takes 0.7 s
_MOST_HELPERS = 7
# It finds our modules where we do.
_BOOTSTRAP = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {0} import {1}; {1}()"


@dataclasses.dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled kernels, and what there is to know for whoever calls them, by task key."""

    interfaces: Mapping[str, Interface]
    objects: Sequence[bytes]


Module: TypeAlias = Mapping[str, BuildInput]  # the kernels of one object
Made: TypeAlias = dict[str, Compiled | CompilerError]  # what became of each
Answer: TypeAlias = tuple[int, Made | str]  # the module's number; or what became of its helper


def helpers_for(nodes: int) -> int:
    """How many helpers a model of so many nodes should have on this machine."""
    others = len(os.sched_getaffinity(0)) - 1
    return min(others, nodes // _NODES_A_HELPER, _MOST_HELPERS)


class Helpers(Closing):
    """Processes that compile kernels beside this one. They start in the background, and end with
    the context."""

    def __init__(self, count: int, target: Target, threads: int) -> None:
        self._target = target
        self._begun: list[tuple[dict[str, BuildInput], _Job]] = []
        self._helpers: list[_Helper] = []
        with contextlib.suppress(OSError):  # no more processes: those that there are do the work
            for _ in range(count):
                self._helpers.append(_Helper(target, threads))

    def begin(self, build_inputs: Mapping[str, BuildInput]) -> None:
        """Has the helpers compile kernels that `compile` will be asked for, while others are being
        chosen. One whose schedule changes until then is compiled in vain."""
        self._begun.append((dict(build_inputs), self._started(build_inputs)))

    def compile(self, build_inputs: Mapping[str, BuildInput]) -> Kernels:
        """Every kernel that is asked for, by task key. Raises CompilerError."""
        made: Made = {}
        for begun, started in self._begun:
            same = {key for key, one in begun.items() if _is_same(one, build_inputs.get(key))}
            made |= self._finished(started, same)
        self._begun.clear()
        made |= self.build({key: one for key, one in build_inputs.items() if key not in made})
        interfaces, objects = {}, []
        for key, one in ((key, made[key]) for key in build_inputs):
            if isinstance(one, CompilerError):
                raise one
            interfaces[key] = one.interface
            objects.append(one.content)
        return Kernels(interfaces, list(dict.fromkeys(objects)))

    def build(self, build_inputs: Mapping[str, BuildInput]) -> Made:
        """Every kernel that is asked for, or why there is none, in their order."""
        return self._finished(self._started(build_inputs), build_inputs.keys())

    def _started(self, build_inputs: Mapping[str, BuildInput]) -> _Job:
        """Modules that the helpers compile from now on."""
        items = list(build_inputs.items())
        modules: list[Module] = [
            dict(items[start : start + _KERNELS_A_MODULE])
            for start in range(0, len(items), _KERNELS_A_MODULE)
        ]
        job = _Job(modules, collections.deque(range(len(modules))), queue.SimpleQueue())
        for helper in self._helpers:
            helper.take(job)
        return job

    def _finished(self, job: _Job, wanted: Collection[str]) -> Made:
        """What became of the kernels of every module of which all are `wanted`; an object with
        another would define a kernel twice."""
        modules = job.modules
        is_wanted = [all(key in wanted for key in module) for module in modules]
        made: dict[int, Made] = {}
        with _no_collection():
            while (number := _next(job.waiting)) is not None:
                made[number] = _compiled(modules[number], self._target) if is_wanted[number] else {}
        while len(made) < len(modules):
            number, answer = job.answers.get()
            module = modules[number]
            if isinstance(answer, str):
                names = ", ".join(build_input.name for build_input in module.values())
                error = CompilerError(f"the process that compiled {names} {answer}")
                made[number] = dict.fromkeys(module, error)
            else:  # what a helper could not do is done here once more, for its error
                made[number] = answer or _compiled(module, self._target)
        kept = (made[number] for number, is_kept in enumerate(is_wanted) if is_kept)
        return {key: one for each in kept for key, one in each.items()}

    def close(self) -> None:
        """Ends the processes; a second call does nothing."""
        for helper in self._helpers:
            helper.close()


def _is_same(one: BuildInput, other: BuildInput | None) -> bool:
    """Whether both are one kernel, wherever it is lowered."""
    return other is not None and one.space is other.space and one.decisions == other.decisions


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Within it no cycles of garbage are looked for: IR is made of trees, of which there are so
    many that looking takes a sixth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _next(waiting: collections.deque[int]) -> int | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _compiled(module: Module, target: Target) -> Made:
    """A module's kernels; each in an object of its own where they do not compile together."""
    made: Made = {}
    functions: dict[str, Function] = {}
    for key, build_input in module.items():
        try:
            functions[key] = lower(build_input)
        except CompilerError as error:
            made[key] = error
    try:
        made |= _coded(functions, target)
    except CompilerError:
        for key, function in functions.items():
            try:
                made |= _coded({key: function}, target)
            except CompilerError as error:
                made[key] = error
    return {key: made[key] for key in module}


def _coded(functions: Mapping[str, Function], target: Target) -> dict[str, Compiled]:
    """The kernels in one object. Raises CompilerError."""
    if not functions:
        return {}
    return dict(zip(functions, codegen([*functions.values()], target), strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """Modules to compile: the numbers of those that nobody has taken, and where answers go."""

    modules: Sequence[Module]
    waiting: collections.deque[int]
    answers: queue.SimpleQueue[Answer]


class _Helper:
    """One process, and the thread that talks to it."""

    def __init__(self, target: Target, threads: int) -> None:
        self._sock, theirs = socket.socketpair()
        command = _BOOTSTRAP.format(serve.__module__, serve.__name__)
        words = [sys.path, theirs.fileno(), dataclasses.asdict(target), threads]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", command, *map(json.dumps, words)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                )
        except OSError:
            self._sock.close()
            raise
        self.is_ready = threading.Event()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def take(self, job: _Job) -> None:
        """Compiles modules of a job, as soon as it can, until none waits."""
        self._jobs.put(job)

    def _serve(self) -> None:
        """The thread: job after job, until there are no more or the process is gone."""
        with contextlib.suppress(wire.ClosedError):
            wire.receive(self._sock)  # what does not get that far takes no work
            self.is_ready.set()
            while (job := self._jobs.get()) is not None:
                while (number := _next(job.waiting)) is not None:
                    job.answers.put((number, self._answer(job.modules[number])))

    def _answer(self, module: Module) -> Made | str:
        """What becomes of a module: whoever waits for it must be told something."""
        try:
            return self._compiled(module)
        except wire.ClosedError:
            return describe_exit(self._process.wait())
        except Exception as error:
            return f"failed: {error}"

    def _compiled(self, module: Module) -> Made:
        """What the process makes of a module; nothing where that failed. Raises ClosedError."""
        build_inputs = [
            {
                "program": print_ir(build_input.space.program),
                "decisions": dict(build_input.decisions),
                "name": build_input.name,
            }
            for build_input in module.values()
            if build_input.space.program is not None and build_input.loops is None
        ]
        if len(build_inputs) < len(module):
            return {}
        wire.send(self._sock, {"kernels": build_inputs})
        answer = wire.receive(self._sock)
        if "failed" in answer:
            return {}
        for build_input, trace in zip(module.values(), answer["traces"], strict=True):
            build_input.space.remember(build_input.decisions, trace)
        content = base64.b64decode(answer["object"])
        interfaces = map(read_interface, answer["interfaces"])
        return {key: Compiled(one, content) for key, one in zip(module, interfaces, strict=True)}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._jobs.put(None)
        self._thread.join()
        self._sock.close()
