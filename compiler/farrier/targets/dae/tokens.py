"""The proof that an instruction stream is synchronized sufficiently and free of deadlock.

Each module executes its instructions in order, and token queues are first-in first-out: the nth pop
of a queue takes the token of its nth push, independent of timing. It is therefore known before
execution which instruction waits for which:

    in one module           an instruction comes after the previous one
    push n of a queue       comes before pop n of it
    pop n of a queue        comes before push n + capacity of it, as the queue is full until then

The program can run to its end exactly if this relation has no cycles. Two instructions of different
modules that access the same element of a scratchpad or of DRAM, at least one of them writing it,
must be ordered by the relation as they are in the program, whose meaning is defined by sequential
execution.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from farrier.errors import CompilerError
from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.instructions import (
    ALU_LOOPS,
    GEMM_LOOPS,
    Alu,
    Form,
    Instruction,
    Kind,
    Module,
    Pad,
)

_MODULES = len(Module)
# The compiler's instructions have fewer steps, since each step has a separate sum or operand.
_MOST_STEPS = 1 << 24
_DRAM = 4  # Scratchpads are 0 to 2; beyond them are the arguments, each a memory of its own.


class TokenError(CompilerError):
    """The error for a program that deadlocks or whose accesses are not synchronized."""


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """The range of elements in a memory within which all accesses of an instruction lie."""

    memory: int
    first: int
    end: int
    writes: bool


def pops_and_pushes(
    instruction: Instruction,
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the token queues that an instruction pops, and the queues that it pushes. A queue is a
    pair of source and target module."""
    module = int(instruction.module)
    pops = [(module + by, module) for by, name in _POPS if instruction[name]]
    pushes = [(module, module + by) for by, name in _PUSHES if instruction[name]]
    for source, target in (*pops, *pushes):
        if not (0 <= source < _MODULES and 0 <= target < _MODULES):
            raise TokenError(f"{instruction}: there is no module beyond its own")
    return pops, pushes


_POPS = ((-1, "pop_previous"), (1, "pop_next"))
_PUSHES = ((-1, "push_previous"), (1, "push_next"))


def accesses(instruction: Instruction, accelerator: Accelerator) -> Iterator[Access]:
    """Yield the memory accesses of an instruction. Raises TokenError for an access outside a
    scratchpad, and for an instruction with too many steps."""
    steps = math.prod(max(1, instruction[f"count{n}"]) for n in range(GEMM_LOOPS))
    if steps > _MOST_STEPS:
        raise TokenError(f"{instruction}: it takes {steps} steps, and at most {_MOST_STEPS}")
    for access in _accesses(instruction, accelerator):
        if access.memory < _DRAM:
            elements = (accelerator.inputs, accelerator.weights, accelerator.sums)[access.memory]
            if access.end > elements:
                name = Pad(access.memory).name.lower()
                raise TokenError(
                    f"{instruction}: element {access.end - 1} is beyond the {elements} of the "
                    f"scratchpad of {name}s"
                )
        yield access


def _accesses(instruction: Instruction, accelerator: Accelerator) -> Iterator[Access]:
    match instruction.kind:
        case Kind.LOAD:
            pad = Pad(instruction["pad"])
            rows = instruction["top"] + instruction["rows"] + instruction["bottom"]
            columns = instruction["left"] + instruction["columns"] + instruction["right"]
            first = instruction["index"]
            yield Access(min(pad, Pad.SUM), first, first + rows * columns, writes=True)
            nbytes = bytes_of(pad, accelerator)
            yield _in_dram(instruction, nbytes, writes=False)
        case Kind.STORE:
            first = instruction["index"]
            end = first + instruction["rows"] * instruction["columns"]
            yield Access(Pad.SUM, first, end, writes=False)
            yield _in_dram(instruction, stored_bytes(instruction, accelerator), writes=True)
        case Kind.GEMM:
            for memory, name in ((Pad.INPUT, "input"), (Pad.WEIGHT, "weight")):
                yield _along(instruction, memory, name, GEMM_LOOPS, writes=False)
            yield _along(instruction, Pad.SUM, "sum", GEMM_LOOPS, writes=True)
        case Kind.ALU:
            if not instruction["is_immediate"] and instruction["operation"] != Alu.TO_FLOAT:
                yield _along(instruction, Pad.SUM, "from", ALU_LOOPS, writes=False)
            if instruction["operation"] == Alu.ACCUMULATE:
                yield _along(instruction, Pad.SUM, "by", ALU_LOOPS, writes=False)
            yield _along(instruction, Pad.SUM, "to", ALU_LOOPS, writes=True)


