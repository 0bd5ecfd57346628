"""From decisions to machine code, every kernel of a model: here, in helper processes beside, and by
builders elsewhere.

Nearly all of a compilation is this, and no kernel depends on another. A helper receives kernels as
text, and answers with their object (`farrier.compile_pool.helper`); a builder of a farm is a helper
on another machine (`farrier.compile_pool.builders`). The code is the same whatever help there is,
because the kernels that share a module do not depend on the process that compiles them.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import itertools
import json
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from farrier.compile_pool.builders import Dispatcher, RemoteCompilers
from farrier.compile_pool.compile import BuildInput, Compiled, codegen, lower
from farrier.compile_pool.helper import read_interface, serve
from farrier.compile_pool.modules import CompileRequest, Made, Module, ModuleQueue, failed
from farrier.errors import CompilerError
from farrier.ir.collection import no_collection
from farrier.ir.loop import Function
from farrier.ir.printer import print_ir
from farrier.targets import Target
from farrier.targets.interface import Interface
from farrier_device import wire
from farrier_device.child_process import ChildProcess
from farrier_device.closing import Closing
from farrier_device.program import HOST
from farrier_device.python import command_of

_KERNELS_A_MODULE = 2  # LLVM's set-up costs a module 3 ms; few, so that work is shared evenly
_ALONE = 2  # the last kernels, each in a module of its own, so that all end at about the same time
_NODES_A_HELPER = 24  # of a model, for which it pays to start one more: that takes 0.7 s
_MOST_HELPERS = 7


@dataclasses.dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled kernels, and what there is to know for whoever calls them, by task key."""

    interfaces: Mapping[str, Interface]
    objects: Sequence[bytes]


