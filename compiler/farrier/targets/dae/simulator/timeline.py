"""The timeline of a program as events of Chrome's trace format, with a lane for loads, products,
operations on sums, and stores. Before each instruction, an event shows what its module waited for.

    load   [input 0][waits for compute][input 1]…
    gemm            [waits for load   ][gemm    ]…
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from farrier.targets.dae.instructions import Alu, Instruction, Kind, Module, Pad
from farrier.targets.dae.program import Program
from farrier.targets.dae.simulator.timed import Event, simulate
from farrier.targets.dae.tokens import pops_and_pushes

LANES = ("load", "gemm", "alu", "store")
STALL = "stall"
_LANE = {Kind.LOAD: 0, Kind.GEMM: 1, Kind.ALU: 2, Kind.STORE: 3, Kind.FINISH: 2}


def trace(program: Program) -> list[dict[str, Any]]:
    """Return the events of a program that begins at time 0, ordered by their start. Times are in
    microseconds of the accelerator's clock; the arguments of an event include its cycles."""
    timing = simulate(program.instructions, program.accelerator)
    events: list[dict[str, Any]] = []
    for event, (cause, since) in zip(
        timing.events, _stalls(program.instructions, timing.events), strict=True
    ):
        instruction = program.instructions[event.number]
        lane = _LANE[instruction.kind]
        if cause:
            events.append(_event(cause, STALL, lane, since, event.begin, program))
        named = _event(_name(instruction), LANES[lane], lane, event.begin, event.end, program)
        named["args"] |= {"number": event.number, "instruction": str(instruction)}
        events.append(named)
    return sorted(events, key=lambda each: (each["ts"], each["tid"]))


def _event(
    name: str, category: str, lane: int, begin: int, end: int, program: Program
) -> dict[str, Any]:
    mhz = program.accelerator.mhz
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "tid": lane,
        "ts": begin / mhz,
        "dur": (end - begin) / mhz,
        "args": {"begin": begin, "cycles": end - begin},
    }


def _name(instruction: Instruction) -> str:
    match instruction.kind:
        case Kind.LOAD:
            return Pad(instruction["pad"]).name.lower()
        case Kind.ALU:
            return Alu(instruction["operation"]).name.lower()
    return instruction.kind.name.lower()


def _stalls(
    instructions: Sequence[Instruction], events: Sequence[Event]
) -> Iterator[tuple[str, int]]:
    """Yield for each event the reason why its module was idle before it ("" if it was not), and the
    start of the idle time. The nth pop of a token queue waits for the end of the instruction with
    its nth push."""
    pushed: dict[tuple[int, int], list[int]] = defaultdict(list)
    for event in sorted(events, key=lambda each: (each.module, each.number)):
        for queue in pops_and_pushes(instructions[event.number])[1]:
            pushed[queue].append(event.end)
    popped: dict[tuple[int, int], int] = defaultdict(int)
    free = dict.fromkeys(Module, 0)
    for event in events:
        cause, since = "", free[event.module]
        for queue in pops_and_pushes(instructions[event.number])[0]:
            if pushed[queue][popped[queue]] == event.begin:
                cause = f"waits for {Module(queue[0]).name.lower()}"
            popped[queue] += 1
        if event.begin > since:
            yield cause or "waits for its command or for room for a token", since
        else:
            yield "", since
        free[event.module] = event.end
