"""Graphs as text, compiled, run and compared with their meaning."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile

import numpy as np
import pytest

from farrier.compile_pool import BuildInput, lower
from farrier.compile_pool.choose import default_schedules
from farrier.ir.graph import Graph
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ops import run_graph
from farrier.ops.verify import verify
from farrier.partition import DriverProgram, extract_tasks
from farrier.passes import Settings, optimize
from farrier.progress import ignore
from farrier.targets import Target, parse_target
from farrier.targets.cpu.assemble import LinkedModel, Plan, assemble, plan
from farrier.targets.cpu.codegen import compile_functions, interface
from farrier_device.devices.host import HostDevice
from farrier_device.interpreter import Interpreter
from farrier_device.measurement import CodeObject
from farrier_device.native import Library, Pool, aligned_buffer, call, pointers


@dataclasses.dataclass(frozen=True)
class Compiled:
    graph: Graph
    optimized: Graph
    program: DriverProgram
    planned: Plan
    linked: LinkedModel
    threads: int

    def check(self, **inputs):
        """Run the code twice, on garbage memory; passes change no result either."""
        expected = run_graph(self.graph, inputs)
        again = run_graph(self.optimized, inputs).values()
        arguments = [_filled(inputs[value.name].tobytes()) for value in self.graph.inputs]
        outputs = [_filled(b"\xab" * value.type.nbytes) for value in self.graph.outputs]
        arguments += [*outputs, _filled(self.linked.params.view.tobytes())]
        arguments.append(_filled(b"\xff" * self.linked.workspace_bytes))
        addresses = pointers([buffer.address for buffer in arguments])
        image = self.linked.code.objects[0].content
        with Library.from_bytes(image) as library, Pool(library, self.threads) as pool:
            for _ in range(2):
                call(library.entry("farrier_entry"), addresses, pool)
                for buffer, value, array in zip(outputs, self.graph.outputs, again, strict=True):
                    wanted = expected[value.name]
                    actual = np.frombuffer(buffer.view, wanted.dtype).reshape(wanted.shape)
                    np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)
                    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
        compiled = [bytes(buffer.view) for buffer in outputs]
        assert self.interpreted(arguments, outputs) == compiled

    def interpreted(self, arguments, outputs):
        """Return the bytes of the outputs as the interpreter of the same program leaves them."""
        for buffer in outputs:
            buffer.view[:] = b"\xab" * buffer.nbytes
        program, _ = self.planned.executable()
        with tempfile.TemporaryFile() as file, contextlib.closing(HostDevice()) as host:
            file.write(self.linked.code.objects[0].content)
            file.flush()
            host.load([(CodeObject("", "elf"), file.fileno())], self.threads, ())
            assert Interpreter(program, {"host": host}).run(arguments) == 0
        return [bytes(buffer.view) for buffer in outputs]


@pytest.fixture(scope="session")
def target() -> Target:
    return parse_target("host")


@pytest.fixture
def compiled(target):
    """Compile IR text; the text must be as it is printed."""

    def compile_text(text: str, threads: int = 1) -> Compiled:
        graph = parse_ir(text)
        verify(graph)
        assert print_ir(graph) == text
        optimized = optimize(graph, Settings(target, threads))
        verify(optimized)
        tasks, program = extract_tasks(optimized)
        choices = default_schedules(tasks, program.calls, target, threads, ignore)
        functions = {key: lower(BuildInput.of(choice), target) for key, choice in choices.items()}
        kernels = {key: interface(function) for key, function in functions.items()}
        planned = plan(program, kernels, target, threads)
        linked = assemble(planned, compile_functions(list(functions.values()), target), target)
        return Compiled(graph, optimized, program, planned, linked, threads)

    return compile_text


def _filled(content: bytes):
    buffer = aligned_buffer(len(content))
    buffer.view[:] = content
    return buffer
