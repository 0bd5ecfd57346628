"""The cycles of a program, event by event: each module, queue and the port to DRAM.

A module begins an instruction when it was fetched, the one before it is done, and its tokens are
there; a load or a store also waits for the port. Modules are in order and take a fixed time for an
instruction, so the times of events are those of a simulation cycle by cycle:

    fetch     ceil(word / port) cycles an instruction, by a port of its own, as far as the queue of
              commands of the instruction's module has room
    load      the port is busy for the bytes of each row, and the last is there `latency` later
    gemm      a step of the matrix unit a cycle, and its latency
    alu       ceil(sums / lanes) cycles an element, and the unit's latency
    store     as a load
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import (
    ALU_LOOPS,
    GEMM_LOOPS,
    Form,
    Instruction,
    Kind,
    Module,
    Pad,
    word_bits,
)
from farrier.targets.dae.tokens import TokenError, bytes_of, pops_and_pushes


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """An instruction in time: it begins and ends at these cycles."""

    number: int
    module: Module
    begin: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """The cycles of a program; those in which each module had work, and those in which the port
    was taken."""

    cycles: int
    busy: Mapping[Module, int]
    port: int
    events: Sequence[Event]

    @property
    def bound(self) -> int:
        """The cycles of the busiest module, or of the port: no program with the same instructions
        takes less."""
        return max(*self.busy.values(), self.port)


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """The cycles that an instruction takes its module, and the port before that."""

    cycles: int
    port: int = 0


def work_of(instruction: Instruction, accelerator: Accelerator) -> Work:
    """Return the time of an instruction."""
    match instruction.kind:
        case Kind.LOAD:
            nbytes = bytes_of(Pad(instruction["pad"]), accelerator)
            return _transfer(instruction, nbytes, accelerator)
        case Kind.STORE:
            nbytes = accelerator.sum_bytes // (4 if instruction["form"] == Form.BYTE else 1)
            return _transfer(instruction, nbytes, accelerator)
        case Kind.GEMM:
            return Work(_steps(instruction, GEMM_LOOPS) + accelerator.matrix.latency)
        case Kind.ALU:
            sums = accelerator.matrix.batch * accelerator.matrix.outer
            cycles = -(-sums // accelerator.vector.lanes)
            return Work(
                _steps(instruction, ALU_LOOPS) * cycles + accelerator.vector.latency,
            )
    return Work(1)


def _transfer(instruction: Instruction, nbytes: int, accelerator: Accelerator) -> Work:
    row = -(-instruction["columns"] * nbytes // accelerator.port.bytes)
    return Work(accelerator.port.latency, instruction["rows"] * row)


def _steps(instruction: Instruction, loops: int) -> int:
    steps = 1
    for n in range(loops):
        steps *= max(1, instruction[f"count{n}"])
    return steps


def simulate(program: Sequence[Instruction], accelerator: Accelerator) -> Timing:
    """Return the timing of a program. Raises TokenError if it never ends."""
    return _Simulation(program, accelerator).run()


class _Simulation:
    def __init__(self, program: Sequence[Instruction], accelerator: Accelerator) -> None:
        self._program = program
        self._accelerator = accelerator
        self._fetch = -(-word_bits(accelerator) // 8 // accelerator.port.bytes)
        self._queues: dict[Module, deque[tuple[int, int]]] = {m: deque() for m in Module}
        self._begun: dict[Module, list[int]] = {m: [] for m in Module}
        self._free = dict.fromkeys(Module, 0)
        self._busy = dict.fromkeys(Module, 0)
        self._tokens: dict[tuple[int, int], deque[int]] = {}
        self._taken: dict[tuple[int, int], list[int]] = {}  # When each token was.
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
            self._run(*step)
        cycles = max(self._free.values())
        return Timing(cycles, self._busy, self._port_busy, self._events)

    def _fill_queues(self) -> None:
        """Fetch as far as queues have room: instruction n of a module takes the place of
        instruction n - `commands`."""
        depth = self._accelerator.queues.commands
        while self._fetched < len(self._program):
            module = self._program[self._fetched].module
            number = self._sent[module]
            begun = self._begun[module]
            if number >= depth and len(begun) <= number - depth:
                return
            free = begun[number - depth] if number >= depth else 0
            self._fetched_at = max(self._fetched_at, free) + self._fetch
            self._queues[module].append((self._fetched, self._fetched_at))
            self._sent[module] += 1
            self._fetched += 1

    def _next(self, module: Module) -> tuple[int, int, Module] | None:
        """Return when the next instruction of a module can begin, None if that is not known."""
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
        return begin, number, module

    def _run(self, begin: int, number: int, module: Module) -> None:
        instruction = self._program[number]
        self._queues[module].popleft()
        pops, pushes = pops_and_pushes(instruction)
        for queue in pops:
            self._tokens[queue].popleft()
            self._taken.setdefault(queue, []).append(begin)
        work = work_of(instruction, self._accelerator)
        end = begin + work.cycles
        if work.port:
            first = max(begin, self._port_free)
            self._port_free = first + work.port
            self._port_busy += work.port
            end = self._port_free + work.cycles
        self._begun[module].append(begin)
        self._free[module] = end
        self._busy[module] += work.port + work.cycles
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
