"""Execute graphs in numpy, node by node: the reference against which compiled code is verified.

Layouts are ignored (arrays are logical), so the result is the same before and after any pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from farrier.files.mapped import release
from farrier.ir.control import is_control
from farrier.ir.dim import evaluate
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.sizes import Demand, array_with_extents, bind
from farrier.ir.types import DType
from farrier.ops.control import run_control
from farrier.ops.operator import Array, to_extents
from farrier.ops.registry import lookup
from farrier.ops.time_limit import check_time

# An observer: called with a node, one of its outputs and that output's array, it returns the array
# with which the run goes on.
Seen: TypeAlias = Callable[[Node, Value, Array], Array]


def run_node(
    node: Node,
    arrays: Sequence[Array | None],
    *,
    wide: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> tuple[Array, ...]:
    """Return the outputs of one node; a node with regions (`Fused`, `If`, `Loop`) runs them. `wide`
    and `sizes` apply to these regions as in `run_graph`."""
    if is_control(node):
        return run_control(node, arrays, functools.partial(run_graph, wide=wide, sizes=sizes))
    if node.regions:
        (region,) = node.regions
        present = [array for array in arrays if array is not None]
        names = (value.name for value in region.inputs)
        return tuple(
            run_graph(region, dict(zip(names, present, strict=True)), sizes=sizes).values()
        )
    kinds = [value.type for value in node.outputs]
    return tuple(lookup(node.op).evaluate(arrays, dict(node.attrs), kinds))


def run_graph(
    graph: Graph,
    inputs: Mapping[str, Array],
    *,
    wide: bool = False,
    sizes: Mapping[str, int] | None = None,
    seen: Seen | None = None,
) -> dict[str, Array]:
    """Run a graph in numpy and return its outputs by value name, in order.

    `inputs` are arrays by value name, with shapes within the ranges of the graph's inputs. `sizes`
    maps the names of symbols that no shape determines to their values. `wide` computes every f32
    tensor in float64, for a reference whose own rounding is negligible. `seen` is called with each
    value that a node of the outermost graph computes, and returns the array to use in its place.
    Raises OutOfTimeError past a limit of time (`ops/time_limit.py`).
    """
    check_time()  # The body of a loop may have no nodes.
    # Constants are widened when they are read, and not kept: in double, all of them together may
    # take twice the memory of the model.
    constants = {constant.value.name: constant for constant in graph.constants}
    arrays = {name: _widen(array) if wide else array for name, array in inputs.items()}
    readers: dict[str, int] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers[value.name] = readers.get(value.name, 0) + 1
    kept = {value.name for value in graph.outputs}
    symbol_values = dict(sizes or {})
    for value in graph.inputs:
        bind(value.type.shape, arrays[value.name].shape, symbol_values)

    def known_array(value: Value) -> Array:
        if value.name in arrays:
            return arrays[value.name]
        array = constants[value.name].made()
        return _widen(array) if wide else array

    def read(value: Value, node: Node) -> Array:
        if _may_stay_f32(value, node, constants):
            return constants[value.name].made()
        array = known_array(value)
        if array.dtype != object:
            return array
        return array_with_extents(
            array, value.type.dtype, lambda size: evaluate(size, symbol_values)
        )

    for node in graph.nodes:
        check_time()
        if node.op in ("Bind", "Require"):
            elements, extents = (known_array(value) for value in node.inputs if value is not None)
            _settle(node, elements, extents, symbol_values)
        operands = [None if value is None else read(value, node) for value in node.inputs]
        results = run_node(node, operands, wide=wide, sizes=symbol_values)
        for value, result in zip(node.outputs, results, strict=False):
            result = _widen(result) if wide else result
            arrays[value.name] = result if seen is None else seen(node, value, result)
            bind(value.type.shape, result.shape, symbol_values)
        del operands, results  # Release them before the next node's are computed.
        for value in node.inputs:  # Free arrays that have no further reader.
            if value is not None:
                readers[value.name] -= 1
                if not readers[value.name] and value.name not in kept:
                    arrays.pop(value.name, None)
                for source in constants[value.name].sources if value.name in constants else ():
                    release(source)
    return {value.name: known_array(value) for value in graph.outputs}


def _may_stay_f32(value: Value, node: Node, constants: Mapping[str, Constant]) -> bool:
    """Check whether a node may read a constant in f32 while the reference computes in f64, with the
    same result. Widening all weights of a layer would double their memory."""
    if value.name not in constants or value.type.dtype is not DType.F32:
        return False
    if node.op == "Gather":
        return True
    return node.op in ("MatMul", "Gemm") and (
        node.inputs[1] == value
        and node.inputs[0] is not None
        and node.inputs[0].name not in constants
    )


def _settle(node: Node, elements: Array, extents: Array, values: dict[str, int]) -> None:
    """Bind the symbols whose values the elements of a tensor determine, adding them to `values`.
    Raises ValueError for a negative size, and for a size that contradicts a known value."""
    sizes = elements.reshape(-1).tolist()
    if node.op == "Bind":
        if min(sizes, default=0) < 0:
            raise ValueError(f"a size of {min(sizes)} ({node.origin})")
        bind(to_extents(extents), sizes, values)
    demands = Demand(str(node.attr("demands", Demand.EXACT)))
    for size, extent in zip(sizes, to_extents(extents), strict=True):
        wanted = evaluate(extent, values)
        if not demands.is_met(size, wanted):
            demand = f"{demands} {wanted}" if demands is not Demand.EXACT else str(wanted)
            raise ValueError(f"a size of {size}, which must be {demand} ({node.origin})")


def _widen(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array
