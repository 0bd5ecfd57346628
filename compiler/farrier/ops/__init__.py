"""The operators: each declared once, with its rules attached.

`lookup(name)` finds an operator; its `infer` types a node, its `reference` says in numpy what the
node means, its `compute` says the same as tensor stages that can be scheduled.
"""

from farrier.ops.builder import Builder, Operand
from farrier.ops.extension import OperatorSet
from farrier.ops.operator import Kind, Mismatch, NotStatic, NotSupported, Operator
from farrier.ops.registry import import_of, lookup, names, product_of
from farrier.ops.run import run_graph, run_node
from farrier.ops.traits import Moves, Product, Trait

__all__ = [
    "Builder",
    "Kind",
    "Mismatch",
    "Moves",
    "NotStatic",
    "NotSupported",
    "Operand",
    "Operator",
    "OperatorSet",
    "Product",
    "Trait",
    "import_of",
    "lookup",
    "names",
    "product_of",
    "run_graph",
    "run_node",
]
