"""Evaluate the nodes whose inputs are all constants at compile time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from farrier.ir.control import FAIL
from farrier.ir.graph import Derived, Graph, Node
from farrier.ops import Kind, Trait, lookup, run_node
from farrier.passes.rewriting import Rewriter, derived

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

# A model of a few bytes can ask for gigabytes (ConstantOfShape, Tile, Expand): a larger result than
# this is left to run time, unless it is at most `_MAX_GROWTH` times the size of its operands.
MAX_BYTES = 16 << 20
_MAX_GROWTH = 2


def fold_constants(graph: Graph) -> Graph:
    """Replace nodes whose inputs are all constants by their result, computed by the operator's
    numpy reference.

    before:
        @graph
        def g(x: f32[2, 2]):
            w: f32[2, 2] = constant([1.0, 2.0, 3.0, 4.0])
            t: f32[2, 2] = Transpose(w, perm=(1, 0))
            y: f32[2, 2] = MatMul(x, t)
            return y

    after:
        @graph
        def g(x: f32[2, 2]):
            w: f32[2, 2] = constant([1.0, 2.0, 3.0, 4.0])
            t: f32[2, 2] = constant([1.0, 3.0, 2.0, 4.0])
            y: f32[2, 2] = MatMul(x, t)
            return y
    """
    rewriter = Rewriter(graph)
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        if is_foldable(node, rewriter):
            fold_node(node, rewriter)
        else:
            rewriter.emit(node)
    return rewriter.finish()


def is_foldable(node: Node, rewriter: Rewriter) -> bool:
    """Check whether fold-constants replaces `node` by a constant."""
    if node.regions or node.op == FAIL or not all(v.type.is_static for v in node.outputs):
        return False
    operands = [rewriter.constant_of(value) for value in node.inputs if value is not None]
    if any(constant is None or constant.has_dims for constant in operands):
        return False  # The importer folded nodes on sizes alone if it could.
    result = sum(value.type.nbytes for value in node.outputs)
    source = sum(value.type.nbytes for value in node.inputs if value is not None)
    return result <= max(MAX_BYTES, _MAX_GROWTH * source) or lookup(node.op).kind is Kind.OPAQUE


def fold_node(node: Node, rewriter: Rewriter) -> None:
    """Replace the outputs of a node that `is_foldable` by constants."""
    if lookup(node.op).has(Trait.PACKED):
        (value,) = node.outputs
        rewriter.define(value, _derived(node, rewriter))
        return
    arrays = [rewriter.data(value) for value in node.inputs]
    results = run_node(node, arrays)
    for value, result in zip(node.outputs, results, strict=True):
        rewriter.define(value, result.astype(value.type.dtype.numpy, copy=False))


def _derived(node: Node, rewriter: Rewriter) -> Array | Derived:
    """Return the result of a node with one constant operand: an array, or a deferred
    computation."""
    (value,) = node.outputs
    constants = [rewriter.constant_of(operand) for operand in node.inputs]
    operands = tuple(constant for constant in constants if constant is not None)

    def evaluate(*arrays: Array) -> Array:
        (result,) = run_node(node, arrays)
        return result.astype(value.type.dtype.numpy, copy=False).view()

    return derived(value.type, operands, evaluate, f"{node.op} {node.attrs}")