def helpers_for(nodes: int, cores: int = 0, *, tunes: bool = False) -> int:
    """How many helpers a model of so many nodes should have on this machine, of which it may use so
    many `cores` (0: all). One that `tunes` compiles candidates by the hundred, however small it
    is."""
    here = len(os.sched_getaffinity(0))
    others = (min(cores, here) if cores else here) - 1
    return others if tunes else min(others, nodes // _NODES_A_HELPER, _MOST_HELPERS)


class CompilePool(Closing):
    """Processes that compile kernels beside this one, and builders elsewhere, if there are any. The
    processes start in the background, and end with the context. `build` is safe to call from
    several threads at once; the kernels asked for first are compiled first."""

    def __init__(
        self, count: int, target: Target, threads: int, builders: RemoteCompilers | None = None
    ) -> None:
        self._target = target
        self._threads = threads
        self._begun: list[tuple[dict[str, BuildInput], CompileRequest]] = []
        self._queue = ModuleQueue()
        self._helpers: list[_Helper] = []
        with contextlib.suppress(OSError):  # no more processes: those that there are do the work
            for _ in range(count):
                self._helpers.append(_Helper(target, threads, self._queue))
        if builders is not None:
            Dispatcher(builders, self._queue, self._message, _read)

    def begin(self, build_inputs: Mapping[str, BuildInput]) -> None:
        """Have others compile kernels that `compile` will be asked for, while others are being
        chosen. One whose schedule changes until then is compiled in vain."""
        self._begun.append((dict(build_inputs), self._started(build_inputs)))

    def compile(
        self,
        build_inputs: Mapping[str, BuildInput],
        meanwhile: Callable[[Kernels], object] = lambda begun: None,
    ) -> Kernels:
        """Every kernel that is asked for, by task key. Once those are there that were begun before,
        this thread does what is to be done with them `meanwhile`, while others compile the rest.
        Raises CompilerError."""
        begun = [
            (started, {k for k, one in inputs.items() if _is_same(one, build_inputs.get(k))})
            for inputs, started in self._begun
        ]
        self._begun.clear()
        known = {key for started, same in begun for key in started.within(same)}
        rest = {key: one for key, one in build_inputs.items() if key not in known}
        job = self._started(rest)
        made: Made = {}
        for started, same in begun:
            made |= self._finished(started, same)
        meanwhile(_kernels(made))
        made |= self._finished(job, rest.keys())
        return _kernels({key: made[key] for key in build_inputs})

    def build(
        self, build_inputs: Mapping[str, BuildInput], meanwhile: Callable[[], object] = lambda: None
    ) -> Made:
        """Every kernel that is asked for, or why there is none, in their order. This thread does
        what is to be done `meanwhile` before it compiles as well."""
        started = self._started(build_inputs)
        meanwhile()
        built = self._finished(started, build_inputs.keys())
        return {key: built[key] for key in build_inputs}  # Modules are of one space each.

    def _started(self, build_inputs: Mapping[str, BuildInput]) -> CompileRequest:
        """Modules that others compile from now on, each of kernels that run in one space."""
        by_space: dict[str, list[tuple[str, BuildInput]]] = {}
        for key, one in build_inputs.items():
            by_space.setdefault(one.runs_in, []).append((key, one))
        modules: list[Module] = []
        for items in by_space.values():
            paired = max(0, len(items) - _ALONE)
            starts = [*range(0, paired, _KERNELS_A_MODULE), *range(paired, len(items)), len(items)]
            modules += [dict(items[a:b]) for a, b in itertools.pairwise(starts)]
        return self._queue.put(modules)

    def _finished(self, job: CompileRequest, wanted: Collection[str]) -> Made:
        """What became of the kernels of every module of which all are `wanted`; an object with
        another would define a kernel twice."""
        kept = job.numbers(wanted)
        with self._queue.awaited(job, kept):
            while (taken := self._queue.take_here(job)) is not None:
                try:
                    with no_collection():
                        made = _compiled(taken.module, self._target)
                    self._queue.answer(taken, made)
                finally:
                    self._queue.leave_here()
        return {key: one for number in kept for key, one in job.made[number].items()}

    def _message(self, module: Module) -> str | None:
        """What a builder is told of a module; None where it cannot be told."""
        kernels = _written(module)
        if kernels is None:
            return None
        target = self._target.to_dict()
        return json.dumps({**kernels, "target": target, "threads": self._threads})

    def close(self) -> None:
        """End the processes; a second call does nothing. What builders still work on is nobody's
        any more."""
        self._queue.close()
        for helper in self._helpers:
            helper.close()


def _kernels(made: Made) -> Kernels:
    """Raises what there is instead of a kernel."""
    interfaces, objects = {}, []
    for key, one in made.items():
        if isinstance(one, CompilerError):
            raise one
        interfaces[key] = one.interface
        objects.append(one.content)
    return Kernels(interfaces, list(dict.fromkeys(objects)))


def _is_same(one: BuildInput, other: BuildInput | None) -> bool:
    """Whether both are one kernel, wherever it is lowered."""
    return other is not None and one.space is other.space and one.decisions == other.decisions


def _compiled(module: Module, target: Target) -> Made:
    """A module's kernels; each in an object of its own where they do not compile together."""
    made: Made = {}
    functions: dict[str, Function] = {}
    runs_in = _space_of(module)
    for key, build_input in module.items():
        try:
            functions[key] = lower(build_input, target)
        except CompilerError as error:
            made[key] = error
    try:
        made |= _coded(functions, target, runs_in)
    except CompilerError:
        for key, function in functions.items():
            try:
                made |= _coded({key: function}, target, runs_in)
            except CompilerError as error:
                made[key] = error
    return {key: made[key] for key in module}


def _coded(functions: Mapping[str, Function], target: Target, runs_in: str) -> dict[str, Compiled]:
    """The kernels in one object. Raises CompilerError."""
    if not functions:
        return {}
    return dict(zip(functions, codegen([*functions.values()], target, runs_in), strict=True))


def _space_of(module: Module) -> str:
    """The space in which all kernels of a module run."""
    return next(build_input.runs_in for build_input in module.values())


def _written(module: Module) -> dict[str, Any] | None:
    """Return the fields that describe a module's kernels to another process; None if one is not a
    program, or is loops already."""
    kernels = [
        {
            "program": print_ir(build_input.space.program),
            "decisions": dict(build_input.decisions),
            "name": build_input.name,
        }
        for build_input in module.values()
        if build_input.space.program is not None and build_input.loops is None
    ]
    if len(kernels) != len(module):
        return None
    space = _space_of(module)
    return {"kernels": kernels, **({} if space == HOST else {"space": space})}


def _read(answer: Mapping[str, Any], module: Module) -> Made:
    """A module's kernels as another process answered; nothing where it could not."""
    if "failed" in answer:
        return {}
    for build_input, trace in zip(module.values(), answer["traces"], strict=True):
        build_input.space.remember(build_input.decisions, trace)
    content = base64.b64decode(answer["object"])
    space = _space_of(module)
    interfaces = (
        dataclasses.replace(read_interface(each), space=space) for each in answer["interfaces"]
    )
    return {key: Compiled(one, content) for key, one in zip(module, interfaces, strict=True)}


class _Helper:
    """One process, and the thread that talks to it."""

    def __init__(self, target: Target, threads: int, modules: ModuleQueue) -> None:
        self._modules = modules
        self._process = ChildProcess(
            lambda line: command_of(serve, line, target.to_dict(), threads),
            own_group=False,
        )
        self.is_ready = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        """The thread: module after module, until there are no more or the process is gone."""
        with contextlib.suppress(wire.ClosedError):
            wire.receive(self._process.sock)  # what does not get that far takes no work
            self.is_ready.set()
            while (taken := self._modules.take_local()) is not None:
                made, is_gone = self._answer(taken.module)
                self._modules.answer(taken, made)
                if is_gone:
                    return

    def _answer(self, module: Module) -> tuple[Made, bool]:
        """What becomes of a module: whoever waits for it must be told something; and whether the
        process is gone."""
        try:
            return self._compiled(module), False
        except wire.ClosedError:
            return failed(module, self._process.ending()), True
        except Exception as error:
            return failed(module, f"failed: {error}"), False

    def _compiled(self, module: Module) -> Made:
        """Return the kernels of a module; nothing where that failed. Raises ClosedError."""
        kernels = _written(module)
        if kernels is None:
            return {}
        wire.send(self._process.sock, kernels)
        return _read(wire.receive(self._process.sock), module)

    def close(self) -> None:
        """To be called once the modules' queue is closed."""
        self._process.end()
        self._thread.join()
        self._process.close()
