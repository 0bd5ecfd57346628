"""Merge kernels that differ only in literals into one kernel with these as inputs.

Learned scales and offsets with one element are literals of the kernels into which they are fused.
Layers that are otherwise equal would therefore have different kernels. If such a literal is only
added or multiplied, it becomes an input of the kernel, like a weight, and the layers share one
kernel. A literal stays if it is equal in all layers, or if it affects the generated code, as an
exponent or a bound does.

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
    """A task with its `literals` as further inputs; `order` lists, for each of its inputs, the
    position among the original inputs followed by the literals."""

    task: Task
    order: Sequence[int]
    literals: Sequence[Constant]

    @classmethod
    def of(cls, task: Task, names: Collection[str]) -> ParameterizedTask:
        """Return the task with the literals of these names turned into inputs."""
        literals = [constant for constant in task.region.constants if constant.value.name in names]
        opened = dataclasses.replace(
            task.region,
            inputs=(*task.region.inputs, *(constant.value for constant in literals)),
            constants=tuple(
                constant for constant in task.region.constants if constant.value.name not in names
            ),
        )
        region, order = canonical_region(opened)
        constant_names = {*task.constant_inputs, *names}
        pairs = zip(region.inputs, order, strict=True)
        constant = frozenset(
            new.name for new, at in pairs if opened.inputs[at].name in constant_names
        )
        return cls(Task.of(region, constant), order, literals)

    def call(self, call: Call, constants: dict[str, Constant]) -> Call:
        """Return a call of this task that replaces `call`, and add the literals that it reads to
        `constants`."""
        operands = [*call.inputs]
        for literal in self.literals:
            name = f"literal_{literal.digest[:16]}"
            constants[name] = Constant(Value(name, literal.value.type), literal.content)
            operands.append(constants[name].value)
        inputs = tuple(operands[at] for at in self.order)
        return dataclasses.replace(call, task=self.task.key, inputs=inputs)


def share_literals(
    tasks: Mapping[str, Task], program: DriverProgram
) -> tuple[dict[str, Task], DriverProgram]:
    """Merge tasks that differ only in literals. Return the resulting tasks by key, in their order,
    and the program that calls them."""
    alike: dict[str, list[Task]] = collections.defaultdict(list)
    for task in tasks.values():
        literals = linear_literals(task.region)
        if literals:
            alike[ParameterizedTask.of(task, literals.keys()).task.key].append(task)
    joined = {
        task.key: ParameterizedTask.of(task, _different(members))
        for members in alike.values()
        if len(members) > 1
        for task in members
    }
    return with_replacements(tasks, program, joined)


def linear_literals(region: Graph) -> dict[str, Constant]:
    """Return, by name, the literals that a region only adds or multiplies."""
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
    """Return the names of the literals whose values differ between tasks that list their literals
    in the same order."""
    rows = zip(*(linear_literals(task.region).values() for task in members), strict=True)
    return [row[0].value.name for row in rows if len({constant.identity for constant in row}) > 1]
