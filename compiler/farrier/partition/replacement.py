"""Replace tasks of a program by other tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from farrier.ir.graph import Constant
from farrier.partition.program import Call, DriverProgram
from farrier.partition.task import Task


class Replacement(Protocol):
    """A task that replaces another one."""

    @property
    def task(self) -> Task: ...

    def call(self, call: Call, constants: dict[str, Constant]) -> Call:
        """Return a call of this task that replaces `call`, a call of the original task; constants
        that this task reads in addition are added to `constants`, by name."""


def with_replacements(
    tasks: Mapping[str, Task], program: DriverProgram, instead: Mapping[str, Replacement]
) -> tuple[dict[str, Task], DriverProgram]:
    """Replace the tasks whose keys are in `instead`. Return the resulting tasks by key, in their
    order, and the program that calls them."""
    if not instead:
        return dict(tasks), program
    constants = {constant.value.name: constant for constant in program.constants}
    calls = [
        instead[call.task].call(call, constants) if call.task in instead else call
        for call in program.calls
    ]
    replaced = (instead[key].task if key in instead else task for key, task in tasks.items())
    program = dataclasses.replace(program, constants=tuple(constants.values()))
    return {task.key: task for task in replaced}, program.with_calls(calls)
