"""If → a node with two regions, or where the condition is known, the nodes of the branch taken.

A branch that cannot be typed for the sizes at hand, or that needs what Farrier lacks, ends the run
that takes it: what it would return has the types of what the other branch does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from farrier.errors import FarrierError, UnresolvedShapeError
from farrier.importer.names import Body, Entry, Form, entry_of, form_of, tensors_of
from farrier.importer.raw import RawNode
from farrier.importer.rewrites.regions import UNFIT, append, bind, captures_of
from farrier.importer.scope import Region, Regions
from farrier.ir.control import If, make_failure, make_if
from farrier.ir.dim import Extent, maximum, upper
from farrier.ir.graph import Value
from farrier.ir.types import TensorType
from farrier.ops import Mismatch, NotStatic


def rewrite_if(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    condition = scope.entry(node.inputs[0])
    graphs = [node.attrs["then_branch"], node.attrs["else_branch"]]
    known = scope.data(node.inputs[0])
    if known is not None:
        taken = graphs[0] if known.reshape(-1)[0] else graphs[1]
        bind(node.outputs, scope.inline(taken, {}, opset), scope)
        return []
    assert isinstance(condition, Value)
    regions = _of_one_form(_branches(graphs, node.origin, opset, scope), node.origin, scope)
    forms = [tuple(map(form_of, region.outputs)) for region in regions]
    if forms[0] != forms[1]:
        raise NotStatic("its branches return sequences of different lengths, or one an empty value")
    outputs = _in_one_shape(regions, scope)
    joins = _Joins(scope, frozenset().union(*map(scope.found_in, regions)))
    results = [joins.result(then, other) for then, other in zip(*outputs, strict=True)]
    captured = captures_of(regions, scope)
    then, otherwise = (
        scope.finished(region, name, captured, values)
        for region, name, values in zip(regions, ("then", "otherwise"), outputs, strict=True)
    )
    made = If(condition, captured, tuple(results), (then, otherwise))
    append(make_if(made, node.origin), scope)
    bind(node.outputs, _entries(forms[0], results), scope)
    return []


def _branches(
    graphs: Sequence[onnx.GraphProto], origin: str, opset: int, scope: Regions
) -> list[Region]:
    """The graphs as regions; one that cannot be compiled fails. Raises the error of the first where
    no graph can be compiled."""
    attempts = [_attempted(graph, opset, scope) for graph in graphs]
    model = next((region for region in attempts if isinstance(region, Region)), None)
    if model is None:
        raise _both(*(error for error in attempts if isinstance(error, FarrierError)))
    return [
        one if isinstance(one, Region) else _failing(model, one.message, origin, scope)
        for one in attempts
    ]


def _of_one_form(regions: Sequence[Region], origin: str, scope: Regions) -> list[Region]:
    """Return the regions. If their results differ in rank or type, and one region returns values
    from outside unchanged, the other one fails: later nodes can be typed for one of them only."""
    kinds = [
        [(v.type.dtype, v.type.rank) for entry in region.outputs for v in tensors_of(entry)]
        for region in regions
    ]
    idle = [place for place, region in enumerate(regions) if not region.body.nodes]
    if kinds[0] == kinds[1] or len(idle) != 1:
        return list(regions)
    (place,) = idle
    shapes = ", ".join(f"{dtype} of {rank} axes" for dtype, rank in kinds[1 - place])
    kept = regions[place]
    failing = _failing(kept, f"it returns {shapes}, and the other branch does not", origin, scope)
    return [kept, failing] if place == 0 else [failing, kept]


def _attempted(graph: onnx.GraphProto, opset: int, scope: Regions) -> Region | FarrierError:
    try:
        return scope.branch(graph, opset)
    except UNFIT as error:
        return error


def _both(then: FarrierError, other: FarrierError) -> FarrierError:
    """The error of one branch, which tells that of the other as well."""
    message = f"{then.message}; and in the other branch, {other.message}"
    if isinstance(then, UnresolvedShapeError):
        return UnresolvedShapeError(message, hint=then.hint, deciding=then.deciding)
    return type(then)(message, hint=then.hint)


def _failing(model: Region, reason: str, origin: str, scope: Regions) -> Region:
    """A branch that ends the run instead of returning what the region `model` does. Extents that
    the data decides in `model` are at their bounds."""
    inside = scope.found_in(model)
    values = tuple(
        scope.define(
            TensorType(
                value.type.dtype,
                tuple(upper(e, lambda s: s.name not in inside) for e in value.type.shape),
            )
        )
        for entry in model.outputs
        for value in tensors_of(entry)
    )
    body = Body()
    body.nodes.append(make_failure(values, reason, origin))
    return Region(body, (), tuple(_entries(map(form_of, model.outputs), values)))


def _in_one_shape(regions: Sequence[Region], scope: Regions) -> list[list[Value]]:
    """The tensors that each branch returns: in the shape of the other's, where that is the same for
    the sizes with which a run enters this one."""
    outputs = [[v for entry in region.outputs for v in tensors_of(entry)] for region in regions]
    for region, mine, others in zip(regions, outputs, reversed(outputs), strict=True):
        for place, (value, other) in enumerate(zip(mine, others, strict=False)):
            if region.in_shape(other.type.shape) == region.in_shape(value.type.shape):
                mine[place] = scope.viewed(region, value, other.type.shape)
    return outputs


class _Joins:
    """Results of branches, which may differ in their extents. `inside` are symbols of the branches'
    own."""

    def __init__(self, scope: Regions, inside: frozenset[str]) -> None:
        self._scope = scope
        self._inside = inside
        self._known: dict[tuple[Extent, Extent], Extent] = {}

    def result(self, then: Value, otherwise: Value) -> Value:
        left, right = then.type, otherwise.type
        if left.dtype is not right.dtype:
            raise Mismatch(f"one branch returns {left.dtype}, the other {right.dtype}")
        if left.rank != right.rank:
            raise NotStatic(f"one branch returns the shape {left.shape}, the other {right.shape}")
        shape = tuple(map(self._extent, left.shape, right.shape))
        return self._scope.define(TensorType(left.dtype, shape))

    def _extent(self, then: Extent, otherwise: Extent) -> Extent:
        if then == otherwise:
            return then
        if (then, otherwise) not in self._known:
            most = (upper(e, lambda s: s.name not in self._inside) for e in (then, otherwise))
            self._known[then, otherwise] = self._scope.counted(maximum(*most))
        return self._known[then, otherwise]


def _entries(forms: Iterable[Form], values: Iterable[Value]) -> list[Entry]:
    rest = iter(values)
    return [entry_of(form, rest) for form in forms]