def bytes_of(pad: Pad, accelerator: Accelerator) -> int:
    """Return the bytes in DRAM of an element that a load to `pad` reads."""
    match pad:
        case Pad.INPUT:
            return accelerator.input_bytes
        case Pad.WEIGHT:
            return accelerator.weight_bytes
        case Pad.SUM:
            return accelerator.sum_bytes
    return accelerator.sum_bytes // 4


def stored_bytes(store: Instruction, accelerator: Accelerator) -> int:
    """Return the bytes in DRAM of an element that a store writes."""
    sums = accelerator.sum_bytes // 4 - store["omitted"]
    return sums if store["form"] == Form.BYTE else 4 * sums


def _in_dram(instruction: Instruction, nbytes: int, *, writes: bool) -> Access:
    first = instruction["offset"]
    rows = max(0, instruction["rows"] - 1) * instruction["stride"]
    end = first + rows + instruction["columns"] * nbytes
    return Access(_DRAM + instruction["argument"], first, end, writes)


def _along(instruction: Instruction, memory: Pad, name: str, loops: int, *, writes: bool) -> Access:
    first = instruction[name]
    last = sum(
        (max(1, instruction[f"count{n}"]) - 1) * instruction[f"{name}{n}"] for n in range(loops)
    )
    return Access(memory, first, first + last + 1, writes)


# -- the order


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """The order of instructions that the token queues enforce. `waits[n]` has the numbers of the
    instructions for which instruction n waits. Before instruction n begins, the first `seen[n, m]`
    instructions of module m have finished."""

    waits: Sequence[Sequence[int]]
    # The position of each instruction among the instructions of its module.
    positions: Sequence[int]
    seen: np.ndarray[tuple[int, int], np.dtype[np.int64]]


def order_of(program: Sequence[Instruction], accelerator: Accelerator) -> Order:
    """Return the waiting relation of a program. Raises TokenError if the program deadlocks, or
    leaves tokens in a queue."""
    waits = _waits(program, accelerator.queues.tokens)
    positions, counts = [], [0] * _MODULES
    for instruction in program:
        positions.append(counts[instruction.module])
        counts[instruction.module] += 1
    seen = np.zeros((len(program), _MODULES), np.int64)
    for number in _sorted(program, waits):
        row = seen[number]
        for before in waits[number]:
            np.maximum(row, seen[before], out=row)
            module = program[before].module
            row[module] = max(row[module], positions[before] + 1)
    return Order(waits, positions, seen)


def _waits(program: Sequence[Instruction], capacity: int) -> list[list[int]]:
    pushes: dict[tuple[int, int], list[int]] = defaultdict(list)
    pops: dict[tuple[int, int], list[int]] = defaultdict(list)
    waits: list[list[int]] = [[] for _ in program]
    last: dict[Module, int] = {}
    for number, instruction in enumerate(program):
        if instruction.module in last:
            waits[number].append(last[instruction.module])
        last[instruction.module] = number
        popped, pushed = pops_and_pushes(instruction)
        for queue in popped:
            pops[queue].append(number)
        for queue in pushed:
            pushes[queue].append(number)
    for queue in sorted({*pushes, *pops}):
        source, target = (Module(module).name.lower() for module in queue)
        if len(pops[queue]) > len(pushes[queue]):
            number = pops[queue][len(pushes[queue])]
            raise TokenError(
                f"instruction {number} ({program[number].kind.name.lower()}) waits for ever: "
                f"{source} hands {target} only {len(pushes[queue])} tokens"
            )
        if len(pops[queue]) < len(pushes[queue]):
            number = pushes[queue][len(pops[queue])]
            raise TokenError(
                f"nobody takes the token of instruction {number} "
                f"({program[number].kind.name.lower()}) from {source} to {target}"
            )
        for at, (push, pop) in enumerate(zip(pushes[queue], pops[queue], strict=True)):
            waits[pop].append(push)
            if at >= capacity:
                waits[push].append(pops[queue][at - capacity])
    return waits


