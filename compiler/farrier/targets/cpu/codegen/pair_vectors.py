"""The pass `pair-vectors`: move accesses of adjacent vectors close together, on machines where one
instruction loads or stores two vectors (LDP, STP).

LLVM merges two such accesses if they are close together and reachable by one instruction from their
common pointer. This pass arranges both, within each block of a function:

**Addresses**: the displacements of a paired instruction have a shorter range than those of a single
access. Accesses out of range, such as the next line of an image or the next block of its channels,
get a new pointer.

before:  %v8 = getelementptr i8, ptr %at3, i64 3136   ; and so on: four loads
         %v9 = getelementptr i8, ptr %at3, i64 3152
after:   %v20 = …                                     ; one addition, and two loads of pairs
         %v8 = getelementptr i8, ptr %v20, i64 0
         %v9 = getelementptr i8, ptr %v20, i64 16

**Order**: a load moves up to the load of the preceding vector if it follows soon after that load.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from farrier.ir import instr
from farrier.ir.instr import (
    Branch,
    Constant,
    Effect,
    Function,
    Instruction,
    Loop,
    Operand,
    Return,
    Statement,
    Symbol,
    While,
)

_VECTOR_BYTES = 16
_FEWEST = 4  # With four vectors, two paired instructions and the addition are one instruction less.
# A load moves across at most this number of instructions, which exceeds the uses of one vector.
_SOON = 40


class _Address(NamedTuple):
    displacement: int  # In bytes.
    line: int
    result: Operand
    pointer: Operand


class _Block(NamedTuple):
    """The analysis of one basic block. `addresses` maps the result of each address instruction to
    its description. `accessed` has the results that a load or store uses as its address. `moves`
    maps the number of each instruction that moves to the number of the instruction after which it
    is placed."""

    addresses: dict[Operand, _Address]
    accessed: set[Operand]
    moves: dict[int, int]


def pair_vectors(function: Function, reach: int) -> Function:
    """Return the function with accesses of adjacent vectors moved together. `reach` is the largest
    distance in bytes from the pointer at which a paired instruction can access its first vector.
    Address instructions are modified in place."""
    numbers = itertools.count(largest_number(function.body) + 1)
    return dataclasses.replace(function, body=_paired(function.body, reach, numbers))


def _paired(body: Sequence[Statement], reach: int, numbers: Iterator[int]) -> list[Statement]:
    result: list[Statement] = []
    block: list[Instruction] = []

    def end_block() -> None:
        result.extend(_written(block, _read(block), reach, numbers))
        block.clear()

    for x in _flat(body):
        if isinstance(x, Instruction):
            block.append(x)
            continue
        end_block()
        match x:
            case Loop():
                x = dataclasses.replace(x, body=_paired(x.body, reach, numbers))
            case While():
                test, inside = (_paired(part, reach, numbers) for part in (x.test, x.body))
                x = dataclasses.replace(x, test=test, body=inside)
            case Branch():
                then, other = (_paired(part, reach, numbers) for part in (x.then, x.otherwise))
                x = dataclasses.replace(x, then=then, otherwise=other)
            case Return():
                pass
        result.append(x)
    end_block()
    return result


def _flat(body: Sequence[Statement]) -> Iterator[Instruction | Loop | While | Branch | Return]:
    """Iterate over the statements of a body; nested lists, which are the heads of scopes, are
    flattened."""
    for x in body:
        if isinstance(x, list):
            yield from _flat(x)
        else:
            yield x


def largest_number(body: Sequence[Statement]) -> int:
    """Return the largest instruction number in a body."""
    largest = 0
    for x in _flat(body):
        match x:
            case Instruction():
                largest = max(largest, x.number)
            case Loop():
                largest = max(largest, largest_number(x.body))
            case While():
                largest = max(largest, largest_number(x.test), largest_number(x.body))
            case Branch():
                largest = max(largest, largest_number(x.then), largest_number(x.otherwise))
            case Return():
                pass
    return largest


def _read(block: Sequence[Instruction]) -> _Block:
    addresses: dict[Operand, _Address] = {}
    accessed: set[Operand] = set()
    moves: dict[int, int] = {}
    alone: dict[Operand, tuple[int, int]] = {}  # Displacement and line of a load, by its pointer.
    for line, x in enumerate(block):
        if x.operation is instr.OFFSET:
            pointer, nbytes = x.operands
            if isinstance(nbytes, Constant) and not isinstance(pointer, Symbol):
                addresses[x] = _Address(int(nbytes.number), line, x, pointer)
        elif x.operation is instr.LOAD:
            (at,) = x.operands
            accessed.add(at)
            if x.type.lanes > 1:
                _follow(line, addresses.get(at, _Address(0, -1, at, at)), alone, moves)
        elif _blocks_loads(x):
            if x.operation is instr.STORE:
                accessed.add(x.operands[1])
            alone.clear()
    return _Block(addresses, accessed, moves)


def _blocks_loads(x: Instruction) -> bool:
    """Check whether loads must not move across the instruction `x`: it may write memory, or is a
    prefetch. Loads may move across a fence, which only keeps LLVM from moving loads much further
    than this pass does (see `Memory`)."""
    effect = x.operation.effect
    return effect is Effect.WRITE or effect is Effect.ANY or x.operation is instr.PREFETCH


def _follow(
    line: int, address: _Address, alone: dict[Operand, tuple[int, int]], moves: dict[int, int]
) -> None:
    """Record in `moves` that the load at `line` moves up to the load of the preceding vector, if
    there is such a load with the same pointer, it is close, and it is not paired yet. `alone` maps
    each pointer to the displacement and line of its last unpaired load, and is updated."""
    before, place = alone.pop(address.pointer, (None, 0))
    if before is None or address.displacement - before != _VECTOR_BYTES or line > place + _SOON:
        alone[address.pointer] = address.displacement, line
    elif address.line == line - 1:
        moves |= {address.line: place, line: place}


def _written(
    instructions: Sequence[Instruction], block: _Block, reach: int, numbers: Iterator[int]
) -> Iterator[Instruction]:
    """Yield the instructions of a block after the pass: loads are moved next to the load of the
    preceding vector, and each group of addresses that is too far from its base pointer gets a
    pointer of its own."""
    behind: dict[int, list[int]] = collections.defaultdict(list)
    for line, place in block.moves.items():
        behind[place].append(line)
    before: dict[int, list[Instruction]] = collections.defaultdict(list)
    for group in _groups(block, reach):
        start, pointer = group[0].displacement, group[0].pointer
        total = Instruction(
            instr.OFFSET, pointer.type, (pointer, instr.index(start)), None, next(numbers)
        )
        # Without the opaque instruction, LLVM would fold the new pointer into each address again.
        far = Instruction(instr.OPAQUE, pointer.type, (total,), None, next(numbers))
        before[min(block.moves.get(address.line, address.line) for address in group)] += total, far
        for address in group:
            rest = instr.index(address.displacement - start)
            instructions[address.line].operands = far, rest
    for line, x in enumerate(instructions):
        yield from before.get(line, ())
        if line not in block.moves:
            yield x
        yield from (instructions[other] for other in behind.get(line, ()))


def _groups(block: _Block, reach: int) -> Iterator[list[_Address]]:
    """Yield groups of addresses that need a pointer of their own. The addresses of a group have the
    same base pointer, are out of reach of a paired instruction from there, but within reach of the
    first address of the group. Groups with too few vectors are left out."""
    by_pointer: dict[Operand, list[_Address]] = collections.defaultdict(list)
    for result, address in block.addresses.items():
        if result in block.accessed and not 0 <= address.displacement <= reach:
            by_pointer[address.pointer].append(address)
    for addresses in by_pointer.values():
        rest = sorted(addresses)
        while rest:
            last = rest[0].displacement + reach
            group = [address for address in rest if address.displacement <= last]
            rest = rest[len(group) :]
            if len({address.displacement // _VECTOR_BYTES for address in group}) >= _FEWEST:
                yield group
