"""Kernels that differ in literals alone, as one that is told them.

Learned scales and offsets of one element are literals of the kernels that they are fused into, and
two layers that are alike otherwise would be two kernels. Where such a literal is added or
multiplied, the kernel reads it as it would read a weight, and the layers share their code. A
literal that all of them have stays one, and so does one that decides what code there is: an
exponent, a bound.

before:  def a(x): c: f32[1] = constant([0.5]); v: … = Mul(x, c) …    def b(x): … constant([0.7]) …
after:   def a(x, s: f32[1]): v: … = Mul(x, s) …
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Mapping, Sequence

from farrier.ir.graph import Constant, Graph, Value
from farrier.ops import Trait, lookup
from farrier.partition.canonical import canonical_region
from farrier.partition.program import Call, DriverProgram
from farrier.partition.replacement import with_replacements
from farrier.partition.task import Task


@dataclasses.dataclass(frozen=True, slots=True)
class ParameterizedTask:
    """A task that is told its `literals`, as inputs behind its own; `order` is where each of its
    inputs is among all these."""

    task: Task
    order: Sequence[int]
    literals: Sequence[Constant]

    @classmethod
    def of(cls, task: Task, names: Collection[str]) -> ParameterizedTask:
        """The task with the literals of these names as inputs."""
        literals = [one for one in task.region.constants if one.value.name in names]
        opened = dataclasses.replace(
            task.region,
            inputs=(*task.region.inputs, *(one.value for one in literals)),
            constants=tuple(one for one in task.region.constants if one.value.name not in names),
        )
        region, order = canonical_region(opened)
        known = {*task.constant_inputs, *names}
        pairs = zip(region.inputs, order, strict=True)
        constant = frozenset(new.name for new, at in pairs if opened.inputs[at].name in known)
        return cls(Task.of(region, constant), order, literals)

    def call(self, call: Call, constants: dict[str, Constant]) -> Call:
        """As `Replacement` says."""
        given = [*call.inputs]
        for literal in self.literals:
            name = f"literal_{literal.digest[:16]}"
            constants[name] = Constant(Value(name, literal.value.type), literal.content)
            given.append(constants[name].value)
        inputs = tuple(given[at] for at in self.order)
        return dataclasses.replace(call, task=self.task.key, inputs=inputs)


def share_literals(
    tasks: Mapping[str, Task], program: DriverProgram
) -> tuple[dict[str, Task], DriverProgram]:
    """Tasks by key, in their order, and the program that calls them, alike ones joined."""
    alike: dict[str, list[Task]] = collections.defaultdict(list)
    for task in tasks.values():
        found = linear_literals(task.region)
        if found:
            alike[ParameterizedTask.of(task, found.keys()).task.key].append(task)
    joined = {
        task.key: ParameterizedTask.of(task, _different(members))
        for members in alike.values()
        if len(members) > 1
        for task in members
    }
    return with_replacements(tasks, program, joined)


def linear_literals(region: Graph) -> dict[str, Constant]:
    """The numbers that a region adds or multiplies with, and does nothing else with, by name."""
    readers = region.consumers()
    returned = {value.name for value in region.outputs}
    return {
        constant.value.name: constant
        for constant in region.constants
        if constant.value.type.dtype.is_float
        and constant.value.type.size == 1
        and constant.value.name not in returned
        and all(lookup(node.op).has(Trait.AFFINE) for node in readers.get(constant.value.name, ()))
    }


def _different(members: Sequence[Task]) -> list[str]:
    """The names of the literals that are not the same in all of some tasks, which have their
    literals in one order."""
    rows = zip(*(linear_literals(task.region).values() for task in members), strict=True)
    return [row[0].value.name for row in rows if len({one.identity for one in row}) > 1]
