"""Add a node in terms of Farrier's operators: infer its types, and fold it or append it to the
graph."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from farrier.frontends.builder.emptiness import shortfall
from farrier.frontends.builder.folding import folded
from farrier.frontends.builder.limits import check_size
from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.stretching import stretch
from farrier.ir.dim import Extent, Question, Undecided, as_extent, minimum, symbols
from farrier.ir.graph import Attribute, Node, Value
from farrier.ir.types import DType, TensorType
from farrier.ops import Kind, Mismatch, NotSupported, Operator, lookup

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder

_COUNTING = (DType.I64, DType.I32, DType.BOOL)
_FEW = 64  # The most elements of constants that are compared.


def emit(builder: Builder, node: RawNode) -> None:
    """Infer the types of a node's outputs, and define the outputs. If the node can be folded, they
    become constants and no node is added. Outputs without elements are always constants."""
    operator, values = _operator(node), builder.values
    # An Identity also hands on entries that no node takes, such as lists of tensors.
    if node.op == "Identity":
        values.names[node.outputs[0]] = values.names.entry(node.inputs[0])
        return
    if operator.kind is Kind.ELEMENTWISE and len(node.inputs) > 1:
        stretch(node, builder)
    inputs = [values.names[name] if name else None for name in node.inputs]
    while inputs and inputs[-1] is None:
        inputs.pop()
    data = [values.known.get(value.name) if value else None for value in inputs]
    kinds, attrs = _inferred(builder, node, operator, inputs)
    try:
        results = folded(operator, inputs, data, kinds, attrs)
    except Undecided as asked:
        if not _is_tested_at_run_time(builder, node, asked.question):
            raise
        results = None
    if results is not None:
        for name, result, kind in zip(node.outputs, results, kinds, strict=False):
            values.constant(result, kind.dtype, name or values.fresh())
        return
    _append(builder, node, operator, inputs, kinds, attrs)


def _operator(node: RawNode) -> Operator:
    try:
        return lookup(node.op)
    except KeyError as error:
        raise NotSupported(f"the operator {node.op}") from error


def _inferred(
    builder: Builder, node: RawNode, operator: Operator, inputs: Sequence[Value | None]
) -> tuple[tuple[TensorType, ...], Mapping[str, Attribute]]:
    """Return the types of the outputs, after checks of their sizes, and the attributes with
    defaults."""
    types = [value.type if value else None for value in inputs]
    arrays = (builder.values.known.get(value.name) if value else None for value in inputs)
    constants = {place: array for place, array in enumerate(arrays) if array is not None}
    attrs: Mapping[str, Attribute] = node.attrs
    if operator.explicit is not None:
        attrs = operator.explicit(types, attrs)
    if operator.counts:
        attrs = {**attrs, "extent": builder.data_sizes.symbol()}
    kinds = operator.infer(types, constants, attrs)
    if operator.counts:
        counted = (s for kind in kinds for s in symbols(kind.shape))
        symbol = next((s for s in counted if s.name == attrs["extent"]), None)
        builder.data_sizes.note(0 if symbol is None else as_extent(symbol))
    _check_outputs(builder, node, kinds)
    for extent, enough in shortfall(operator, types, kinds, attrs):
        _check_elements(builder, extent, enough)
    return tuple(kinds), attrs


def _append(
    builder: Builder,
    node: RawNode,
    operator: Operator,
    inputs: list[Value | None],
    kinds: Sequence[TensorType],
    attrs: Mapping[str, Attribute],
) -> None:
    """Append the node to the graph and bind its outputs to their names. If an earlier node computes
    the same from equal inputs, and the results are sizes or counts, bind the names to the outputs
    of that node instead, so that equal sizes have the same symbols."""
    values = builder.values
    pairs = tuple(sorted(attrs.items()))
    # An operator with a data-dependent extent gets a new symbol each time.
    same = tuple(pair for pair in pairs if not (operator.counts and pair[0] == "extent"))
    key = (node.op, tuple(_identity(builder, value) for value in inputs), same)
    for position, value in enumerate(inputs):
        if value is not None:
            is_static = position in operator.static
            inputs[position] = _constant(builder, value) if is_static else builder.computed(value)
    names = itertools.chain(node.outputs, itertools.repeat(""))
    twin = values.body.computed.get(key)
    are_sizes = all(kind.dtype in _COUNTING and kind.rank < 2 for kind in kinds)
    if twin is not None and (are_sizes or operator.counts):
        # The same operation on the same sizes has equal results.
        for name, value in zip(names, twin.outputs, strict=False):
            builder.bind(name, value)
        return
    outputs = tuple(values.define(kind, name) for name, kind in zip(names, kinds, strict=False))
    appended = Node(node.op, tuple(inputs), outputs, pairs, (), node.origin)
    values.append(appended)
    copied = operator.copied(appended, builder.known)
    if copied is not None:
        values.first_equal[outputs[0].name] = values.first_equal.get(copied.name, copied)
    elif twin is None:
        values.body.computed[key] = appended
    else:
        firsts = zip(outputs, twin.outputs, strict=False)
        values.first_equal |= {value.name: first for value, first in firsts}
    for name, value in zip(node.outputs, outputs, strict=False):
        if name:
            builder.bind(name, value)


def _is_tested_at_run_time(builder: Builder, node: RawNode, question: Question) -> bool:
    """Check whether the comparison `question`, which a node needs, can be computed at run time: the
    node computes the condition of a branch, and the comparison contains only data-dependent sizes.
    Both branches are then compiled, rather than only the branch for the typical sizes."""
    asked, defined = symbols((question.extent,)), builder.data_sizes.defined
    return node.outputs[0] in builder.conditions and all(s.name in defined for s in asked)


def _check_outputs(builder: Builder, node: RawNode, kinds: Sequence[TensorType]) -> None:
    surplus = [name for name in node.outputs[len(kinds) :] if name and builder.is_read(name)]
    if surplus:
        raise NotSupported(f"the further output {surplus[0]!r}")
    for kind in kinds:
        check_size(kind, f"an output of {node.where}", builder.most_bytes)


def _check_elements(builder: Builder, extent: Extent, enough: Extent) -> None:
    """Ensure that the operator reads elements by position only from an axis that has elements.
    `enough` is 1 if that holds, and 0 otherwise (`shortfall`).

    Raises Mismatch if it is 0 for all sizes, and Undecided if a narrower range of one dim can
    ensure that it is 1. Otherwise a check is added that ends a run in which it is 0.
    """
    if enough == 0:
        raise Mismatch("an element is taken from an axis of 0")
    if enough == minimum(extent, 1) and len(set(symbols((extent,)))) == 1:
        try:
            if extent > 0:
                return
        except Undecided as asked:
            if builder.signature.settles(asked.question):
                raise
    builder.require(builder.unknown([enough]), [1])


def _identity(builder: Builder, value: Value | None) -> Hashable:
    """Return a hashable key for a value. Two values with equal keys are certain to be equal at run
    time."""
    if value is None:
        return None
    values = builder.values
    data = values.known.get(value.name)
    if data is None or data.size > _FEW or value.name in values.bound:
        return values.first_equal.get(value.name, value)
    return (value.type, tuple(data.reshape(-1).tolist()))


def _constant(builder: Builder, value: Value) -> Value:
    """Return a constant with the elements of the value, if nodes compute the value but its elements
    are known as extents (`Values.bound`). Return any other value itself."""
    values = builder.values
    if value.name not in values.bound:
        return value
    return values.names[builder.constant(values.known[value.name])]
