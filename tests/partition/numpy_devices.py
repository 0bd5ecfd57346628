"""Tasks on devices whose kernels are the operators in numpy: a host, and a frame with a queue.

The queue of a frame runs when the host waits for it, and not before; memory is garbage at first.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from farrier.artifact.params import ParamArena
from farrier.ir.dim import evaluate
from farrier.ir.expr import Buffer
from farrier.ops import run_graph
from farrier.partition import extract_tasks
from farrier.partition.addresses import Addressing, plan_spaces
from farrier.partition.executable import executable
from farrier.partition.placement import place
from farrier.targets.interface import Interface
from farrier_device.devices.device import Device
from farrier_device.interpreter import Interpreter
from farrier_device.memory import aligned_buffer
from farrier_device.program import HOST, program_from_json, program_to_json

FRAME = "frame"
ALIGNMENT = 256  # Of every whole value in the frame; WebGPU binds buffers so.


def interface(task):
    """Return the interface of a task, which is its kernel's too."""
    values = (*task.region.inputs, *task.region.outputs)
    params = [
        Buffer(f"p{i}", v.type.dtype, v.type.shape, v.type.layout) for i, v in enumerate(values)
    ]
    return Interface(f"k{task.key[:8]}", tuple(params), task.region.given_dims, 0, 0)


def kernel(task):
    """Return a function of the arguments' bytes that computes the task."""
    region, dims = task.region, task.region.given_dims

    def run(*views):
        count = len(region.inputs) + len(region.outputs)
        sizes = np.frombuffer(views[count], np.int64) if dims else ()
        values = {symbol.name: int(size) for symbol, size in zip(dims, sizes, strict=False)}

        def array(value, view):
            shape = tuple(evaluate(extent, values) for extent in value.type.shape)
            nbytes = evaluate(value.type.nbytes, values)
            flat = np.frombuffer(view[:nbytes], value.type.dtype.numpy)
            layout = value.type.layout
            return flat.reshape(shape) if layout is None else layout.unpack(flat, shape)

        inputs = {
            value.name: array(value, view)
            for value, view in zip(region.inputs, views, strict=False)
        }
        results = run_graph(region, inputs, sizes=values)
        for value, view in zip(region.outputs, views[len(region.inputs) :], strict=False):
            result = results[value.name]
            layout = value.type.layout
            packed = result if layout is None else layout.pack(result)
            content = np.ascontiguousarray(packed).tobytes()
            view[: len(content)] = content

    return run


class NumpyHost(Device):
    """Calls run at once, on memory of the host."""

    def __init__(self, kernels):
        self._kernels = kernels

    def bind(self, launch, places):
        return self._kernels[launch.symbol], [memory.view[at:] for memory, at in places]

    def launch(self, bound):
        function, views = bound
        function(*views)

    def synchronize(self):
        return 0


class Frame(Device):
    """Launches and copies run when the host waits. A memory is a list of its bytes, so that only
    this device reads it."""

    def __init__(self, kernels):
        self._kernels = kernels
        self._queue = []

    def allocate(self, nbytes, position):
        return [bytearray(b"\xa5" * nbytes)]

    def send(self, source, memory, offset):
        self._queue.append((_copy, (memory[0], offset, source, 0, len(source))))

    def receive(self, memory, offset, target):
        self._queue.append((_copy, (target, 0, memory[0], offset, len(target))))

    def bind(self, launch, places):
        views = [memoryview(memory[0])[at:] for memory, at in places]
        return self._kernels[launch.symbol], views

    def launch(self, bound):
        self._queue.append(bound)

    def synchronize(self):
        for function, arguments in self._queue:
            function(*arguments)
        self._queue.clear()
        return 0


def _copy(target, to, source, at, nbytes):
    target[to : to + nbytes] = source[at : at + nbytes]


@dataclasses.dataclass
class Placed:
    """A program on a host and frames."""

    tasks: dict
    program: object
    beside: object  # The program before it was placed.

    @classmethod
    def of(cls, graph, site_of):
        tasks, before = extract_tasks(graph)
        program = place(before, lambda call: site_of(tasks[call.task], call))
        return cls(tasks, program, before)

    def planned(self):
        """Return the plans of the spaces, and what assigns addresses."""
        kernels = {key: interface(task) for key, task in self.tasks.items()}
        alignments = {FRAME: ALIGNMENT}
        memories = plan_spaces(self.program, kernels, 1, alignments)
        arena = ParamArena()
        return memories, Addressing(self.program, kernels, memories, arena, (), alignments)

    def run(self, inputs, sizes=()):
        """Return the outputs by name, of the first run and of a second one."""
        program = self.program
        kernels = {key: interface(task) for key, task in self.tasks.items()}
        functions = {kernels[key].name: kernel(task) for key, task in self.tasks.items()}
        memories, addressing = self.planned()
        addresses = addressing.addresses()
        params = addressing.arena.pack().view
        resolved, checks = executable(program, addresses, memories, len(params))
        assert program_from_json(program_to_json(resolved)) == resolved
        devices = {space: Frame(functions) for space in memories if space != HOST}
        interpreter = Interpreter(resolved, devices | {HOST: NumpyHost(functions)})
        values = dict(zip(resolved.dims, sizes, strict=True))
        results = []
        for _ in range(2):
            outputs = [
                _filled(b"\xab" * evaluate(program.room(v), values)) for v in program.outputs
            ]
            arguments = [_filled(inputs[value.name].tobytes()) for value in program.inputs]
            workspace = evaluate(memories[HOST].workspace_at(values), values)
            arguments += [*outputs, _filled(bytes(params)), _filled(b"\xff" * workspace)]
            numbers = [*sizes, *[0] * (len(resolved.counted) + 1)]
            code = interpreter.run(arguments, numbers)
            if code < 0:
                return checks[-1 - code], numbers[-1]
            shapes = values | dict(zip(resolved.counted, numbers[len(sizes) :], strict=False))
            results.append(
                {
                    value.name: np.frombuffer(
                        buffer.view[: evaluate(value.type.nbytes, shapes)], value.type.dtype.numpy
                    ).reshape([evaluate(extent, shapes) for extent in value.type.shape])
                    for value, buffer in zip(program.outputs, outputs, strict=True)
                }
            )
        for name, array in results[0].items():
            np.testing.assert_array_equal(results[1][name], array)
        return results[0]


def _filled(content):
    buffer = aligned_buffer(len(content))
    buffer.view[:] = content
    return buffer
