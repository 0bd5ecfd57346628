"""From decisions to machine code, every kernel of a model: here, and in helper processes beside.

Nearly all of a compilation is this, and no kernel depends on another. A helper is told of kernels
as text, and answers with their object (`farrier.helper`). Which kernels share a module does not
depend on who compiles them, so the code is the same whatever help there is.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from farrier.choose import Choice
from farrier.codegen import Interface, compile_functions, interface
from farrier.errors import CompilerError
from farrier.helper import read_interface, serve
from farrier.ir.printer import print_ir
from farrier.target import Target
from farrier_device import wire
from farrier_device.closing import Closing
from farrier_device.sandbox import describe_exit

_KERNELS_A_MODULE = 2  # LLVM's set-up costs a module 3 ms; few, so that work is shared evenly
_NODES_A_HELPER = 24  # of a model, for which it pays to start one more: that takes 0.7 s
_MOST_HELPERS = 7
# It finds our modules where we do.
_BOOTSTRAP = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {0} import {1}; {1}()"

Module: TypeAlias = Mapping[str, Choice]  # the kernels of one object, by task key
Answer: TypeAlias = tuple[int, "Kernels | str"]  # the module's number; what became of its helper


@dataclasses.dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled kernels, and what there is to know for whoever calls them, by task key."""

    interfaces: Mapping[str, Interface]
    objects: Sequence[bytes]


def helpers_for(nodes: int) -> int:
    """How many helpers a model of so many nodes should have on this machine."""
    others = len(os.sched_getaffinity(0)) - 1
    return min(others, nodes // _NODES_A_HELPER, _MOST_HELPERS)


class Helpers(Closing):
    """Processes that compile kernels beside this one. They start in the background, and end with
    the context."""

    def __init__(self, count: int, target: Target, threads: int) -> None:
        self._target = target
        self._helpers: list[_Helper] = []
        with contextlib.suppress(OSError):  # no more processes: those that there are do the work
            for _ in range(count):
                self._helpers.append(_Helper(target, threads))

    def compile(self, choices: Mapping[str, Choice]) -> Kernels:
        """Every kernel, once. Raises CompilerError."""
        items = list(choices.items())
        modules: list[Module] = [
            dict(items[start : start + _KERNELS_A_MODULE])
            for start in range(0, len(items), _KERNELS_A_MODULE)
        ]
        waiting = collections.deque(range(len(modules)))
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        for helper in self._helpers:
            helper.start(modules, waiting, answers)
        made: dict[int, Kernels] = {}
        while (number := _next(waiting)) is not None:
            made[number] = _compiled(modules[number], self._target)
        while len(made) < len(modules):
            number, answer = answers.get()
            if isinstance(answer, str):
                names = ", ".join(choice.task.name for choice in modules[number].values())
                raise CompilerError(f"the process that compiled {names} {answer}")
            # What a helper could not do is done here once more, so that its error is raised here.
            made[number] = answer if answer.objects else _compiled(modules[number], self._target)
        parts = [made[number] for number in range(len(modules))]
        return Kernels(
            {key: one for part in parts for key, one in part.interfaces.items()},
            [content for part in parts for content in part.objects],
        )

    def close(self) -> None:
        """Ends the processes; a second call does nothing."""
        for helper in self._helpers:
            helper.close()


def _next(waiting: collections.deque[int]) -> int | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _compiled(module: Module, target: Target) -> Kernels:
    functions = {key: choice.function() for key, choice in module.items()}
    interfaces = {key: interface(function) for key, function in functions.items()}
    return Kernels(interfaces, compile_functions(list(functions.values()), target))


class _Helper:
    """One process, and the thread that talks to it."""

    def __init__(self, target: Target, threads: int) -> None:
        self._thread: threading.Thread | None = None
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

    def start(
        self,
        modules: Sequence[Module],
        waiting: collections.deque[int],
        answers: queue.SimpleQueue[Answer],
    ) -> None:
        """Compiles modules that wait, until none does, in a thread."""
        self._thread = threading.Thread(target=self._work, args=(modules, waiting, answers))
        self._thread.start()

    def _work(
        self,
        modules: Sequence[Module],
        waiting: collections.deque[int],
        answers: queue.SimpleQueue[Answer],
    ) -> None:
        number: int | None = None
        try:
            wire.receive(self._sock)  # it is ready; what does not get that far takes no work
            while (number := _next(waiting)) is not None:
                answers.put((number, self._compiled(modules[number])))
        except wire.ClosedError:
            reason = describe_exit(self._process.wait())
        except Exception as error:  # whoever waits for the answer must get one
            reason = f"failed: {error}"
        if number is not None:
            answers.put((number, reason))

    def _compiled(self, module: Module) -> Kernels:
        """What the process makes of a module; nothing where that failed. Raises ClosedError."""
        orders = [
            {"program": print_ir(choice.program), "decisions": dict(choice.decisions)}
            for choice in module.values()
        ]
        wire.send(self._sock, {"kernels": orders})
        answer = wire.receive(self._sock)
        if "failed" in answer:
            return Kernels({}, ())
        interfaces = map(read_interface, answer["interfaces"])
        return Kernels(
            dict(zip(module, interfaces, strict=True)), [base64.b64decode(answer["object"])]
        )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._thread is not None:
            self._thread.join()
        self._sock.close()
