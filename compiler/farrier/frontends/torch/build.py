"""Convert an exported program, call by call, to nodes of the builder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from farrier.errors import FarrierError, InvalidModelError, UnsupportedOperatorError
from farrier.frontends.builder import Builder, Iteration, RawNode
from farrier.frontends.torch import aten as _  # noqa: F401 (it fills the table)
from farrier.frontends.torch.aliases import Aliases
from farrier.frontends.torch.interface import Interface
from farrier.frontends.torch.program import Call, Graph, Program, Ref
from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import VIEWS, rule_of
from farrier.ops import NotSupported

_NO_DIMS = np.empty(0, np.int64)
_HIGHER = {
    "higher_order.cond",
    "higher_order.scan",
    "higher_order.while_loop",
    "higher_order.wrap_with_set_grad_enabled",
}
_MOST_SHOWN = 50  # Unknown operators in a message.


def check_operators(program: Program) -> None:
    """Raise UnsupportedOperatorError with all operators for which no rule exists, and the user's
    source lines that call them."""
    unknown: dict[str, list[Call]] = {}
    for call in calls_in(program.graph):
        if rule_of(call.target) is None and call.target not in _HIGHER:
            unknown.setdefault(call.target, []).append(call)
    if unknown:
        lines = [
            f"{target} ×{len(calls)}" + (f" (first at {calls[0].line})" if calls[0].line else "")
            for target, calls in list(unknown.items())[:_MOST_SHOWN]
        ]
        raise UnsupportedOperatorError(
            f"{len(unknown)} operators are not supported: {', '.join(lines)}",
            hint="docs/pytorch.md lists what Farrier compiles; express the lines by other "
            "operators, or leave that part out of the module",
        )


def calls_in(graph: Graph) -> Iterator[Call]:
    """Yield the calls of a graph and of its nested graphs."""
    for call in graph.calls:
        yield call
        for argument in (*call.positional, *call.keywords.values()):
            if isinstance(argument, Graph):
                yield from calls_in(argument)


class Build:
    """One conversion of a program to nodes, with the values by name in the program's graph."""

    def __init__(
        self,
        b: Builder,
        program: Program,
        interface: Interface,
        weights: Mapping[str, Any],
    ) -> None:
        self._b, self._program, self._interface = b, program, interface
        self._weights = weights
        self.notices: list[str] = []
        self._values: dict[str, Any] = {}
        self._aliases = Aliases(self._values)

    def run(self) -> None:
        """Add all nodes, and make the program's results outputs of the builder."""
        tied: dict[Any, str] = {}
        for spec in self._program.inputs:
            if not isinstance(spec.value, Ref):
                continue
            name = spec.value.name
            if name in self._interface.inputs:
                self._values[name] = self._b.input(self._interface.inputs[name])
            elif spec.target:
                self._values[name] = self._weight(spec.target, tied)
        self._graph(self._program.graph)
        for output, value in self._interface.outputs():
            self._output(output, self._resolved(value))

    def _weight(self, target: str, tied: dict[Any, str]) -> str:
        array = self._weights[target]
        key = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
        if not array.size or key not in tied:
            tied[key] = self._b.constant(array)
        return tied[key]

    def _output(self, name: str, value: Any) -> None:
        if value is None:
            return
        if not isinstance(value, str):
            with self._b.at(RawNode("output", [], [], {}, name)):
                value = self._b.add("Reshape", value, self._b.constant(_NO_DIMS))
        self._b.output(name, value)

    def _graph(self, graph: Graph) -> list[Any]:
        for call in graph.calls:
            try:
                self._call(call, graph)
            except FarrierError as error:
                _add_line(error, call)
                raise
        return [self._resolved(value) for value in graph.outputs]

    def _call(self, call: Call, graph: Graph) -> None:
        match call.target:
            case "higher_order.cond":
                self._cond(call)
                return
            case "higher_order.while_loop":
                self._while(call)
                return
            case "higher_order.scan":
                self._scan(call)
                return
            case "higher_order.wrap_with_set_grad_enabled":
                _, body, *operands = call.positional
                self._define(call, self._inner(body, map(self._resolved, operands)))
                return
        entry = rule_of(call.target)
        if entry is None:
            raise UnsupportedOperatorError(f"the operator {call.target} is not supported")
        rule, name = entry
        metas = [graph.tensors.get(o) if isinstance(o, str) else None for o in call.outputs]
        scope = Scope(self._b, call, metas, self.notices)
        positional = [self._resolved(argument) for argument in call.positional]
        keywords = {key: self._resolved(value) for key, value in call.keywords.items()}
        with self._b.at(RawNode(call.target, [], [], {}, call.name)):
            results = rule(scope, *positional, **keywords)
        if name != call.target:
            self._written(call, scope, results)
            return
        self._define(call, results if isinstance(results, tuple) else (results,))
        if name in VIEWS:
            self._note_views(call, rule, scope)

    def _define(self, call: Call, results: Sequence[Any]) -> None:
        for output, result in zip(call.outputs, results, strict=False):
            if isinstance(output, tuple):
                self._values.update(zip(output, result, strict=True))
            elif output:
                self._values[output] = result

    def _written(self, call: Call, scope: Scope, result: Any) -> None:
        """Apply a call that writes in place: `result` becomes the new value of the call's first
        operand, and of all tensors that share its memory."""
        target = call.positional[0]
        if not isinstance(target, Ref) or not isinstance(result, str):
            raise NotSupported(f"{call.target} in place")
        before = self._values[target.name]
        with self._b.at(RawNode(call.target, [], [], {}, call.name)):
            result = scope.cast(result, self._b.dtype(before))
            if self._b.shape(result) != self._b.shape(before):
                result = scope.expand(result, self._b.shape(before))
            self._aliases.write(target.name, result, scope)
        if call.outputs and isinstance(call.outputs[0], str) and call.outputs[0]:
            self._values[call.outputs[0]] = result
            self._aliases.note(call.outputs[0], target.name, None)

    def _note_views(self, call: Call, rule: Any, scope: Scope) -> None:
        base = call.positional[0]
        if not isinstance(base, Ref):
            return
        arguments = [self._resolved(argument) for argument in call.positional[1:]]
        keywords = {key: self._resolved(value) for key, value in call.keywords.items()}
        for place, output in enumerate(call.outputs):
            for part, name in enumerate(output if isinstance(output, tuple) else (output,)):
                pick = part if isinstance(output, tuple) else None

                def again(x: str, pick: int | None = pick, place: int = place) -> str:
                    results = rule(scope, x, *arguments, **keywords)
                    return str(results if pick is None else results[pick])

                if name:
                    self._aliases.note(name, base.name, again, call.target, arguments)

    def _cond(self, call: Call) -> None:
        condition, then, otherwise, operands = call.positional

        def region(body: Graph) -> Any:
            return lambda: self._inner(body, map(self._resolved, operands))

        results = self._b.if_(
            self._resolved(condition), region(then), region(otherwise), origin=call.name
        )
        self._define_all(call, results)

    def _while(self, call: Call) -> None:
        """Add a loop that continues while a nested graph's condition on the carried tensors
        holds."""
        condition, body, carried, operands = call.positional
        first, more = self._tensors(call, carried), self._resolved(operands)

        def goes_on(values: Sequence[str]) -> str:
            (result,) = self._inner(condition, [*values, *more])
            with self._b.at(RawNode(call.target, [], [], {}, call.name)):
                return str(self._b.add("Reshape", result, self._b.constant(_NO_DIMS)))

        def iteration(number: str, values: Sequence[str], parts: Sequence[str]) -> Iteration:
            results = self._inner(body, [*values, *more])
            return Iteration(results, again=goes_on(results))

        results = self._b.loop(first, iteration, condition=goes_on(first), origin=call.name)
        self._define_all(call, results)

    def _scan(self, call: Call) -> None:
        """Add a loop over the slices of tensors along their first axis."""
        body, carried, scanned, operands = call.positional
        first, slices = self._tensors(call, carried), self._tensors(call, scanned)
        more = self._resolved(operands)

        def iteration(number: str, values: Sequence[str], parts: Sequence[str]) -> Iteration:
            results = self._inner(body, [*values, *parts, *more])
            return Iteration(results[: len(first)], results[len(first) :])

        with self._b.at(RawNode(call.target, [], [], {}, call.name)):
            length = self._b.add("Shape", slices[0], start=0, end=1)
            trips = self._b.add("Reshape", length, self._b.constant(_NO_DIMS))
        results = self._b.loop(first, iteration, trips=trips, scanned=slices, origin=call.name)
        self._define_all(call, results)

    def _tensors(self, call: Call, values: Any) -> list[str]:
        """Return the values that a loop carries or scans. Raises UnsupportedOperatorError unless
        all are tensors."""
        resolved: list[str] = self._resolved(list(values))
        if not resolved or not all(isinstance(value, str) for value in resolved):
            raise UnsupportedOperatorError(
                f"{call.target} of numbers, or of no tensors, is not supported",
                hint="carry tensors of no dimensions in the place of numbers",
            )
        return resolved

    def _define_all(self, call: Call, results: Sequence[Any]) -> None:
        is_list = bool(call.outputs) and isinstance(call.outputs[0], tuple)
        self._define(call, [results] if is_list else results)

    def _inner(self, body: Graph, operands: Iterable[Any]) -> list[Any]:
        """Add the nodes of a nested graph whose inputs are `operands`, and return its outputs."""
        arguments = list(operands)
        names = [argument.name for argument in body.inputs if isinstance(argument, Ref)]
        outside, aliases = self._values, self._aliases
        self._values = dict(zip(names, arguments, strict=True))
        self._aliases = Aliases(self._values)
        try:
            return self._graph(body)
        finally:
            self._values, self._aliases = outside, aliases

    def _resolved(self, argument: Any) -> Any:
        if isinstance(argument, list):
            return [self._resolved(item) for item in argument]
        if not isinstance(argument, Ref):
            return argument
        if argument.name not in self._values:
            raise InvalidModelError(
                f"nothing defines the value {argument.name!r} of the .pt2 file's graph",
                hint='save it again with torch.export.save(exported_program, "model.pt2")',
            )
        return self._values[argument.name]


def _add_line(error: FarrierError, call: Call) -> None:
    """Append the user's source line to an error's message, unless it is already there."""
    line = call.line
    if line and "\n" not in line and f" at {line}" not in error.message:
        error.message = f"{error.message}, at {line}"
        error.args = (error.message,)
