"""A node as a frontend hands it to the builder, before it is typed."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class RawNode:
    """A node by the names of its operands and results, in the form that `farrier.ops` declares.

    An omitted operand, or a result that nobody reads, is "". Attributes are Python values: numbers,
    strings, and tuples of these. A frontend's own nodes may have others (arrays, nested graphs)
    until it has rewritten them. `origin` is the name that messages have for the node."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any]
    origin: str

    def input(self, position: int) -> str:
        """Return the name of an operand, or "" if it is omitted."""
        return self.inputs[position] if position < len(self.inputs) else ""

    @property
    def where(self) -> str:
        """The node as messages name it."""
        return f"node {self.origin!r} ({self.op})"
