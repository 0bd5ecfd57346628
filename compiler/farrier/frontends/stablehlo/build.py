"""Convert a StableHLO module, operation by operation, to nodes of the builder."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from farrier.errors import FarrierError, InvalidModelError, UnsupportedOperatorError
from farrier.frontends.builder import Iteration, RawNode
from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.stablehlo import ops as rules  # noqa: F401 (it fills the table)
from farrier.frontends.stablehlo.interface import Interface
from farrier.frontends.stablehlo.module import Block, Function, Module, Operation, Symbol
from farrier.frontends.stablehlo.scope import Scope, Value
from farrier.frontends.stablehlo.table import RULES
from farrier.frontends.stablehlo.text import HINT
from farrier.ir.types import DType

_CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}
_REGIONS = {"stablehlo.while", "stablehlo.case", "stablehlo.if"}
_RETURNS = {"stablehlo.return", "func.return"}
_CUSTOM = "stablehlo.custom_call"
_ASSERTION = "shape_assertion"  # What it states follows from the shapes of inputs.
# Custom calls that return their operands: they place tensors on devices.
_IDENTITIES = {
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
}
_MOST_SHOWN = 50  # Unknown operations in a message.
_MOST_CALLS = 64  # Functions that call each other.

Values = collections.ChainMap[str, Value]


def check_operations(module: Module) -> None:
    """Raise UnsupportedOperatorError with all operations for which no rule exists, and the user's
    source lines that they come from."""
    unknown: dict[str, list[Operation]] = {}
    for operation in operations_in(module):
        if reason_of(operation):
            unknown.setdefault(name_of(operation), []).append(operation)
    if unknown:
        lines = [
            f"{name} ×{len(each)}" + (f" (first at {each[0].line})" if each[0].line else "")
            for name, each in list(unknown.items())[:_MOST_SHOWN]
        ]
        raise UnsupportedOperatorError(
            f"{len(unknown)} operations are not supported: {', '.join(lines)}",
            hint="docs/jax.md lists what Farrier compiles; express the lines by other operations",
        )


def operations_in(module: Module) -> Iterator[Operation]:
    """Yield the operations in functions that `main` calls directly or indirectly, each function
    once. Bodies of reductions and sorts, which are functions of single elements, are not included.
    """
    seen: set[str] = set()
    waiting = ["main"]
    while waiting:
        function = _function(module, waiting.pop())
        if function.name in seen:
            continue
        seen.add(function.name)
        for operation in _run_in(function.body):
            if callee := _callee(operation):
                waiting.append(callee)
            else:
                yield operation


def _run_in(block: Block) -> Iterator[Operation]:
    for operation in block.operations:
        if operation.name in _RETURNS:
            continue
        yield operation
        if operation.name in _REGIONS:
            for region in operation.regions:
                yield from _run_in(region)


def _callee(operation: Operation) -> str:
    """Return the name of the function that an operation calls, or "" if it is not a call. A
    composite operation calls its decomposition, unless there is a rule for it. Raises
    InvalidModelError for a call without a function."""
    key = _CALLS.get(operation.name)
    if key is None or _composite(operation) in RULES:
        return ""
    symbol = operation.attrs.get(key)
    if not isinstance(symbol, Symbol):
        raise InvalidModelError(f"{operation.name} names no function", hint=HINT)
    return symbol.name


def _composite(operation: Operation) -> str:
    return str(operation.attrs.get("name", "")) if operation.name == "stablehlo.composite" else ""


def _function(module: Module, name: str) -> Function:
    if name not in module.functions:
        raise InvalidModelError(f"the StableHLO module has no function {name}", hint=HINT)
    return module.functions[name]


def name_of(operation: Operation) -> str:
    """Return the name of an operation for messages; for a custom call, the name of its target."""
    if operation.name == _CUSTOM:
        return f"custom_call @{operation.attrs.get('call_target_name', '')}"
    return operation.name


def reason_of(operation: Operation) -> str:
    """Return the reason why an operation cannot be compiled, or "" if it can."""
    if operation.name == _CUSTOM:
        target = operation.attrs.get("call_target_name")
        has_rule = target == _ASSERTION or target in _IDENTITIES
    else:
        has_rule = operation.name in {*RULES, *_REGIONS} or _composite(operation) in RULES
    return "" if has_rule else f"Farrier has no operation {name_of(operation)}"


class Build:
    """One conversion of a module to nodes. Called functions are inlined."""

    def __init__(self, b: ImageBuilder, module: Module, interface: Interface) -> None:
        self._b, self._module, self._interface = b, module, interface
        self._depth = 0

    def run(self) -> None:
        """Add all nodes, and make the main function's results outputs of the builder."""
        inputs = [self._b.input(name) for name in self._interface.inputs]
        results = self._called("main", inputs)
        for name, value in zip(self._interface.outputs, results, strict=True):
            with self._b.at(RawNode("output", [], [], {}, name)):
                full = self._scope(self._module.main.body.operations[-1]).full(value)
            self._b.output(name, full)

    def _called(self, name: str, arguments: Sequence[Value]) -> list[Value]:
        function = _function(self._module, name)
        self._depth += 1
        if self._depth > _MOST_CALLS:
            raise InvalidModelError(f"the function {name} calls itself", hint=HINT)
        try:
            return self._block(function.body, arguments, collections.ChainMap())
        finally:
            self._depth -= 1

    def _block(self, block: Block, arguments: Sequence[Value], around: Values) -> list[Value]:
        values = around.new_child()
        names = [name for name, _, _ in block.arguments]
        if len(names) != len(arguments):
            raise InvalidModelError(
                f"a function of {len(names)} arguments is called with {len(arguments)}", hint=HINT
            )
        values.update(zip(names, arguments, strict=True))
        for operation in block.operations:
            if operation.name in _RETURNS:
                return [_value(values, name) for name in operation.operands]
            try:
                results = self._results(operation, values)
            except FarrierError as error:
                _add_line(error, operation)
                raise
            values.update(zip(operation.results, results, strict=True))
        raise InvalidModelError("a function of the StableHLO module does not return", hint=HINT)

    def _results(self, operation: Operation, values: Values) -> Sequence[Value]:
        operands = [_value(values, name) for name in operation.operands]
        if callee := _callee(operation):
            return self._called(callee, operands)
        if operation.name == _CUSTOM:
            return operands if operation.results else []
        if operation.name == "stablehlo.while":
            return self._while(operation, operands, values)
        if operation.name in _REGIONS:
            return self._case(operation, operands[0], values)
        entry = RULES[_composite(operation) or operation.name]
        scope = self._scope(operation)
        with self._b.at(RawNode(operation.name, [], [], {}, scope.origin)):
            if not entry.takes_spreads:
                operands = [scope.full(each) for each in operands]
            results = entry.rule(scope, *operands)
        return results if isinstance(results, tuple) else (results,)

    def _scope(self, operation: Operation) -> Scope:
        result = operation.results[0] if operation.results else ""
        attrs = operation.attrs.get("composite_attributes")
        if isinstance(attrs, dict):
            operation = _with_attrs(operation, attrs)
        return Scope(self._b, operation, operation.line or result)

    # Control flow --------------------------------------------------------------------------------

    def _full(self, operation: Operation, values: Sequence[Value]) -> list[str]:
        scope = self._scope(operation)
        with self._b.at(RawNode(operation.name, [], [], {}, scope.origin)):
            return [scope.full(each) for each in values]

    def _while(
        self, operation: Operation, operands: Sequence[Value], values: Values
    ) -> Sequence[Value]:
        condition, body = operation.regions
        start = self._full(operation, operands)
        origin = self._scope(operation).origin

        def again(carried: Sequence[str]) -> str:
            return self._full(operation, self._block(condition, carried, values))[0]

        def iteration(_: str, carried: Sequence[str], __: Sequence[str]) -> Iteration:
            after = self._full(operation, self._block(body, carried, values))
            return Iteration(after, (), again(after))

        return self._b.loop(start, iteration, condition=again(start), origin=origin)

    def _case(self, operation: Operation, index: Value, values: Values) -> Sequence[Value]:
        [name] = self._full(operation, [index])
        regions = list(operation.regions)
        if self._b.dtype(name) is DType.BOOL:  # `if` has the branch for true first.
            return self._either(operation, name, regions[0], regions[1:], values)
        return self._branch(operation, name, 0, values)

    def _branch(
        self, operation: Operation, index: str, place: int, values: Values
    ) -> Sequence[Value]:
        """Return the results of a case operation whose branches before number `place` were not
        selected. The other branches become a chain of conditionals that compare `index` with each
        number; the last branch is also selected by an index out of range."""
        regions = operation.regions[place:]
        if len(regions) == 1:
            return self._full(operation, self._block(regions[0], [], values))
        scope = self._scope(operation)
        this = self._b.constant(np.array(place).astype(self._b.dtype(index).numpy))
        (chosen,) = self._b.node("Equal", [index, this], origin=scope.origin, selects=True)
        return self._b.if_(
            chosen,
            lambda: self._full(operation, self._block(regions[0], [], values)),
            lambda: [str(each) for each in self._branch(operation, index, place + 1, values)],
            origin=scope.origin,
        )

    def _either(
        self,
        operation: Operation,
        condition: str,
        then: Block,
        otherwise: Sequence[Block],
        values: Values,
    ) -> Sequence[Value]:
        return self._b.if_(
            condition,
            lambda: self._full(operation, self._block(then, [], values)),
            lambda: self._full(operation, self._block(otherwise[0], [], values)),
            origin=self._scope(operation).origin,
        )


def _value(values: Mapping[str, Value], name: str) -> Value:
    if name not in values:
        raise InvalidModelError(f"nothing defines the value {name} of the module", hint=HINT)
    return values[name]


def _with_attrs(operation: Operation, attrs: Mapping[str, object]) -> Operation:
    return Operation(
        operation.name,
        operation.operands,
        operation.results,
        {**operation.attrs, **attrs},
        operation.regions,
        operation.type,
        operation.line,
    )


def _add_line(error: FarrierError, operation: Operation) -> None:
    """Append the user's source line to an error's message, unless it is already there."""
    line = operation.line
    if line and line not in error.message:
        error.message = f"{error.message}, at {line}"
        error.args = (error.message,)
