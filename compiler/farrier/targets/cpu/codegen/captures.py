"""The values that the outlined body of a parallel loop uses from the enclosing function.

Captured values are collected while the body is emitted. Each is assigned a slot in a context struct
on the caller's stack; it is stored there before the loop, and loaded at the start of the body.
"""

from __future__ import annotations

from typing import Any

from farrier.ir import instr
from farrier.ir.instr import I64, PTR, Operand, Type, Variable
from farrier.targets.cpu.codegen.indices import Bindings
from farrier.targets.cpu.codegen.memory import Memory
from farrier.targets.cpu.codegen.registers import Piece, Registers
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.values import Value

CONTEXT = Variable(PTR, "ctx")  # The body's first argument.
_WORD = 8  # Bytes of a pointer or a size.
_SLOT_BYTES = 64  # A slot holds any value up to a vector register.


class Captures:
    """The context struct of one parallel loop."""

    def __init__(
        self, b: Builder, bindings: Bindings, memory: Memory, registers: Registers, inner: Builder
    ) -> None:
        self.b = b
        self._bindings = bindings
        self._memory = memory
        self._registers = registers
        self._inner = inner
        self._places: dict[Operand, int] = {}  # The offsets of values in the context.
        self._loaded: dict[Operand, Operand] = {}
        self._size = 0

    def attach(self, bindings: Bindings, memory: Memory, registers: Registers) -> None:
        """Make the variables, buffers and registers of the enclosing function available in the
        body. Their values are captured on first use."""
        bindings.constants.update(self._bindings.constants)
        bindings.dynamic = _Lazy(
            self._bindings.dynamic, lambda captured: (0, self._take(captured[1]))
        )
        memory.bases = _Lazy(self._memory.bases, self._take)
        registers.tiles = _Lazy(self._registers.tiles, self._tile)

    def store(self, name: str) -> Operand:
        """Emit the allocation of the context struct for the body `name`, and the stores of all
        captured values to it; return its address."""
        if not self._places:
            return instr.zero(PTR)
        size = -(-self._size // _SLOT_BYTES) * _SLOT_BYTES
        context = self.b.hoisted(0, instr.STACK, PTR, (), (size, name))
        for outer, offset in self._places.items():
            at = self.b.emit(instr.OFFSET, PTR, (context, instr.index(offset)))
            self.b.store(outer, at, _alignment(outer.type))
        return context

    def _tile(self, tile: dict[int, Piece]) -> dict[int, Piece]:
        return {
            number: piece._replace(value=self._value(piece.value)) for number, piece in tile.items()
        }

    def _value(self, value: Value) -> Value:
        if value.const is not None:
            return value
        return value.held_in(self._take(value.operand))

    def _take(self, outer: Operand) -> Operand:
        """Capture `outer`, a value of the enclosing function, and return the same value as loaded
        in the body."""
        if outer in self._loaded:
            return self._loaded[outer]
        kind = outer.type
        step = _alignment(kind)
        offset = -(-self._size // step) * step
        wide = 1 if step == _WORD else -(-kind.lanes * 8 // _SLOT_BYTES)
        self._size = offset + step * wide
        self._places[outer] = offset
        at = self._inner.hoisted(0, instr.OFFSET, PTR, (CONTEXT, instr.index(offset)))
        self._loaded[outer] = self._inner.hoisted(0, instr.LOAD, kind, (at,), _alignment(kind))
        return self._loaded[outer]


def _alignment(type_: Type) -> int:
    return _WORD if type_ is I64 or type_.element == "ptr" else _SLOT_BYTES


class _Lazy(dict[str, Any]):
    """A dictionary that looks a missing key up in an outer dictionary, and stores the translation
    of the value there."""

    def __init__(self, outside: dict[str, Any], translate: Any) -> None:
        super().__init__()
        self._outside = outside
        self._translate = translate

    def __missing__(self, name: str) -> Any:
        value = self._translate(self._outside[name])
        self[name] = value
        return value
