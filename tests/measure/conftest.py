"""A task to measure, and this machine as the device."""

from __future__ import annotations

import dataclasses

import pytest

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, Layout, TensorType
from farrier.lower.program import to_program
from farrier.measure import LocalDevice
from farrier.partition.task import Task
from farrier.space import Space
from farrier.targets import Target, host
from farrier.targets.cpu.rules import for_program


@dataclasses.dataclass(frozen=True)
class Subject:
    """A task with its space on this machine."""

    task: Task
    space: Space
    target: Target


def conv_task(channels: int = 20, size: int = 9, outputs: int = 20) -> Task:
    """A 3x3 convolution with bias and relu: partial blocks of channels, a halo on both sides."""
    lanes = host().lanes
    halo = ((0, 0), (0, 0), (1, 1), (1, 1))
    layout = Layout.blocked(4, 1, lanes, halo)
    x = Value("x", TensorType(DType.F32, (1, channels, size, size), layout))
    w = Value("w", TensorType(DType.F32, (outputs, channels, 3, 3)))
    b = Value("b", TensorType(DType.F32, (outputs,)))
    bare = TensorType(DType.F32, (1, outputs, size, size), Layout.blocked(4, 1, lanes))
    h = Value("h", bare)
    y = Value("y", dataclasses.replace(bare, layout=layout))
    window = attributes(
        kernel_shape=(3, 3), strides=(1, 1), dilations=(1, 1), pads=(1, 1, 1, 1), group=1
    )
    nodes = (Node("Conv", (x, w, b), (h,), window), Node("Relu", (h,), (y,)))
    region = Graph("conv_relu", (x, w, b), (), nodes, (y,))
    return Task("c0" * 32, "conv_relu", region, frozenset({"w", "b"}))


@pytest.fixture(scope="session")
def subject() -> Subject:
    task = conv_task()
    program = to_program(task.region, task.symbol, task.constant_inputs)
    return Subject(task, for_program(program, host(), 2), host())


@pytest.fixture(scope="session")
def device():
    with LocalDevice() as local:
        yield local
