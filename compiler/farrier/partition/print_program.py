"""Print driver programs as text for people to read.

driver(x: f32[1, 4]):
    w: f32[4, 8] in frame = constant
    x@frame lies in frame
    copy(x -> x@frame)
    launch[frame] dense_a1(x@frame, w) -> h
    copy(h -> h@host)
    wait(frame)
    if c:
        call relu_b2(h@host) -> y
    else:
        fail("no such branch")
    for i in repeat(n, while=c, again=d):
        carry s from a, next t
        slice p of whole, written
        call step_c3(s, p) -> t, d
    return y
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from farrier.ir.graph import Value
from farrier.ir.printer import print_type
from farrier.partition.program import (
    Bind,
    Branch,
    Call,
    Copy,
    DriverProgram,
    Fail,
    Launch,
    Repeat,
    Shape,
    Step,
    Wait,
)
from farrier_device.program import HOST

_INDENT = "    "


def print_driver(program: DriverProgram) -> str:
    """Return a driver program as text."""
    inputs = ", ".join(f"{value.name}: {print_type(value.type)}" for value in program.inputs)
    lines = [f"driver({inputs}):"]
    for constant in program.constants:
        value = constant.value
        space = "" if program.space(value) == HOST else f" in {program.space(value)}"
        lines.append(f"{_INDENT}{value.name}: {print_type(value.type)}{space} = constant")
    constants = {constant.value.name for constant in program.constants}
    for name, space in program.spaces.items():
        if name not in constants:
            lines.append(f"{_INDENT}{name} lies in {space}")
    for name, home in program.homes.items():
        behind = "" if home.offset == 0 else f" + {home.offset}"
        lines.append(f"{_INDENT}{name} lies at {home.name}{behind}")
    lines += _steps(program.steps, _INDENT)
    lines.append(f"{_INDENT}return {_names(program.outputs)}")
    return "\n".join(lines) + "\n"


def print_step(step: Step) -> str:
    """Return the first line of a step as text, for use in error messages."""
    return next(_steps((step,), "")).removesuffix(":")


def _steps(steps: Iterable[Step], indent: str) -> Iterator[str]:
    inner = indent + _INDENT
    for step in steps:
        match step:
            case Call():
                yield f"{indent}call {_call(step)}"
            case Launch(call, space, shapes):
                yield f"{indent}launch[{space}] {_call(call)}{''.join(map(_shape, shapes))}"
            case Copy(source, target):
                yield f"{indent}copy({source.name} -> {target.name})"
            case Wait(space):
                yield f"{indent}wait({space})"
            case Bind():
                verb = f"check[{step.demands}]" if step.is_check else "bind"
                yield f"{indent}{verb} {step.value.name}: {_listed(step.extents)}"
            case Fail():
                yield f"{indent}fail({step.reason!r})"
            case Branch():
                yield f"{indent}if {step.condition.name}:"
                yield from _steps(step.then, inner)
                yield f"{indent}else:"
                yield from _steps(step.otherwise, inner)
                for joined in step.joined:
                    sides = f"{joined.then} | {joined.otherwise}"
                    yield f"{indent}size {joined.symbol} = {sides}"
            case Repeat():
                yield from _repeat(step, indent)


def _shape(shape: Shape) -> str:
    entry = f" {shape.entry}" if shape.entry else ""
    if not shape.grid and not shape.block:
        return entry
    return f"{entry} grid ({_listed(shape.grid)}) block ({_listed(shape.block)})"


def _call(call: Call) -> str:
    sizes = f" sizes ({_listed(call.dims)})" if call.dims else ""
    needed = f" unless 0 in ({_listed(call.needed)})" if call.needed else ""
    count = f" count {call.count}" if call.count else ""
    return f"{call.task}({_names(call.inputs)}) -> {_names(call.outputs)}{sizes}{needed}{count}"


def _repeat(step: Repeat, indent: str) -> Iterator[str]:
    inner = indent + _INDENT
    trips = step.trips.name if isinstance(step.trips, Value) else step.trips
    parts = [] if trips is None else [str(trips)]
    for word, value in (("while", step.condition), ("again", step.again)):
        parts += [] if value is None else [f"{word}={value.name}"]
    count = "" if step.count is None else f" count {step.count}"
    yield f"{indent}for {step.iteration.name} in repeat({', '.join(parts)}){count}:"
    for carried in step.carried:
        names = carried.current.name, carried.initial.name, carried.next.name
        yield "{}carry {} from {}, next {}".format(inner, *names)
    for read in step.read:
        yield f"{inner}slice {read.slice.name} of {read.whole.name}"
    for written in step.written:
        yield f"{inner}slice {written.slice.name} of {written.whole.name}, written"
    yield from _steps(step.body, inner)
    for grown in step.grown:
        yield f"{inner}size {grown.symbol} = {grown.next}, at first {grown.initial}"
    for grown in step.grown:
        yield f"{indent}size {grown.result} = {grown.symbol}"


def _names(values: Iterable[Value]) -> str:
    return ", ".join(value.name for value in values)


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
