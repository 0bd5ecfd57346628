"""The control-flow operators If, Loop and Scan (`ir/control.py`): type checks and execution in
numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from farrier.ir.control import FAIL, If, Loop, grown, joined
from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import DType, TensorType
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Kind,
    Mismatch,
    NotStatic,
    Operator,
    Types,
)

Run = Callable[[Graph, Mapping[str, Array]], dict[str, Array]]


def check_control(node: Node) -> None:
    """Check the types of a node against those of its regions; raises Mismatch."""
    if node.op == "If":
        if len(node.regions) != 2:
            raise Mismatch(f"has {len(node.regions)} regions, not two")
        _check_if(If.of(node))
    else:
        if len(node.regions) != 1:
            raise Mismatch(f"has {len(node.regions)} regions, not one")
        _check_loop(Loop.of(node))


def _check_if(node: If) -> None:
    _check_scalar("condition", node.condition, DType.BOOL)
    for branch in node.branches:
        _check_same(f"captures of {branch.name}", node.captured, branch.inputs)
        _check_alike(f"results of {branch.name}", node.results, branch.outputs)
    try:
        joined(node)
    except ValueError as error:
        raise Mismatch(str(error)) from error


def _check_loop(node: Loop) -> None:
    for what, value, dtype in (
        ("trip count", node.trips, DType.I64),
        ("iteration", node.iteration, DType.I64),
        ("condition", node.condition, DType.BOOL),
        ("body's condition", node.again, DType.BOOL),
    ):
        if value is not None:
            _check_scalar(what, value, dtype)
    _check_alike("carried values", node.carried, node.current)
    _check_alike("carried results", node.carried, node.next)
    _check_alike("results", node.carried, node.results)
    try:
        grown(node)
    except ValueError as error:
        raise Mismatch(str(error)) from error
    _check_same("captures", node.captured, node.seen)
    for what, wholes, parts in (
        ("scanned values", node.scanned, node.slices),
        ("stacked results", node.stacks, node.parts),
    ):
        slices = [TensorType(value.type.dtype, value.type.shape[1:]) for value in wholes]
        if slices != [value.type for value in parts]:
            raise Mismatch(f"its {what} have not the slices that its body has")


def _check_scalar(what: str, value: Value, dtype: DType) -> None:
    if value.type.dtype is not dtype or value.type.shape not in ((), (1,)):
        raise Mismatch(f"its {what} {value.name} is no {dtype} scalar")


def _check_same(what: str, outside: Sequence[Value], inside: Sequence[Value]) -> None:
    if [value.type for value in outside] != [value.type for value in inside]:
        raise Mismatch(f"its {what} are typed otherwise inside")


def _check_alike(what: str, outside: Sequence[Value], inside: Sequence[Value]) -> None:
    """Raise Mismatch unless the values `outside` of a region and `inside` of it have the same
    dtypes and ranks. Extents may differ, because a symbol inside can denote an extent outside."""
    kinds = [[(v.type.dtype, v.type.rank) for v in values] for values in (outside, inside)]
    if kinds[0] != kinds[1]:
        raise Mismatch(f"its {what} are typed otherwise inside")


def run_control(node: Node, arrays: Arrays, run: Run) -> tuple[Array, ...]:
    """Return the outputs of an If or a Loop. `run(graph, inputs)` executes one of its regions."""
    if node.op == "If":
        condition, *captured = (array for array in arrays if array is not None)
        branch = node.regions[0 if condition.reshape(-1)[0] else 1]
        names = (value.name for value in branch.inputs)
        results = run(branch, dict(zip(names, captured, strict=True)))
        return tuple(results[value.name] for value in branch.outputs)
    return _run_loop(Loop.of(node), arrays, run)


def _run_loop(loop: Loop, arrays: Arrays, run: Run) -> tuple[Array, ...]:
    trips, condition, *others = arrays
    present = [array for array in others if array is not None]
    both = len(loop.carried) + len(loop.scanned)
    carried, scanned = present[: len(loop.carried)], present[len(loop.carried) : both]
    stacked: list[list[Array]] = [[] for _ in loop.parts]
    goes_on = condition is None or bool(condition.reshape(-1)[0])
    names = [value.name for value in loop.body.inputs]
    for iteration in _count(trips):
        if not goes_on:
            break
        number = np.full(loop.iteration.type.static_shape, iteration, np.int64)
        slices = [array[iteration] for array in scanned]
        inputs = dict(zip(names, (number, *carried, *slices, *present[both:]), strict=True))
        results = run(loop.body, inputs)
        if loop.again is not None:
            goes_on = bool(results[loop.again.name].reshape(-1)[0])
        carried = [results[value.name] for value in loop.next]
        for stack, part in zip(stacked, loop.parts, strict=True):
            stack.append(results[part.name])
    stacks = zip(stacked, loop.parts, strict=True)
    return (*carried, *(np.stack(s) if s else _no_parts(part.type) for s, part in stacks))


def _no_parts(part: TensorType) -> Array:
    """Return the stacked output of a loop without iterations: shape [0, *part.shape], where an
    extent that is not a number counts as 0.
    """
    extents = (extent if isinstance(extent, int) else 0 for extent in part.shape)
    return np.empty((0, *extents), part.dtype.numpy)


def _count(trips: Array | None) -> Iterator[int]:
    number = 0
    while trips is None or number < int(trips.reshape(-1)[0]):
        yield number
        number += 1


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    raise Mismatch("it has no regions")


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    raise Mismatch("it has no regions")


def _fail_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    raise NotStatic("its results have the types of those of the other branch", ())


def _fail_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    raise ValueError(str(attrs["reason"]))


OPERATORS: tuple[Operator, ...] = (
    Operator("If", Kind.CONTROL, _infer, _reference, None, frozenset({0})),
    Operator("Loop", Kind.CONTROL, _infer, _reference, None, frozenset({0, 1})),
    # Internal operator: it ends the run.
    Operator(FAIL, Kind.CONTROL, _fail_infer, _fail_reference, None),
)
