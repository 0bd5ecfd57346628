"""Rewrite Loop and Scan to loops of the builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from farrier.frontends.builder.loops import Given, Loop, scalar, stacked
from farrier.frontends.builder.names import Entry
from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.rewrites.regions import bind
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.tensors import dtype_of
from farrier.ir.dim import number
from farrier.ir.types import DType, TensorType
from farrier.ops import Mismatch, NotStatic, NotSupported


def rewrite_loop(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    graph = node.attrs["body"]
    initial = tuple(map(scope.entry, node.inputs[2:]))
    count = len(graph.input) - 2
    if len(initial) != count:
        raise Mismatch(f"its body carries {count} values, and it is given {len(initial)}")

    def build(state: Given) -> list[Entry]:
        arguments = (state.number, state.goes_on, *state.items)
        return scope.nested(graph, _named(graph, arguments), opset)

    rank = len(graph.input[0].type.tensor_type.shape.dim)
    loop = Loop(
        scope,
        build,
        trips=scalar(scope, node.input(0)),
        condition=scalar(scope, node.input(1)),
        carried=initial,
        number=TensorType(DType.I64, (1,) * rank),
        declared=_declared(graph, 1 + count),
    )
    bind(node.outputs, loop.outputs(), scope)
    return []


def rewrite_scan(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    if opset < 9:
        return _scan_of_batch(node, opset, scope)
    graph, count = node.attrs["body"], int(node.attrs["num_scan_inputs"])
    states = len(node.inputs) - count
    axes = node.attrs.get("scan_input_axes", (0,) * count)
    backwards = node.attrs.get("scan_input_directions", (0,) * count)
    scanned = [
        _reversed(_moved(name, axis, 0, scope), back, scope)
        for name, axis, back in zip(node.inputs[states:], axes, backwards, strict=True)
    ]

    def build(state: Given) -> list[Entry]:
        return scope.nested(graph, _named(graph, state.items), opset)

    loop = Loop(
        scope,
        build,
        trips=scalar(scope, scope.constant(ints(scope.shape(scanned[0])[0]))),
        condition=None,
        carried=tuple(map(scope.entry, node.inputs[:states])),
        scanned=tuple(scope.values.names[name] for name in scanned),
        tests=False,
        declared=_declared(graph, states),
    )
    results = loop.outputs()
    stacks = len(results) - states
    axes = node.attrs.get("scan_output_axes", (0,) * stacks)
    backwards = node.attrs.get("scan_output_directions", (0,) * stacks)
    for position, (axis, back) in enumerate(zip(axes, backwards, strict=True), states):
        whole = _reversed(scope.bind("", results[position]), back, scope)
        results[position] = scope.entry(_moved(whole, 0, axis, scope))
    bind(node.outputs, results, scope)
    return []


def _scan_of_batch(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Scan before opset 9, which had a batch as axis 0: its items are scanned one after
    another."""
    lengths, *inputs = node.inputs
    if lengths:
        raise NotSupported("sequence_lens")
    results: list[list[str]] = []
    for item in range(number(scope.shape(inputs[0])[0])):
        index = scope.constant(ints(item))
        item_inputs = [scope.add("Gather", name, index, axis=0) for name in inputs]
        item_outputs = [scope.fresh() for _ in node.outputs]
        attrs = dict(node.attrs)
        attrs["scan_input_directions"] = attrs.pop("directions", (0,) * attrs["num_scan_inputs"])
        rewrite_scan(RawNode("Scan", item_inputs, item_outputs, attrs, node.origin), 9, scope)
        results.append(item_outputs)
    for name, items in zip(node.outputs, zip(*results, strict=True), strict=True):
        scope.bind(name, scope.entry(stacked(items, scope)))
    return []


def _named(graph: onnx.GraphProto, entries: Sequence[Entry | None]) -> dict[str, Entry]:
    """Return a map from the names of a nested graph's inputs to `entries`, the arguments in the
    same order. An input whose entry is None is left out."""
    pairs = zip(graph.input, entries, strict=True)
    return {info.name: entry for info, entry in pairs if entry is not None and info.name}


def _declared(graph: onnx.GraphProto, first: int) -> Callable[[], list[TensorType]]:
    """Return a function that returns the declared types of the outputs from number `first` on,
    which a loop stacks. The function raises NotStatic if a type is not declared."""

    def types() -> list[TensorType]:
        declared_types = []
        for info in graph.output[first:]:
            declared = info.type.tensor_type
            dims = [dim.dim_value for dim in declared.shape.dim if dim.HasField("dim_value")]
            if not declared.HasField("shape") or len(dims) < len(declared.shape.dim):
                raise NotStatic(f"it never runs, and its body does not declare {info.name!r}", ())
            declared_types.append(
                TensorType(dtype_of(declared.elem_type, f"{info.name!r}"), tuple(dims))
            )
        return declared_types

    return types


def _moved(name: str, axis: int, to: int, scope: ImportScope) -> str:
    """Return the tensor with axis `axis` moved to position `to`."""
    rank = len(scope.shape(name))
    axis, to = axis % rank, to % rank
    order = [other for other in range(rank) if other != axis]
    order.insert(to, axis)
    return name if axis == to else scope.add("Transpose", name, perm=tuple(order))


def _reversed(name: str, backwards: int, scope: ImportScope) -> str:
    """Return the tensor, reversed along its first axis if `backwards` is 1."""
    if not backwards:
        return name
    start, end, axis, step = ([-1], [np.iinfo(np.int64).min], [0], [-1])
    operands = (scope.constant(ints(each)) for each in (start, end, axis, step))
    return scope.add("Slice", name, *operands)
