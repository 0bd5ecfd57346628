"""The text of one LLVM function under construction: values, labels, slots and declarations."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir.types import DType
from farrier.targets.gpu.inexpressible import InexpressibleError

# The types of values. Narrow floats are computed in f32, and rounded in memory.
_VALUES = {
    DType.F16: "float",
    DType.F32: "float",
    DType.F64: "double",
    DType.BOOL: "i1",
    **{each: f"i{each.bits}" for each in DType if each.is_integer and each.bits >= 8},
}
_MEMORY = {**_VALUES, DType.F16: "half", DType.BOOL: "i8"}


def value_type(dtype: DType) -> str:
    """Return the type of a value in a register. Raises InexpressibleError."""
    if dtype not in _VALUES:
        raise InexpressibleError(f"it computes in {dtype}, which kernels for CUDA do not have")
    return _VALUES[dtype]


def memory_type(dtype: DType) -> str:
    """Return the type of an element in memory. Raises InexpressibleError."""
    value_type(dtype)
    return _MEMORY[dtype]


class Code:
    """The instructions of a function, in order."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, DType]] = set()  # Those of Farrier's own that it calls.
        self.declarations: dict[str, None] = {}
        self.block = "entry"  # The label of the block that is written.
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    def body(self) -> list[str]:
        """Return the lines, of which the slots are the first: LLVM keeps those in registers."""
        return ["entry:", *self._slots, *self._lines]

    def line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def declare(self, text: str) -> None:
        self.declarations[text] = None

    def value(self, text: str) -> str:
        """Write an instruction, and return the name of its result."""
        name = self._fresh("v")
        self.line(f"%{name} = {text}")
        return f"%{name}"

    def call(self, type_: str, name: str, operands: Sequence[tuple[str, str]]) -> str:
        """Write a call of a function outside of the module, with (type, operand) pairs."""
        self.declare(f"declare {type_} @{name}({', '.join(kind for kind, _ in operands)})")
        return self.value(f"call {type_} @{name}({', '.join(map(' '.join, operands))})")

    def slot(self, type_: str) -> str:
        """Return a place in the memory of the thread."""
        name = self._fresh("s")
        self._slots.append(f"  %{name} = alloca {type_}, align 16")
        return f"%{name}"

    def labels(self, *names: str) -> tuple[str, ...]:
        return tuple(self._fresh(name) for name in names)

    def start(self, label: str) -> None:
        """Begin a block, to which the one before it leads unless it has jumped elsewhere."""
        if not self._lines or not self._lines[-1].startswith("  br "):
            self.jump(label)
        self._lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        self.line(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def _fresh(self, name: str) -> str:
        self._count += 1
        return f"{name}{self._count}"
