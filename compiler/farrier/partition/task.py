"""A kernel to be made: what it computes, and a key to find it by."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection

from farrier.ir.graph import Graph
from farrier.ir.printer import print_ir
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

    @classmethod
    def of(cls, region: Graph, constant_inputs: frozenset[str]) -> Task:
        """The task of a canonical region."""
        return cls(task_key(region, constant_inputs), task_name(region), region, constant_inputs)

    @property
    def symbol(self) -> str:
        """A C identifier, unique among tasks."""
        return f"{self.name}_{self.key[:8]}"

    def printed(self) -> tuple[str, Graph]:
        """The symbol, and what the kernel computes."""
        return self.symbol, self.region


def task_key(region: Graph, constant_inputs: Collection[str]) -> str:
    """The key of the task of a canonical region."""
    text = f"{print_ir(region)}constants: {' '.join(sorted(constant_inputs))}\n"
    return hashlib.sha256(text.encode()).hexdigest()
