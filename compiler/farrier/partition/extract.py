"""Finds the distinct kernels of a graph."""

from __future__ import annotations

import dataclasses
import hashlib

from farrier.ir.graph import Graph, Node, Value
from farrier.ir.printer import print_ir
from farrier.partition.canonical import canonical_region
from farrier.partition.naming import task_name


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One kernel to be scheduled, tuned and compiled, however often the model calls it.

    `key` is 64 hex digits over everything that the kernel's code depends on, and nothing else: it
    finds the task's records again in another model. `constant_inputs` names the inputs of `region`
    whose content is known at compile time.
    """

    key: str
    name: str
    region: Graph
    constant_inputs: frozenset[str]

    @property
    def symbol(self) -> str:
        """A C identifier, unique among tasks."""
        return f"{self.name}_{self.key[:8]}"


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One run of a task: `inputs` and `outputs` are values of the graph, in the order of the task's
    region; `origin` names the ONNX nodes that it computes."""

    task: str  # the task's key
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    origin: str


def extract_tasks(graph: Graph) -> tuple[dict[str, Task], list[Call]]:
    """The tasks of an optimized graph by key, in the order of their first call, and all calls in
    execution order. What writes no elements is not called."""
    constants = frozenset(constant.value.name for constant in graph.constants)
    tasks: dict[str, Task] = {}
    calls: list[Call] = []
    for node in graph.nodes:
        if node.op != "Fused" or not any(value.type.size for value in node.outputs):
            continue
        task, inputs = _task_of(node, constants)
        tasks.setdefault(task.key, task)
        calls.append(Call(task.key, inputs, node.outputs, node.origin))
    return tasks, calls


def _task_of(node: Node, constants: frozenset[str]) -> tuple[Task, tuple[Value, ...]]:
    region, order = canonical_region(node.regions[0])
    given = tuple(value for value in node.inputs if value is not None)
    inputs = tuple(given[position] for position in order)
    known = frozenset(
        inside.name
        for inside, outside in zip(region.inputs, inputs, strict=True)
        if outside.name in constants
    )
    text = f"{print_ir(region)}constants: {' '.join(sorted(known))}\n"
    key = hashlib.sha256(text.encode()).hexdigest()
    return Task(key, task_name(region), region, known), inputs
