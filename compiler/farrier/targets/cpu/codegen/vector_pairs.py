"""Accesses of neighbouring vectors, where one instruction loads or stores two of them.

LLVM joins two that it finds close together, if one such instruction reaches them from the pointer
that they share. Within each block of a function this brings together what it can.

**Near**: an instruction for two reaches less far than one for one does. The next line of an image,
or the next block of its channels, lies beyond; it gets a pointer of its own.

before:  %v8 = getelementptr i8, ptr %at3, i64 3136   ; and so on: four loads
         %v9 = getelementptr i8, ptr %at3, i64 3152
after:   %at3.far3136 = …                             ; one addition, and two loads of pairs
         %v8 = getelementptr i8, ptr %at3.far3136, i64 0
         %v9 = getelementptr i8, ptr %at3.far3136, i64 16

**Together**: a load moves up to that of its neighbour, if it comes soon after it.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_NAMED = re.compile(
    r"  (%\S+) = (?:"
    r"getelementptr i8, ptr (?P<pointer>%\S+), i64 (?P<displacement>-?\d+)"
    r"|load (?P<vector><)?[^,]+, ptr (?P<address>%\S+), align \d+"
    r"|call (?P<reads>.*@llvm\.)?.*)"
)
_STORE = re.compile(r"  store .*, ptr (%\S+), align \d+")
_VECTOR_BYTES = 16
_FEWEST = 4  # vectors: two pairs and the addition are one instruction less
_SOON = 40  # lines: those that use one vector


class _Address(NamedTuple):
    displacement: int  # bytes
    line: int
    name: str
    pointer: str


class _Block(NamedTuple):
    """What a block's lines hold: addresses by name, those that are accessed, and the loads that
    move, each with the line that it moves behind."""

    addresses: dict[str, _Address]
    accessed: set[str]
    moves: dict[int, int]


def paired(lines: Sequence[str], reach: int) -> list[str]:
    """The lines of a function. `reach` is how many bytes from its pointer the first of two vectors
    may lie."""
    result: list[str] = []
    labels = [at for at, line in enumerate(lines) if line.endswith(":")]
    for start, end in zip([0, *labels], [*labels, len(lines)], strict=True):
        block = lines[start:end]
        result += _written(block, _read(block), reach, f"b{start}")
    return result


def _read(lines: Sequence[str]) -> _Block:
    addresses: dict[str, _Address] = {}
    accessed: set[str] = set()
    moves: dict[int, int] = {}
    alone: dict[str, tuple[int, int]] = {}  # displacement and line of a load, by its pointer
    for number, line in enumerate(lines):
        if not (found := _NAMED.fullmatch(line)):
            # No load passes what may write. A fence is not among it: it orders nothing here, but
            # keeps LLVM from moving loads much further than this does (`Memory`).
            if store := _STORE.fullmatch(line):
                accessed.add(store[1])
            if store or line.startswith("  call"):
                alone.clear()
        elif pointer := found["pointer"]:
            address = _Address(int(found["displacement"]), number, found[1], pointer)
            addresses[found[1]] = address
        elif name := found["address"]:
            accessed.add(name)
            if found["vector"]:
                _follow(number, addresses.get(name, _Address(0, -1, name, name)), alone, moves)
        elif not found["reads"]:
            alone.clear()
    return _Block(addresses, accessed, moves)


def _follow(
    number: int, address: _Address, alone: dict[str, tuple[int, int]], moves: dict[int, int]
) -> None:
    """Have a load move behind that of the vector before it, where that is near and alone."""
    before, place = alone.pop(address.pointer, (None, 0))
    if before is None or address.displacement - before != _VECTOR_BYTES or number > place + _SOON:
        alone[address.pointer] = address.displacement, number
    elif address.line == number - 1:
        moves |= {address.line: place, number: place}


def _written(lines: Sequence[str], block: _Block, reach: int, name: str) -> Iterator[str]:
    """The lines of the block of that name, with what is moved, and with pointers for what lies
    together out of reach."""
    behind: dict[int, list[int]] = collections.defaultdict(list)
    for number, place in block.moves.items():
        behind[place].append(number)
    before: dict[int, list[str]] = collections.defaultdict(list)
    replaced: dict[int, str] = {}
    for group in _groups(block, reach):
        start, pointer = group[0].displacement, group[0].pointer
        far = f"{pointer}.{name}.far{start}"
        before[min(block.moves.get(address.line, address.line) for address in group)] += [
            f"  {far}.sum = getelementptr i8, ptr {pointer}, i64 {start}",
            # LLVM would add the displacement to each address again, but for what it cannot look
            # through.
            f'  {far} = call ptr asm "", "=r,0"(ptr {far}.sum)',
        ]
        for address in group:
            rest = address.displacement - start
            replaced[address.line] = f"  {address.name} = getelementptr i8, ptr {far}, i64 {rest}"
    for number, line in enumerate(lines):
        yield from before.get(number, ())
        if number not in block.moves:
            yield replaced.get(number, line)
        for other in behind.get(number, ()):
            yield replaced.get(other, lines[other])


def _groups(block: _Block, reach: int) -> Iterator[list[_Address]]:
    """Addresses of one pointer that lie out of reach, but within reach of the first of them, where
    these are vectors enough."""
    by_pointer: dict[str, list[_Address]] = collections.defaultdict(list)
    for name, address in block.addresses.items():
        if name in block.accessed and not 0 <= address.displacement <= reach:
            by_pointer[address.pointer].append(address)
    for addresses in by_pointer.values():
        rest = sorted(addresses)
        while rest:
            group = [one for one in rest if one.displacement <= rest[0].displacement + reach]
            rest = rest[len(group) :]
            if len({address.displacement // _VECTOR_BYTES for address in group}) >= _FEWEST:
                yield group
