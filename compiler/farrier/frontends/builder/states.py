"""States of a model: an output of one call that is an input of the next.

A growing state is `Concat(state, new)` along one axis. In memory that axis comes first, whichever
axis of the tensor it is, so that a call only stores the new slices after the old ones, and the
buffer may have spare capacity after them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier.errors import UsageError
from farrier.frontends.builder.model import ImportedModel
from farrier.ir.dim import symbols
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import TensorType
from farrier.ops import lookup
from farrier.ops.traits import Trait
from farrier.options.states import HeldState, Suggestion, paired, suggested


def with_states(imported: ImportedModel, declared: Mapping[str, str]) -> ImportedModel:
    """Return the model with the states that a user declares (`farrier.options.states`) in addition
    to the states of the model itself. Raises UsageError for a declaration that does not match the
    model."""
    if not declared:
        return imported
    inputs = dict(zip(imported.input_names, imported.graph.inputs, strict=True))
    outputs = dict(zip(imported.output_names, imported.graph.outputs, strict=True))
    pairs = paired(declared, imported.input_names, imported.output_names, _seen(imported))
    states = []
    own = {name for state in imported.states for name in (state.input, state.output)}
    for state in pairs:
        if own & {state.input, state.output}:
            raise UsageError(
                f"{state.input}={state.output} names a state that the model itself declares",
                hint="leave it out: sessions keep it already",
            )
        if {state.input, state.output} & imported.strings:
            raise UsageError(f"the state {state.input} holds strings, which a session cannot keep")
        past, present = inputs[state.input], outputs[state.output]
        _check_known(imported, state, present)
        axis = _axis(state, past.type, present.type)
        if axis is None:
            is_in_place = _updates(imported.graph, past, present)
        else:
            is_in_place = _joins(imported.graph, past, present, axis)
        states.append(dataclasses.replace(state, axis=axis, in_place=is_in_place))
    return dataclasses.replace(imported, states=(*imported.states, *states))


def suggestions(imported: ImportedModel) -> tuple[Suggestion, ...]:
    """Return the pairs of inputs and outputs that are probably states: their names differ as `past`
    and `present` do, and their types differ in at most one axis."""
    return suggested(_seen(imported))


def _seen(imported: ImportedModel) -> Sequence[Suggestion]:
    """Return all pairs of an input and an output whose types could be those of a state."""
    pairs_seen = []
    for name, value in zip(imported.input_names, imported.graph.inputs, strict=True):
        for other, result in zip(imported.output_names, imported.graph.outputs, strict=True):
            if _differing(value.type, result.type) is not None:
                pairs_seen.append(Suggestion(name, other))
    return pairs_seen


def _differing(past: TensorType, present: TensorType) -> list[int] | None:
    """Return the axes, at most one, in which the shapes of `past` and `present` differ. Return None
    if they cannot be the same state before and after a call, because they differ in dtype, rank, or
    more than one axis."""
    if past.dtype is not present.dtype or past.rank != present.rank:
        return None
    axes = [axis for axis in range(past.rank) if past.shape[axis] != present.shape[axis]]
    return axes if len(axes) <= 1 else None


def _axis(state: HeldState, past: TensorType, present: TensorType) -> int | None:
    """Return the axis along which a state grows, or None if its size is fixed. Raises UsageError if
    the types cannot be those of a state."""
    axes = _differing(past, present)
    if axes is None:
        raise UsageError(
            f"the state {state.input} is {_shown(past)} before a call and "
            f"{_shown(present)} ({state.output}) after it",
            hint="a state keeps its type, and its shape in all axes but the one along which it "
            "grows",
        )
    grows = axes[0] if axes else None
    if state.axis is not None and state.axis % max(past.rank, 1) != grows:
        raise UsageError(
            f"the state {state.input} is declared to grow along axis {state.axis}, and "
            f"{'has a fixed size' if grows is None else f'grows along axis {grows}'}",
            hint="leave the axis out: the shapes tell it",
        )
    if grows is None and state.capacity:
        raise UsageError(
            f"the state {state.input} has a fixed size, and a capacity of {state.capacity}",
            hint="leave the capacity out",
        )
    if grows is not None and isinstance(past.shape[grows], int):
        raise UsageError(
            f"the state {state.input} is {past.shape[grows]} along axis {grows} before every call "
            f"and {present.shape[grows]} after it, so it cannot grow",
            hint=f"leave that axis open: --shape {state.input}="
            + ",".join("past" if axis == grows else str(s) for axis, s in enumerate(past.shape)),
        )
    return grows


def _check_known(imported: ImportedModel, state: HeldState, present: Value) -> None:
    """Raise UsageError for a state whose size is data-dependent."""
    from_inputs = {
        symbol for value in imported.graph.inputs for symbol in symbols(value.type.shape)
    }
    if not from_inputs.issuperset(symbols(present.type.shape)):
        raise UsageError(
            f"the values of the inputs decide the size of the state {state.input}",
            hint="the sizes of the inputs must decide it: where an input holds the length, "
            "make that a constant of the model",
        )


def _joins(graph: Graph, past: Value, present: Value, axis: int) -> bool:
    """Check whether the output `present` is the input `past` with slices appended along `axis`."""
    node = graph.producers().get(present.name)
    return (
        node is not None
        and lookup(node.op).has(Trait.JOINS)
        and node.attr("axis") % present.type.rank == axis
        and node.inputs[0] == past
        and past not in node.inputs[1:]
    )


def _updates(graph: Graph, past: Value, present: Value) -> bool:
    """Check whether the output `present` is the input `past` with some elements overwritten, and no
    other node reads `past`."""
    node = graph.producers().get(present.name)
    return (
        node is not None
        and _overwriting(node) is not None
        and node.inputs[0] == past
        and graph.consumers().get(past.name) == [node]
        and past not in node.inputs[1:]
        and past not in graph.outputs
    )


def _overwriting(node: Node) -> Node | None:
    """Return the in-place variant of a node, which writes only the updated elements into its first
    input. Return None if the operator has no such variant."""
    rule = lookup(node.op).in_place
    return None if rule is None else rule(node)


def _shown(type: TensorType) -> str:
    return f"{type.dtype}[{', '.join(map(str, type.shape))}]"


def placed(imported: ImportedModel, graph: Graph | None = None) -> Graph:
    """Return the model's graph, or a graph specialized for hot sizes, with every state that grows
    in place transposed so that the axis of growth comes first, as in memory.

    before, of past: f32[1, 2, n, 8] and new: f32[1, 2, 1, 8]:
        present: f32[1, 2, n + 1, 8] = Concat(past, new, axis=2)

    after, of slices: f32[n, 1, 2, 8] and new: f32[1, 2, 1, 8]:
        past: f32[1, 2, n, 8] = Transpose(slices, perm=(1, 2, 0, 3))
        added: f32[1, 1, 2, 8] = Transpose(new, perm=(2, 0, 1, 3))
        slices2: f32[n + 1, 1, 2, 8] = Concat(slices, added, axis=0)
        present: f32[1, 2, n + 1, 8] = Transpose(slices2, perm=(1, 2, 0, 3))
    """
    graph = imported.graph if graph is None else graph
    for state in imported.states:
        source = imported.input_names.index(state.input)
        target = imported.output_names.index(state.output)
        if state.in_place and state.axis is None:
            graph = _updated_in_place(graph, source, target)
        elif state.in_place and state.axis:
            graph = _with_axis_first(graph, source, target, state.axis)
    return graph


def _updated_in_place(graph: Graph, source: int, target: int) -> Graph:
    """Return the graph with a scatter from an input to an output replaced by an Overwrite of a copy
    of the input. The driver omits the copy if the caller passes the same buffer for both.

    before:
        present: f32[1, 2, 64, 8] = TensorScatter(past, new, starts, axis=2)

    after:
        held: f32[1, 2, 64, 8] = Relayout(past)
        present: f32[1, 2, 64, 8] = Overwrite(held, new, starts, axis=2)
    """
    past, present = graph.inputs[source], graph.outputs[target]
    if not _updates(graph, past, present):  # A graph for hot sizes may have other nodes.
        return graph
    held = Value(f"{past.name}_held", past.type)
    nodes = []
    for node in graph.nodes:
        if present not in node.outputs:
            nodes.append(node)
            continue
        nodes.append(Node("Relayout", (past,), (held,), (), (), node.origin))
        writes = _overwriting(node)
        assert writes is not None
        nodes.append(dataclasses.replace(writes, inputs=(held, *node.inputs[1:])))
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _with_axis_first(graph: Graph, source: int, target: int, axis: int) -> Graph:
    """Return the graph with input `source` and output `target` transposed so that `axis` is their
    first axis."""
    past, present = graph.inputs[source], graph.outputs[target]
    first = (axis, *(other for other in range(past.type.rank) if other != axis))
    back = tuple(map(first.index, range(past.type.rank)))
    rows, rows_after = _rows_of(past, first), _rows_of(present, first)
    nodes = [_transpose(rows, past, back)]
    for node in graph.nodes:
        if present not in node.outputs:
            nodes.append(node)
        elif lookup(node.op).has(Trait.JOINS) and node.inputs[0] == past:
            nodes += _joined_along_first(node, rows, rows_after, first)
            nodes.append(_transpose(rows_after, present, back, node.origin))
        else:  # For hot sizes the operator may be another.
            nodes += [node, _transpose(present, rows_after, first, node.origin)]
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    inputs[source], outputs[target] = rows, rows_after
    return dataclasses.replace(
        graph, inputs=tuple(inputs), outputs=tuple(outputs), nodes=tuple(nodes)
    )


def _joined_along_first(
    node: Node, rows: Value, rows_after: Value, first: Sequence[int]
) -> list[Node]:
    """Return the nodes of a growing state's Concat along its first axis, including the transposes
    of the other operands."""
    parts, nodes = [rows], []
    for number, part in enumerate(node.inputs[1:]):
        assert part is not None
        name = f"{rows_after.name}_added{number}"
        parts.append(dataclasses.replace(_rows_of(part, first), name=name))
        nodes.append(_transpose(part, parts[-1], first, node.origin))
    joined = dataclasses.replace(
        node, inputs=tuple(parts), outputs=(rows_after,), attrs=attributes(axis=0)
    )
    return [*nodes, joined]


def _transpose(source: Value, target: Value, perm: Sequence[int], origin: str = "") -> Node:
    return Node("Transpose", (source,), (target,), attributes(perm=tuple(perm)), (), origin)


def _rows_of(value: Value, perm: Sequence[int]) -> Value:
    shape = tuple(value.type.shape[axis] for axis in perm)
    return Value(f"{value.name}_slices", TensorType(value.type.dtype, shape))
