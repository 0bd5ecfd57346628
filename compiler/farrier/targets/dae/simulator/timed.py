"""The timing simulator, which computes the cycles of a program by discrete events in each module,
queue and the port to DRAM.

A module begins an instruction when the instruction has been fetched, the previous one has finished,
and its tokens are available; a load or store also waits for the port. Modules execute in order and
each instruction takes a fixed time, so the event times equal those of a cycle-by-cycle simulation:

    fetch     ceil(word / port) cycles per instruction, on a separate port, while the command
              queue of the instruction's module has room
    load      the port is busy for ceil(element / port) cycles per element, and the last element
              arrives `latency` cycles later; padding is written in cycles without an element
    gemm      one cycle per step of the matrix unit, and the unit's latency
    alu       ceil(sums / lanes) cycles per element, and the unit's latency; a step that replaces
              a sum for the second time waits until the first result is written, and one with
              another factor than the step before waits for a cycle in which that is read
    store     like a load

All other cycles are those in which the hardware (`rtl/`) decodes an instruction, reads its first
sum, or writes its last element. `rtl/lockstep.py` compares the timing with the hardware.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import (
    ALU_LOOPS,
    GEMM_LOOPS,
    Alu,
    Instruction,
    Kind,
    Module,
    Pad,
    word_bits,
)
from farrier.targets.dae.tokens import TokenError, bytes_of, pops_and_pushes, stored_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """The execution of an instruction, with the cycles in which it begins and ends."""

    number: int
    module: Module
    begin: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """The cycles of a program in total, the cycles in which each module was busy, and those in
    which the port was busy."""

    cycles: int
    busy: Mapping[Module, int]
    port: int
    events: Sequence[Event]

    @property
    def bound(self) -> int:
        """A lower bound of the cycles of any program with the same instructions: those of the
        busiest module or of the port."""
        return max(*self.busy.values(), self.port)


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """The cycles of an instruction, in three successive phases: `before` cycles until it requests
    the memory port, `port` cycles in which it uses the port, and `cycles` cycles after that. In
    total, it takes at least `least` cycles."""

    cycles: int
    port: int = 0
    before: int = 0
    least: int = 0


# Fixed latencies of the hardware in cycles, which a description cannot change.
_FETCHED = 1  # From the arrival of a word's last beat until its module has the word.
_DECODE = 1
_READ = 1  # A store reads its first sum.
_TAKE = 3  # A load takes a beat, writes an element, and is done.
_SETTLE = 2  # Sums that are loaded wait for a bank.
_ANSWER = 2  # A store takes the answer, and is done.


def work_of(instruction: Instruction, accelerator: Accelerator) -> Work:
    """Return the cycles that an instruction takes in its module, and those in which it uses the
    memory port."""
    match instruction.kind:
        case Kind.LOAD:
            return _load(instruction, accelerator)
        case Kind.STORE:
            port = _beats(instruction, stored_bytes(instruction, accelerator), accelerator)
            return Work(accelerator.port.latency + _ANSWER, port, _DECODE + _READ)
        case Kind.GEMM:
            return Work(_DECODE + _steps(instruction) + accelerator.matrix.latency)
        case Kind.ALU:
            latency = accelerator.vector.latency
            return Work(_DECODE + _steps_of_sums(instruction, accelerator) + latency)
    return Work(_DECODE + 1)


def _load(instruction: Instruction, accelerator: Accelerator) -> Work:
    pad = Pad(instruction["pad"])
    rows, columns = instruction["rows"], instruction["columns"]
    width = instruction["left"] + columns + instruction["right"]
    height = instruction["top"] + rows + instruction["bottom"]
    settles = _SETTLE if pad >= Pad.SUM else 0
    # Padding is gone through once, past all that lies within a row at a time.
    walk = width * height + rows if width * height > rows * columns else 0
    least = _DECODE + _TAKE + walk + settles
    port = _beats(instruction, bytes_of(pad, accelerator), accelerator)
    if not port:
        return Work(least)
    return Work(accelerator.port.latency + _TAKE + settles, port, _DECODE, least)


def _beats(instruction: Instruction, nbytes: int, accelerator: Accelerator) -> int:
    """Return the cycles in which the port transfers the elements of an instruction, each with
    `nbytes` bytes."""
    beats = -(-nbytes // accelerator.port.bytes)
    return instruction["rows"] * instruction["columns"] * beats


def _steps(instruction: Instruction) -> int:
    steps = 1
    for n in range(GEMM_LOOPS):
        steps *= max(1, instruction[f"count{n}"])
    return steps


def _steps_of_sums(instruction: Instruction, accelerator: Accelerator) -> int:
    """Return the cycles in which the vector unit issues the steps of an instruction."""
    sums = accelerator.matrix.batch * accelerator.matrix.outer
    cycles = -(-sums // accelerator.vector.lanes)
    again = accelerator.vector.latency + 1  # The cycles until a replaced sum can be read.
    reads_factors = int(instruction["operation"] == Alu.ACCUMULATE)
    reach = 0  # The distance from the first factor of the inner loops to their last one.
    for n in reversed(range(ALU_LOOPS)):
        count = max(1, instruction[f"count{n}"])
        stride = instruction[f"by{n}"]
        following = cycles + reads_factors * (stride != reach)
        if not instruction[f"to{n}"]:
            following = max(following, again)
        cycles += (count - 1) * following
        reach += (count - 1) * stride
    return cycles + reads_factors


def simulate(program: Sequence[Instruction], accelerator: Accelerator) -> Timing:
    """Return the timing of a program. Raises TokenError if it deadlocks."""
    return _Simulation(program, accelerator).run()


class _Next(NamedTuple):
    """An instruction that can begin. Instructions are ordered by the time at which they request the
    port; of two at the same time, the store comes first."""

    asks: int
    is_no_store: bool
    number: int
    begin: int
    module: Module


class _Simulation:
    def __init__(self, program: Sequence[Instruction], accelerator: Accelerator) -> None:
        self._program = program
        self._accelerator = accelerator
        self._work = [work_of(each, accelerator) for each in program]
        self._fetch = -(-word_bits(accelerator) // 8 // accelerator.port.bytes)
        self._queues: dict[Module, deque[tuple[int, int]]] = {m: deque() for m in Module}
        self._begun: dict[Module, list[int]] = {m: [] for m in Module}
        self._free = dict.fromkeys(Module, 0)
        self._busy = dict.fromkeys(Module, 0)
        self._tokens: dict[tuple[int, int], deque[int]] = {}
        # The times at which each token was popped.
        self._taken: dict[tuple[int, int], list[int]] = {}
        self._pushed: dict[tuple[int, int], int] = {}
        self._port_free = 0
        self._port_busy = 0
        self._fetched_at = 0
        self._fetched = 0  # Instructions.
        self._sent = dict.fromkeys(Module, 0)
        self._events: list[Event] = []

    def run(self) -> Timing:
        while len(self._events) < len(self._program):
            self._fill_queues()
            step = min(filter(None, map(self._next, Module)), default=None)
            if step is None:
                raise TokenError(self._stuck())
            self._run(step.begin, step.number, step.module)
        cycles = max(self._free.values())
        return Timing(cycles, self._busy, self._port_busy, self._events)

    def _fill_queues(self) -> None:
        """Fetch instructions while the command queues have room. Instruction n of a module enters
        the queue when instruction n - `commands` has left it."""
        depth = self._accelerator.queues.commands
        while self._fetched < len(self._program):
            module = self._program[self._fetched].module
            number = self._sent[module]
            begun = self._begun[module]
            if number >= depth and len(begun) <= number - depth:
                return
            free = begun[number - depth] if number >= depth else 0
            self._fetched_at = max(self._fetched_at, free) + self._fetch
            self._queues[module].append((self._fetched, self._fetched_at + _FETCHED))
            self._sent[module] += 1
            self._fetched += 1

    def _next(self, module: Module) -> _Next | None:
        """Return the next instruction of a module; None if the time at which it can begin is not
        known yet."""
        if not self._queues[module]:
            return None
        number, fetched = self._queues[module][0]
        begin = max(self._free[module], fetched)
        pops, pushes = pops_and_pushes(self._program[number])
        for queue in pops:
            tokens = self._tokens.get(queue)
            if not tokens:
                return None
            begin = max(begin, tokens[0])
        for queue in pushes:
            at = self._pushed.get(queue, 0) - self._accelerator.queues.tokens
            if at >= 0:
                taken = self._taken.get(queue, [])
                if len(taken) <= at:
                    return None
                begin = max(begin, taken[at])
        asks = begin + self._work[number].before
        return _Next(asks, module is not Module.STORE, number, begin, module)

    def _run(self, begin: int, number: int, module: Module) -> None:
        instruction = self._program[number]
        self._queues[module].popleft()
        pops, pushes = pops_and_pushes(instruction)
        for queue in pops:
            self._tokens[queue].popleft()
            self._taken.setdefault(queue, []).append(begin)
        work = self._work[number]
        end = begin + work.cycles
        if work.port:
            first = max(begin + work.before, self._port_free)
            self._port_free = first + work.port
            self._port_busy += work.port
            end = max(self._port_free + work.cycles, begin + work.least)
        self._begun[module].append(begin)
        self._free[module] = end
        self._busy[module] += max(work.before + work.port + work.cycles, work.least)
        for queue in pushes:
            self._tokens.setdefault(queue, deque()).append(end)
            self._pushed[queue] = self._pushed.get(queue, 0) + 1
        self._events.append(Event(number, module, begin, end))

    def _stuck(self) -> str:
        waiting = [
            f"{number} ({self._program[number].kind.name.lower()})"
            for queue in self._queues.values()
            for number, _ in [*queue][:1]
        ]
        return f"the program waits for ever at the instructions {', '.join(waiting)}"
