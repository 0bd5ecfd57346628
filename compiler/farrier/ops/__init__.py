"""The operators: each is declared once, with its rules attached.

`lookup(name)` returns an operator. Its `infer` computes the types of a node's outputs, its
`reference` computes the outputs in numpy, and its `compute` declares the same computation as tensor
stages that can be scheduled.
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
