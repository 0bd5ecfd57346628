"""Rules of variables, conditionals and loops, which call other subgraphs."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.frontends.builder import Builder, Iteration
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.variables import assigned, handle
from farrier.ops import Mismatch


def _handle(call: Call, b: Builder) -> str:
    """Convert VAR_HANDLE: a handle is represented by the variable's name."""
    return handle(call.operator)


def _read(call: Call, b: Builder) -> str:
    return call.scope.present.read(call.value(0))


def _assign(call: Call, b: Builder) -> Sequence[str]:
    call.scope.present.values[call.value(0)] = call.value(1)
    return ()


def _call_once(call: Call, b: Builder) -> Sequence[str]:
    """Convert CALL_ONCE to nothing: `build` has already added the initial values of variables."""
    return ()


def _if(call: Call, b: Builder) -> Sequence[str]:
    """Convert IF to a conditional. Variables that a branch assigns become additional results."""
    condition, *arguments = call.values()
    scope, branches = call.scope, [int(call.option(name)) for name in ("then", "else")]
    names = sorted(set().union(*(assigned(scope.model, index) for index in branches)))

    def build(index: int) -> list[str]:
        inner = scope.inner(index)
        results = inner.run(arguments)
        return [*results, *map(inner.present.read, names)]

    results = b.if_(
        b.add("Reshape", condition, []),
        lambda: build(branches[0]),
        lambda: build(branches[1]),
        origin=b.at_hand.origin,
    )
    return _with_variables(call, results, names)


def _while(call: Call, b: Builder) -> Sequence[str]:
    """Convert WHILE to a loop. Its condition and body are subgraphs; variables that they assign are
    carried."""
    arguments, scope = call.values(), call.scope
    condition, body = int(call.option("condition")), int(call.option("body"))
    names = sorted(assigned(scope.model, body))
    count = len(arguments)

    def goes_on(values: Sequence[str]) -> str:
        (result,) = scope.inner(condition).run(values[:count])
        return b.add("Reshape", result, [])

    def build(number: str, carried: Sequence[str], _: Sequence[str]) -> Iteration:
        inner = scope.inner(body)
        inner.present.values.update(zip(names, carried[count:], strict=True))
        results = [*inner.run(carried[:count]), *map(inner.present.read, names)]
        return Iteration(results, again=goes_on(results))

    if len(call.outputs) != count:
        raise Mismatch(f"it takes {count} values and returns {len(call.outputs)}")
    first = [*arguments, *map(scope.present.read, names)]
    origin = b.at_hand.origin
    results = b.loop(first, build, condition=goes_on(first), origin=origin)
    return _with_variables(call, results, names)


def _with_variables(call: Call, results: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """Make the last results the current values of the variables `names`, and return the other
    results."""
    count = len(results) - len(names)
    call.scope.present.values.update(zip(names, results[count:], strict=True))
    return results[:count]


RULES: dict[str, Rule] = {
    "ASSIGN_VARIABLE": _assign,
    "CALL_ONCE": _call_once,
    "IF": _if,
    "READ_VARIABLE": _read,
    "VAR_HANDLE": _handle,
    "WHILE": _while,
}
