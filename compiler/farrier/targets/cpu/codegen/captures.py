"""What the body of a parallel loop needs from the function around it.

The body finds out as it is emitted; each value gets a place in a context struct on the caller's
stack, is stored there before the loop and loaded where the body begins.
"""

from __future__ import annotations

from typing import Any

from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.indices import Bindings
from farrier.targets.cpu.codegen.memory import Memory
from farrier.targets.cpu.codegen.registers import Piece, Registers
from farrier.targets.cpu.codegen.text import Value

_SLOT_BYTES = 64  # a place holds anything up to a vector register


class Captures:
    """The context of one parallel loop."""

    def __init__(
        self, b: Builder, bindings: Bindings, memory: Memory, registers: Registers, inner: Builder
    ) -> None:
        self.b = b
        self._bindings = bindings
        self._memory = memory
        self._registers = registers
        self._inner = inner
        self._places: dict[str, tuple[str, int]] = {}  # outer text -> (type, offset)
        self._loaded: dict[str, str] = {}
        self._size = 0

    def attach(self, bindings: Bindings, memory: Memory, registers: Registers) -> None:
        """Let the body see the variables, buffers and registers around it."""
        bindings.constants.update(self._bindings.constants)
        bindings.dynamic = _Lazy(
            self._bindings.dynamic, lambda found: (0, self._take("i64", found[1]))
        )
        memory.bases = _Lazy(self._memory.bases, lambda found: self._take("ptr", found))
        registers.tiles = _Lazy(self._registers.tiles, self._tile)

    def store(self) -> str:
        """Allocate and fill the context; return its pointer."""
        if not self._places:
            return "null"
        size = -(-self._size // _SLOT_BYTES) * _SLOT_BYTES
        name = self.b.fresh("ctx")
        self.b.scopes[0].head.append(f"  %{name} = alloca [{size} x i8], align 64")
        for text, (kind, offset) in self._places.items():
            at = self.b.emit(f"getelementptr i8, ptr %{name}, i64 {offset}")
            self.b.put(f"store {kind} {text}, ptr {at}")
        return f"%{name}"

    def _tile(self, tile: dict[int, Piece]) -> dict[int, Piece]:
        return {
            number: piece._replace(value=self._value(piece.value)) for number, piece in tile.items()
        }

    def _value(self, value: Value) -> Value:
        if value.const is not None:
            return value
        return value.named(self._take(value.type, value.text))

    def _take(self, kind: str, text: str) -> str:
        """The name in the body of what is `text` outside."""
        if text in self._loaded:
            return self._loaded[text]
        scalar = kind in ("i64", "ptr")
        step = 8 if scalar else _SLOT_BYTES
        offset = -(-self._size // step) * step
        wide = 1 if scalar else _vector_slots(kind)
        self._size = offset + step * wide
        self._places[text] = (kind, offset)
        at = self._inner.hoisted(0, f"getelementptr i8, ptr %ctx, i64 {offset}")
        self._loaded[text] = self._inner.hoisted(0, f"load {kind}, ptr {at}")
        return self._loaded[text]


def _vector_slots(kind: str) -> int:
    lanes = int(kind[1:].partition(" ")[0]) if kind.startswith("<") else 1
    return -(-lanes * 8 // _SLOT_BYTES)


class _Lazy(dict[str, Any]):
    """A dictionary that takes a missing entry from outside, translated, when it is asked for."""

    def __init__(self, outside: dict[str, Any], translate: Any) -> None:
        super().__init__()
        self._outside = outside
        self._translate = translate

    def __missing__(self, name: str) -> Any:
        value = self._translate(self._outside[name])
        self[name] = value
        return value