def _sorted(program: Sequence[Instruction], waits: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield the instructions in a topological order of the waiting relation. Raises TokenError if
    it has a cycle."""
    missing = [len(each) for each in waits]
    followers: list[list[int]] = [[] for _ in waits]
    for number, each in enumerate(waits):
        for before in each:
            followers[before].append(number)
    ready = [number for number, count in enumerate(missing) if not count]
    done = 0
    while ready:
        number = ready.pop()
        done += 1
        yield number
        for follower in followers[number]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    if done < len(program):
        stuck = min(number for number, count in enumerate(missing) if count)
        before = next(each for each in waits[stuck] if missing[each])
        raise TokenError(
            f"instructions {stuck} ({program[stuck].kind.name.lower()}) and {before} "
            f"({program[before].kind.name.lower()}) wait for each other: the program never ends"
        )


# -- the proof


def prove(
    program: Sequence[Instruction],
    accelerator: Accelerator,
    arguments: Sequence[int] | None = None,
) -> Order:
    """Prove that a program is synchronized, and return its waiting relation. `arguments` are the
    sizes of the arguments in bytes, if known. Raises TokenError if the program may deadlock,
    accesses memory beyond an argument, or has two conflicting accesses whose order is not
    enforced."""
    order = order_of(program, accelerator)
    touched = _Touched(accelerator)
    for number, instruction in enumerate(program):
        seen = order.seen[number]
        for access in accesses(instruction, accelerator):
            for module in Module:
                if module is instruction.module:
                    continue
                other = touched.latest(access, module)
                if other >= seen[module]:
                    raise _unordered(program, order, number, module, other, access)
            touched.note(access, instruction.module, order.positions[number])
            if arguments is not None and access.memory >= _DRAM:
                _check_reach(instruction, access, arguments)
    return order


def _check_reach(instruction: Instruction, access: Access, arguments: Sequence[int]) -> None:
    """Raise TokenError if an access to DRAM exceeds its argument."""
    number = access.memory - _DRAM
    nbytes = arguments[number] if number < len(arguments) else 0
    if access.end > nbytes:
        raise TokenError(
            f"{instruction}: byte {access.end - 1} is beyond the {nbytes} of argument {number}"
        )


def _unordered(
    program: Sequence[Instruction],
    order: Order,
    number: int,
    module: Module,
    position: int,
    access: Access,
) -> TokenError:
    other = next(
        at
        for at, each in enumerate(program)
        if each.module is module and order.positions[at] == position
    )
    place = (
        f"argument {access.memory - _DRAM}"
        if access.memory >= _DRAM
        else f"the scratchpad of {Pad(access.memory).name.lower()}s"
    )
    return TokenError(
        f"no token makes instruction {number} ({program[number].kind.name.lower()}) wait for "
        f"{other} ({program[other].kind.name.lower()}), and both touch {place}"
    )


class _Touched:
    """The position of the latest access to each element by each module, exact for scratchpads and
    by range for DRAM."""

    def __init__(self, accelerator: Accelerator) -> None:
        sizes = (accelerator.inputs, accelerator.weights, accelerator.sums)
        self._pads = [np.full((2, _MODULES, size), -1, np.int64) for size in sizes]
        self._dram: dict[tuple[int, bool, Module], list[tuple[int, int, int]]] = defaultdict(list)

    def latest(self, access: Access, module: Module) -> int:
        """Return the position of the latest instruction of a module that conflicts with an
        access; -1 if there is none. Two accesses to an element conflict if at least one of them
        writes it."""
        if access.memory >= _DRAM:
            return max(
                (
                    position
                    for writes in ((False, True) if access.writes else (True,))
                    for first, end, position in self._dram[access.memory, writes, module]
                    if first < access.end and access.first < end
                ),
                default=-1,
            )
        kinds = slice(None) if access.writes else slice(1, 2)  # A read conflicts only with writes.
        elements = self._pads[access.memory][kinds, module, access.first : access.end]
        return int(elements.max(initial=-1))

    def note(self, access: Access, module: Module, position: int) -> None:
        """Record an access by the instruction at `position` of a module."""
        if access.memory >= _DRAM:
            place = access.memory, access.writes, module
            self._dram[place].append((access.first, access.end, position))
            return
        pad = self._pads[access.memory]
        pad[int(access.writes), module, access.first : access.end] = position
