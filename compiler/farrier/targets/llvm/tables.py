"""The emission of byte lookups in tables that are constants of the module."""

from __future__ import annotations

import functools
import hashlib

from farrier.intrinsics import TableLookup
from farrier.ir import instr
from farrier.ir.expr import BYTES, ByteTable
from farrier.ir.instr import PTR, Data, Operand, Symbol
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.values import Value, literal

_ALIGNMENT = 64


def look_up(b: Builder, lookup: TableLookup | None, table: ByteTable, x: Value) -> Value:
    """Return the entries of `table` at the indices `x`, which are bytes. The machine instruction
    `lookup` reads many entries at once. Without one (None), and for a scalar `x`, entries are
    loaded one by one."""
    if x.const is not None:
        return literal(table.values()[int(x.const) % BYTES], table.dtype, x.lanes)
    pointer = _data(table.entries)
    if lookup is None or x.lanes == 1:
        return Value(_one_by_one(b, pointer, x), table.dtype, x.lanes)
    parts = [
        _resized(b, x.operand, lookup.lanes, first) for first in range(0, x.lanes, lookup.lanes)
    ]
    entries = [lookup.emit(b, pointer, part) for part in parts]
    return Value(_joined(b, entries, x.lanes), table.dtype, x.lanes)


@functools.cache
def _data(entries: bytes) -> Symbol:
    """Return the address of the table. All kernels of a module with an equal table share it."""
    name = f"bytes.{hashlib.sha256(entries).hexdigest()[:16]}"
    return Symbol(PTR, name, Data(entries, _ALIGNMENT))


def _one_by_one(b: Builder, pointer: Operand, x: Value) -> Operand:
    if x.lanes == 1:
        return _entry(b, pointer, x.operand)
    entries: Operand = instr.poison(x.type)
    for lane in range(x.lanes):
        index = b.extract(x.operand, lane)
        entries = b.insert(entries, _entry(b, pointer, index), lane)
    return entries


def _entry(b: Builder, pointer: Operand, index: Operand) -> Operand:
    at = b.offset(pointer, b.convert(instr.ZEXT, index, instr.I64))
    return b.load(instr.I8, at, 1, is_constant=True)


def _resized(b: Builder, x: Operand, wanted: int, first: int = 0) -> Operand:
    """Return a vector of `wanted` lanes: those of `x` from lane `first` on. Lanes beyond the end of
    `x` are undefined."""
    lanes = x.type.lanes
    if lanes == wanted:
        return x
    places = range(first, first + wanted)
    return b.shuffle(x, None, [lane if lane < lanes else -1 for lane in places])


def _joined(b: Builder, parts: list[Operand], wanted: int) -> Operand:
    """Return the first `wanted` lanes of a vector that consists of the lanes of all `parts` in
    order."""
    while len(parts) > 1:
        both = range(2 * parts[0].type.lanes)
        parts = [b.shuffle(a, c, both) for a, c in zip(parts[::2], parts[1::2], strict=True)]
    return _resized(b, parts[0], wanted)
