"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from farrier.ir.graph import Node, Value
from farrier.passes.rewriting import Rewriter

# What stands for a node's output: another value; or nodes to take the node's place, the last of
# which computes the node's outputs.
Replacement: TypeAlias = Value | tuple[Node, ...]
# None where the rule does not apply.
Rule: TypeAlias = Callable[[Node, Rewriter], Replacement | None]
