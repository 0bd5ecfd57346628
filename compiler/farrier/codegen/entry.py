"""The driver of a whole model: one entry point that calls the kernels in order.

i32 @farrier_entry(ptr %args, ptr %pool)        args = inputs…, outputs…, params, workspace
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias, assert_never

ENTRY = "farrier_entry"


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """The model's input `number`."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """The model's output `number`."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Params:
    """The model's packed constants."""


@dataclasses.dataclass(frozen=True, slots=True)
class Workspace:
    """Memory for intermediate values and the kernels' scratch."""


Segment: TypeAlias = Input | Output | Params | Workspace


@dataclasses.dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a kernel: for each argument the segment it lies in, and the offset in bytes."""

    function: str
    args: tuple[tuple[Segment, int], ...]


def emit_entry(calls: Sequence[KernelCall], inputs: int, outputs: int, name: str = ENTRY) -> str:
    """A module with the entry point, the kernels it calls being declared.

    It returns the first non-zero code of a kernel, and 0 when all have run.
    """
    lines: list[str] = []
    bases = _Bases(inputs, outputs, lines)
    for number, call in enumerate(calls):
        lines.append(f"  %args{number} = alloca [{max(len(call.args), 1)} x ptr], align 8")
    code: list[str] = []
    for number, call in enumerate(calls):
        code.extend(_call(number, call, bases))
    declared = sorted({call.function for call in calls})
    return "\n".join(
        [
            f"define i32 @{name}(ptr %args, ptr %pool) nounwind {{",
            "entry:",
            *lines,
            *code,
            "  ret i32 0",
            "}",
            *(f"declare i32 @{function}(ptr, ptr)" for function in declared),
            "",
        ]
    )


def position_of(segment: Segment, inputs: int, outputs: int) -> int:
    """Which argument of the entry a segment is."""
    match segment:
        case Input(number):
            return number
        case Output(number):
            return inputs + number
        case Params():
            return inputs + outputs
        case Workspace():
            return inputs + outputs + 1
        case _:
            assert_never(segment)


class _Bases:
    """The pointer to each segment, loaded where the entry begins."""

    def __init__(self, inputs: int, outputs: int, lines: list[str]) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._lines = lines
        self._loaded: set[int] = set()

    def name(self, segment: Segment) -> str:
        position = position_of(segment, self._inputs, self._outputs)
        if position not in self._loaded:
            self._loaded.add(position)
            self._lines.append(f"  %at{position} = getelementptr ptr, ptr %args, i64 {position}")
            self._lines.append(f"  %base{position} = load ptr, ptr %at{position}, align 8")
        return f"%base{position}"


def _call(number: int, call: KernelCall, bases: _Bases) -> list[str]:
    """Fills the argument array, calls, and leaves on a failure."""
    code = []
    for position, (segment, offset) in enumerate(call.args):
        value, slot = bases.name(segment), f"%slot{number}.{position}"
        if offset:
            code.append(f"  %arg{number}.{position} = getelementptr i8, ptr {value}, i64 {offset}")
            value = f"%arg{number}.{position}"
        code.append(f"  {slot} = getelementptr ptr, ptr %args{number}, i64 {position}")
        code.append(f"  store ptr {value}, ptr {slot}, align 8")
    return [
        *code,
        f"  %code{number} = call i32 @{call.function}(ptr %args{number}, ptr %pool)",
        f"  %failed{number} = icmp ne i32 %code{number}, 0",
        f"  br i1 %failed{number}, label %fail{number}, label %next{number}",
        f"fail{number}:",
        f"  ret i32 %code{number}",
        f"next{number}:",
    ]
