"""Conditionals: a node with two regions or, if the condition is constant, the nodes of one branch.

A branch that cannot be typed at the typical sizes, or that contains an unsupported operator, is
replaced by a failure node, which ends a run that takes the branch. The node's outputs have the
types of the other branch's results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from farrier.errors import FarrierError, UnresolvedShapeError
from farrier.frontends.builder.names import Body, Entry, Form, entry_of, form_of, tensors_of
from farrier.frontends.builder.regions import (
    UNFIT,
    Build,
    Region,
    append,
    branch,
    captures_of,
    closed,
    defined_in,
)
from farrier.ir.control import If, make_failure, make_if
from farrier.ir.dim import Extent, maximum, upper
from farrier.ir.graph import Value
from farrier.ir.types import TensorType
from farrier.ops import Mismatch, NotStatic

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


def chosen(builder: Builder, condition: str, builds: Sequence[Build]) -> list[Entry]:
    """Add a conditional and return its results. `builds` are two functions: the first adds the
    nodes of the branch for a true condition, the second those of the branch for a false one. If the
    condition is constant, only the nodes of one branch are added."""
    entry = builder.entry(condition)
    data = builder.data(condition)
    if data is not None:
        return builder.inlined(builds[0] if data.reshape(-1)[0] else builds[1])
    assert isinstance(entry, Value)
    origin = builder.at_hand.origin
    regions = _of_one_form(_branches(builds, origin, builder), origin, builder)
    forms = [tuple(map(form_of, region.outputs)) for region in regions]
    if forms[0] != forms[1]:
        raise NotStatic("its branches return sequences of different lengths, or one an empty value")
    outputs = _in_one_shape(regions, builder)
    inside = (defined_in(builder, region) for region in regions)
    joins = _Joins(builder, frozenset().union(*inside))
    results = [joins.result(then, other) for then, other in zip(*outputs, strict=True)]
    captured = captures_of(regions, builder)
    then, otherwise = (
        closed(builder, region, name, captured, values)
        for region, name, values in zip(regions, ("then", "otherwise"), outputs, strict=True)
    )
    choice = If(entry, captured, tuple(results), (then, otherwise))
    append(make_if(choice, origin), builder)
    return _entries(forms[0], results)


def _branches(builds: Sequence[Build], origin: str, builder: Builder) -> list[Region]:
    """Build both branches and return their regions. If only one of them can be compiled, the other
    is replaced by a region that ends the run with an error. If neither can be compiled, raise the
    errors of both."""
    attempts = [_attempted(build, builder) for build in builds]
    model = next((region for region in attempts if isinstance(region, Region)), None)
    if model is None:
        raise _both(*(error for error in attempts if isinstance(error, FarrierError)))
    return [
        attempt
        if isinstance(attempt, Region)
        else _failing(model, attempt.message, origin, builder)
        for attempt in attempts
    ]


def _of_one_form(regions: Sequence[Region], origin: str, builder: Builder) -> list[Region]:
    """Return the two regions. If their results differ in rank or dtype, and exactly one of the
    regions has no nodes (its results are values from outside), the types of the results must be
    those of this region. The other region is then replaced by a region that ends the run with an
    error."""
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
    failing = _failing(kept, f"it returns {shapes}, and the other branch does not", origin, builder)
    return [kept, failing] if place == 0 else [failing, kept]


def _attempted(build: Build, builder: Builder) -> Region | FarrierError:
    try:
        return branch(builder, build)
    except UNFIT as error:
        return error


def _both(then: FarrierError, other: FarrierError) -> FarrierError:
    """Return the first branch's error, with the message of the second branch's error added."""
    message = f"{then.message}; and in the other branch, {other.message}"
    if isinstance(then, UnresolvedShapeError):
        return UnresolvedShapeError(message, hint=then.hint, deciding=then.deciding)
    return type(then)(message, hint=then.hint)


def _failing(model: Region, reason: str, origin: str, builder: Builder) -> Region:
    """Return a region that ends the run with an error for the given `reason`. Its outputs have the
    types of the outputs of the region `model`, where the data-dependent extents that `model`
    defines are replaced by their upper bounds."""
    inside = defined_in(builder, model)
    values = tuple(
        builder.values.define(
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


def _in_one_shape(regions: Sequence[Region], builder: Builder) -> list[list[Value]]:
    """Return the output tensors of each of the two branches. If the shapes of two corresponding
    outputs are equal at the sizes for which one branch was built, the tensor of that branch is
    viewed in the shape of the other."""
    outputs = [[v for entry in region.outputs for v in tensors_of(entry)] for region in regions]
    for region, mine, others in zip(regions, outputs, reversed(outputs), strict=True):
        for place, (value, other) in enumerate(zip(mine, others, strict=False)):
            if region.in_shape(other.type.shape) == region.in_shape(value.type.shape):
                mine[place] = builder.values.shaped(value, other.type.shape, region.body)
    return outputs


class _Joins:
    """The results of a conditional, from the results of both branches. An extent that differs
    between the branches becomes a new data-dependent symbol, whose upper bound must not contain
    symbols that the branches define (`inside`)."""

    def __init__(self, builder: Builder, inside: frozenset[str]) -> None:
        self._builder = builder
        self._inside = inside
        self._known: dict[tuple[Extent, Extent], Extent] = {}

    def result(self, then: Value, otherwise: Value) -> Value:
        left, right = then.type, otherwise.type
        if left.dtype is not right.dtype:
            raise Mismatch(f"one branch returns {left.dtype}, the other {right.dtype}")
        if left.rank != right.rank:
            raise NotStatic(f"one branch returns the shape {left.shape}, the other {right.shape}")
        shape = tuple(map(self._extent, left.shape, right.shape))
        return self._builder.values.define(TensorType(left.dtype, shape))

    def _extent(self, then: Extent, otherwise: Extent) -> Extent:
        if then == otherwise:
            return then
        if (then, otherwise) not in self._known:
            most = (upper(e, lambda s: s.name not in self._inside) for e in (then, otherwise))
            self._known[then, otherwise] = self._builder.counted(maximum(*most))
        return self._known[then, otherwise]


def _entries(forms: Iterable[Form], values: Iterable[Value]) -> list[Entry]:
    rest = iter(values)
    return [entry_of(form, rest) for form in forms]
