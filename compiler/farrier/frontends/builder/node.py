"""A node as a frontend passes it to the builder, before types are inferred."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class RawNode:
    """A node in terms of the operators of `farrier.ops`, with operands and results as names.

    An omitted operand, or a result without readers, is "". Attributes are Python values: numbers,
    strings, and tuples of these. A frontend may use other attributes (arrays, nested graphs) in
    nodes that it has not yet translated. `origin` is the node's name in error messages.
    """

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
        """The description of the node in error messages."""
        return f"node {self.origin!r} ({self.op})"
