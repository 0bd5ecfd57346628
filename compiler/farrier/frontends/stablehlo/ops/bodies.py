"""Recognize the functions in regions of reductions, scatters and sorts."""

from __future__ import annotations

from farrier.frontends.stablehlo.module import Block, Operation
from farrier.frontends.stablehlo.scope import Scope
from farrier.ops import NotSupported

_SHOWN = 8  # Operations of a body in a message.


def combined_by(s: Scope, region: Block, first: str, second: str, result: str) -> str:
    """Return the name of the operation with which a region computes `result` from `first` and
    `second`, such as `add`. Return "" if `result` is `second` itself. Raises NotSupported for any
    other function."""
    if result == second:
        return ""
    for operation in region.operations:
        if result in operation.results and set(operation.operands) == {first, second}:
            return operation.name.removeprefix("stablehlo.")
    raise unknown(s, region)


def unknown(s: Scope, region: Block) -> NotSupported:
    """Return the error for a region whose function no operator computes."""
    names = [operation.name.removeprefix("stablehlo.") for operation in region.operations[:-1]]
    return NotSupported(f"{s.operation.name} by {', '.join(names[:_SHOWN]) or 'an argument'}")


def definitions(region: Block) -> dict[str, Operation]:
    """Return a map from each value to the operation that computes it."""
    return {name: operation for operation in region.operations for name in operation.results}


def argument_of(region: Block, value: str) -> str:
    """Return the argument of the region that is the operand `value` of a comparison, or "" if it is
    not an argument. Before a comparison of floats, JAX normalizes NaN and zeros by selects; these
    are skipped."""
    arguments = [name for name, _, _ in region.arguments]
    made_by = definitions(region)
    for _ in range(_SHOWN):
        if value in arguments:
            return value
        operation = made_by.get(value)
        if operation is None or operation.name != "stablehlo.select":
            return ""
        value = operation.operands[2]
    return ""


def direction_of(operation: Operation) -> str:
    """Return the direction of a comparison, such as LT, or "" if the operation is not a
    comparison."""
    if operation.name != "stablehlo.compare":
        return ""
    return str(operation.attrs["comparison_direction"].text)
