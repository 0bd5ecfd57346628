"""A task: one kernel to be generated, identified by a key."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection

from farrier.ir.graph import Graph
from farrier.ir.printer import print_ir
from farrier.partition.naming import task_name


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One kernel to be scheduled, tuned and compiled once, however often the model calls it.

    `key` is a hash of 64 hex digits over everything on which the kernel's code depends, and nothing
    else: it also finds the task's records of other models. `constant_inputs` names the inputs of
    `region` whose content is known at compile time.
    """

    key: str
    name: str
    region: Graph
    constant_inputs: frozenset[str]

    @classmethod
    def of(cls, region: Graph, constant_inputs: frozenset[str]) -> Task:
        """Return the task of a canonical region, with its key and name."""
        return cls(task_key(region, constant_inputs), task_name(region), region, constant_inputs)

    @property
    def symbol(self) -> str:
        """The name of the kernel: a C identifier, unique among tasks."""
        return f"{self.name}_{self.key[:8]}"

    def printed(self) -> tuple[str, Graph]:
        """The symbol, and the region that the kernel computes, for dumps."""
        return self.symbol, self.region


def task_key(region: Graph, constant_inputs: Collection[str]) -> str:
    """Return the key of the task of a canonical region."""
    text = f"{print_ir(region)}constants: {' '.join(sorted(constant_inputs))}\n"
    return hashlib.sha256(text.encode()).hexdigest()
