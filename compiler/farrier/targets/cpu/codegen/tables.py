"""Bytes looked up in tables that are part of the code."""

from __future__ import annotations

import hashlib

from farrier.intrinsics import TableLookup
from farrier.ir.expr import BYTES, ByteTable
from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.text import Value, literal

_ALIGNMENT = 64


def look_up(b: Builder, lookup: TableLookup | None, table: ByteTable, x: Value) -> Value:
    """The entries at the bytes `x`: by `lookup`, many at once, or one by one where there is none or
    `x` is one byte."""
    if x.const is not None:
        return literal(table.values()[int(x.const) % BYTES], table.dtype, x.lanes)
    pointer = _declared(b, table.entries)
    if lookup is None or x.lanes == 1:
        return Value(_one_by_one(b, pointer, x), table.dtype, x.lanes)
    parts = [
        _resized(b, x.text, x.lanes, lookup.lanes, first)
        for first in range(0, x.lanes, lookup.lanes)
    ]
    found = [lookup.emit(b, pointer, part) for part in parts]
    return Value(_joined(b, found, lookup.lanes, x.lanes), table.dtype, x.lanes)


def _declared(b: Builder, entries: bytes) -> str:
    """The name of the table, which all kernels of a module share that have the same."""
    name = f"@bytes.{hashlib.sha256(entries).hexdigest()[:16]}"
    content = "".join(f"\\{entry:02x}" for entry in entries)
    b.declarations.add(
        f'{name} = private unnamed_addr constant [{BYTES} x i8] c"{content}", align {_ALIGNMENT}'
    )
    return name


def _one_by_one(b: Builder, pointer: str, x: Value) -> str:
    if x.lanes == 1:
        return _entry(b, pointer, x.text)
    kind, made = f"<{x.lanes} x i8>", "poison"
    for lane in range(x.lanes):
        index = b.pure(f"extractelement {kind} {x.text}, i64 {lane}")
        entry = _entry(b, pointer, index)
        made = b.pure(f"insertelement {kind} {made}, i8 {entry}, i64 {lane}")
    return made


def _entry(b: Builder, pointer: str, index: str) -> str:
    wide = b.pure(f"zext i8 {index} to i64")
    at = b.pure(f"getelementptr i8, ptr {pointer}, i64 {wide}")
    return b.pure(f"load i8, ptr {at}, align 1")


def _resized(b: Builder, text: str, lanes: int, wanted: int, first: int = 0) -> str:
    """`wanted` lanes from the `first` on; what lies behind the last is anything."""
    if lanes == wanted:
        return text
    picks = ", ".join(
        f"i32 {lane}" if lane < lanes else "i32 poison" for lane in range(first, first + wanted)
    )
    kind = f"<{lanes} x i8>"
    mask = f"<{wanted} x i32> <{picks}>"
    return b.pure(f"shufflevector {kind} {text}, {kind} poison, {mask}")


def _joined(b: Builder, parts: list[str], lanes: int, wanted: int) -> str:
    """The first `wanted` lanes of vectors of `lanes`, one behind the other."""
    while len(parts) > 1:
        both = ", ".join(f"i32 {lane}" for lane in range(2 * lanes))
        kind = f"<{lanes} x i8>"
        parts = [
            b.pure(f"shufflevector {kind} {a}, {kind} {c}, <{2 * lanes} x i32> <{both}>")
            for a, c in zip(parts[::2], parts[1::2], strict=True)
        ]
        lanes *= 2
    return _resized(b, parts[0], lanes, wanted)
