"""Compile all kernels of a model from decisions to machine code, in this process, in helper
processes, and by remote builders.

This takes nearly all the time of a compilation, and no kernel depends on another. A helper receives
kernels as text, and answers with an object file (`farrier.compile_pool.helper`); a builder of a
farm is a helper on another machine (`farrier.compile_pool.builders`). The code does not depend on
the process that compiles it, because modules of kernels are independent of each other.
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
# The last kernels, each in a module of its own, so that all compilers end at about the same time.
_ALONE = 2
# The nodes of a model for each of which another helper, whose start takes 0.7 s, pays.
_NODES_A_HELPER = 24
_MOST_HELPERS = 7


@dataclasses.dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled kernels: the object files, and the interface of each kernel by task key."""

    interfaces: Mapping[str, Interface]
    objects: Sequence[bytes]


def helpers_for(nodes: int, cores: int = 0, *, tunes: bool = False) -> int:
    """Return the number of helper processes for a model of `nodes` nodes on this machine, of which
    `cores` cores may be used (0: all). Tuning (`tunes`) compiles hundreds of candidates, however
    small the model is."""
    here = len(os.sched_getaffinity(0))
    others = (min(cores, here) if cores else here) - 1
    return others if tunes else min(others, nodes // _NODES_A_HELPER, _MOST_HELPERS)


class CompilePool(Closing):
    """A pool of helper processes and, if configured, remote builders that compile kernels.

    The processes start in the background, and end when the context is left. Several threads may
    call `build` in parallel; earlier requests are compiled first.
    """

    def __init__(
        self, count: int, target: Target, threads: int, builders: RemoteCompilers | None = None
    ) -> None:
        self._target = target
        self._threads = threads
        self._begun: list[tuple[dict[str, BuildInput], CompileRequest]] = []
        self._queue = ModuleQueue()
        self._helpers: list[_Helper] = []
        # If no more processes can be started, the existing ones do the work.
        with contextlib.suppress(OSError):
            for _ in range(count):
                self._helpers.append(_Helper(target, threads, self._queue))
        if builders is not None:
            Dispatcher(builders, self._queue, self._message, _read)

    def begin(self, build_inputs: Mapping[str, BuildInput]) -> None:
        """Let other processes start to compile kernels that `compile` will request, while the
        remaining schedules are still being chosen. If the schedule of a kernel changes in between,
        the work is wasted."""
        self._begun.append((dict(build_inputs), self._started(build_inputs)))

    def compile(
        self,
        build_inputs: Mapping[str, BuildInput],
        meanwhile: Callable[[Kernels], object] = lambda begun: None,
    ) -> Kernels:
        """Return every requested kernel, by task key.

        When the kernels that `begin` started are compiled, this thread calls `meanwhile` with them,
        while other processes compile the rest. Raises CompilerError.
        """
        begun = [
            (
                started,
                {
                    k
                    for k, build_input in inputs.items()
                    if _is_same(build_input, build_inputs.get(k))
                },
            )
            for inputs, started in self._begun
        ]
        self._begun.clear()
        begun_keys = {key for started, same in begun for key in started.within(same)}
        rest = {
            key: build_input for key, build_input in build_inputs.items() if key not in begun_keys
        }
        job = self._started(rest)
        compiled: Made = {}
        for started, same in begun:
            compiled |= self._finished(started, same)
        meanwhile(_kernels(compiled))
        compiled |= self._finished(job, rest.keys())
        return _kernels({key: compiled[key] for key in build_inputs})

    def build(
        self, build_inputs: Mapping[str, BuildInput], meanwhile: Callable[[], object] = lambda: None
    ) -> Made:
        """Compile every kernel; return each compiled kernel or its error, in the order of the
        requests. After queueing the kernels, this thread calls `meanwhile`, and only then takes
        part in compiling."""
        started = self._started(build_inputs)
        meanwhile()
        built = self._finished(started, build_inputs.keys())
        return {key: built[key] for key in build_inputs}  # Modules are of one space each.

    def _started(self, build_inputs: Mapping[str, BuildInput]) -> CompileRequest:
        """Queue kernels for compilation, and return the request. They are grouped into modules
        whose kernels all run in one memory space."""
        by_space: dict[str, list[tuple[str, BuildInput]]] = {}
        for key, build_input in build_inputs.items():
            by_space.setdefault(build_input.runs_in, []).append((key, build_input))
        modules: list[Module] = []
        for items in by_space.values():
            paired = max(0, len(items) - _ALONE)
            starts = [*range(0, paired, _KERNELS_A_MODULE), *range(paired, len(items)), len(items)]
            modules += [dict(items[a:b]) for a, b in itertools.pairwise(starts)]
        return self._queue.put(modules)

    def _finished(self, job: CompileRequest, wanted: Collection[str]) -> Made:
        """Return the results of every finished module whose kernels are all in `wanted`. A module
        that contains any other kernel is left out: its object file would define that kernel in
        addition to the object file that is requested later."""
        kept = job.numbers(wanted)
        with self._queue.awaited(job, kept):
            while (taken := self._queue.take_here(job)) is not None:
                try:
                    with no_collection():
                        results = _compiled(taken.module, self._target)
                    self._queue.answer(taken, results)
                finally:
                    self._queue.leave_here()
        return {key: result for number in kept for key, result in job.results[number].items()}

    def _message(self, module: Module) -> str | None:
        """Return the message with which a builder is asked to compile a module; None if the module
        cannot be described as text."""
        kernels = _written(module)
        if kernels is None:
            return None
        target = self._target.to_dict()
        return json.dumps({**kernels, "target": target, "threads": self._threads})

    def close(self) -> None:
        """End the helper processes; a second call does nothing. Results of builders that are still
        at work are dropped."""
        self._queue.close()
        for helper in self._helpers:
            helper.close()


def _kernels(results: Made) -> Kernels:
    """Return the compiled kernels with their object files. If the compilation of one of them
    failed, raise its error."""
    interfaces, objects = {}, []
    for key, result in results.items():
        if isinstance(result, CompilerError):
            raise result
        interfaces[key] = result.interface
        objects.append(result.content)
    return Kernels(interfaces, list(dict.fromkeys(objects)))


def _is_same(first: BuildInput, second: BuildInput | None) -> bool:
    """Check whether two build inputs result in the same kernel. It does not matter whether they
    have been lowered already."""
    return (
        second is not None and first.space is second.space and first.decisions == second.decisions
    )


def _compiled(module: Module, target: Target) -> Made:
    """Compile the kernels of a module together; if that fails, compile each into its own object
    file."""
    results: Made = {}
    functions: dict[str, Function] = {}
    runs_in = _space_of(module)
    for key, build_input in module.items():
        try:
            functions[key] = lower(build_input, target)
        except CompilerError as error:
            results[key] = error
    try:
        results |= _coded(functions, target, runs_in)
    except CompilerError:
        for key, function in functions.items():
            try:
                results |= _coded({key: function}, target, runs_in)
            except CompilerError as error:
                results[key] = error
    return {key: results[key] for key in module}


def _coded(functions: Mapping[str, Function], target: Target, runs_in: str) -> dict[str, Compiled]:
    """Compile kernels to a single object file, and return them by name. Raises CompilerError."""
    if not functions:
        return {}
    return dict(zip(functions, codegen([*functions.values()], target, runs_in), strict=True))


def _space_of(module: Module) -> str:
    """Return the memory space in which all kernels of a module run."""
    return next(build_input.runs_in for build_input in module.values())


def _written(module: Module) -> dict[str, Any] | None:
    """Return the message fields that describe the kernels of a module to another process; None if
    the tensor program of a kernel is unknown, or a kernel is lowered already."""
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
    """Return the kernels of a module from another process's answer; nothing if the compilation
    failed."""
    if "failed" in answer:
        return {}
    for build_input, trace in zip(module.values(), answer["traces"], strict=True):
        build_input.space.remember(build_input.decisions, trace)
    content = base64.b64decode(answer["object"])
    space = _space_of(module)
    interfaces = (
        dataclasses.replace(read_interface(each), space=space) for each in answer["interfaces"]
    )
    return {
        key: Compiled(kernel_interface, content)
        for key, kernel_interface in zip(module, interfaces, strict=True)
    }


class _Helper:
    """A helper process, and the thread that communicates with it."""

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
        """Send module after module to the process, until the queue is closed or the process is
        gone."""
        with contextlib.suppress(wire.ClosedError):
            wire.receive(self._process.sock)  # A process that does not get this far takes no work.
            self.is_ready.set()
            while (taken := self._modules.take_local()) is not None:
                results, is_gone = self._answer(taken.module)
                self._modules.answer(taken, results)
                if is_gone:
                    return

    def _answer(self, module: Module) -> tuple[Made, bool]:
        """Return the results of a module, and whether the process is gone. Errors are results too,
        because a thread waits for the module."""
        try:
            return self._compiled(module), False
        except wire.ClosedError:
            return failed(module, self._process.ending()), True
        except Exception as error:
            return failed(module, f"failed: {error}"), False

    def _compiled(self, module: Module) -> Made:
        """Return the kernels that the process compiled; nothing for a failure. Raises
        ClosedError."""
        kernels = _written(module)
        if kernels is None:
            return {}
        wire.send(self._process.sock, kernels)
        return _read(wire.receive(self._process.sock), module)

    def close(self) -> None:
        """End the process; call this after the queue of modules is closed."""
        self._process.end()
        self._thread.join()
        self._process.close()
