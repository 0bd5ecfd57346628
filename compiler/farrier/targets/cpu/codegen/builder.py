"""One LLVM function as text under construction.

Text is appended to a tree of lists, so that lines can still be placed earlier: each loop is a
`LoopScope` whose `head`, right at the start of its body, takes what depends on nothing further in.
No pass will hoist anything later, so everything is put where it belongs when it is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeAlias

from farrier.ir.dim import Extent
from farrier.ir.types import DType
from farrier.targets.cpu.codegen.text import Value, literal, suffix, type_of, vector
from farrier.targets.cpu.codegen.vector_pairs import paired

Lines: TypeAlias = list["str | Lines"]

HERE = 1 << 30  # a depth that no scope has: the current position


class LoopScope:
    """The body of a loop, or of the whole function (depth 0).

    `known` remembers what the head holds by instruction, `atoms` by index expression. `stepped`
    are pointers that move on with each iteration of the loop over `variable` ("": there are none),
    by where they begin and by how much they move.
    """

    __slots__ = ("atoms", "head", "known", "stepped", "variable")

    def __init__(self, variable: str = "") -> None:
        self.variable = variable
        self.stepped: dict[tuple[str, Extent], str] = {}
        self.head: Lines = []
        self.known: dict[str, str] = {}
        self.atoms: dict[tuple[int, ...], Value] = {}


Scale: TypeAlias = Callable[["Builder", str, str, str, int, str], str]


@dataclasses.dataclass(frozen=True, slots=True)
class Instructions:
    """What a machine can do that LLVM does not find by itself, or not every machine can.

    `scale(b, type, x, exponent, lanes, mask)` multiplies f32 vectors of `scale_bits` bits by powers
    of two with one instruction, 0 where no bit of `mask`, an integer, is set. `fuses` says whether
    one instruction multiplies and adds floats, rounding once, `rounds_bf16`
    whether one instruction rounds f32 to bf16, `converts_f16` whether there are instructions
    between f32 and f16, `keeps_nan` whether there are a minimum and a maximum that are NaN where an
    operand is, `counts_loops` whether going round a loop that does little shows beside it,
    `takes_lanes` whether a dot product takes one lane of a register as factor for all its lanes.
    `pair_reach` is how many bytes from its pointer two vectors may begin that one instruction loads
    or stores, 0 where none does.
    """

    scale: Scale | None = None
    scale_bits: int = 0
    rounds_bf16: bool = False
    converts_f16: bool = False
    keeps_nan: bool = False
    counts_loops: bool = False
    takes_lanes: bool = False
    pair_reach: int = 0
    fuses: bool = True


class Builder:
    """Appends instructions; equal pure instructions of a basic block are one.

    `in_memory` remembers what narrow floats are in memory, by their text and dtype.
    """

    def __init__(
        self,
        declarations: set[str],
        instructions: Instructions = Instructions(),
    ) -> None:
        self.declarations = declarations
        self.instructions = instructions
        self.in_memory: dict[tuple[str, DType], str] = {}
        self.scopes = [LoopScope()]
        self.lines: Lines = []
        self.root = self.lines
        self.block = "entry"
        self._known: dict[str, str] = {}
        self._heads: dict[tuple[str, str], str] = {}  # of calls, by intrinsic and type
        self._count = 0

    def fresh(self, prefix: str = "v") -> str:
        """A name that nothing has yet, without sigil."""
        self._count += 1
        return f"{prefix}{self._count}"

    def emit(self, instruction: str) -> str:
        """Append an instruction that has a result; return the result's name."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def pure(self, instruction: str) -> str:
        """As `emit`, for an instruction whose result depends on its text alone."""
        name = self._known.get(instruction)
        if name is None:
            name = self._known[instruction] = self.emit(instruction)
        return name

    def put(self, line: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {line}")

    def start_block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label
        self._known = {}

    def open_scope(self, variable: str = "") -> LoopScope:
        """A scope whose head is here; of the loop over `variable`, whose pointers may be stepped,
        or ""."""
        scope = LoopScope(variable)
        self.lines.append(scope.head)
        self.scopes.append(scope)
        return scope

    def close_scope(self) -> None:
        self.scopes.pop()

    @contextlib.contextmanager
    def at_head(self, depth: int) -> Iterator[None]:
        """Within it, scalar instructions go to the head of the scope at `depth`."""
        lines, known = self.lines, self._known
        scope = self.scopes[depth]
        self.lines, self._known = scope.head, scope.known
        try:
            yield
        finally:
            self.lines, self._known = lines, known

    def hoisted(self, depth: int, instruction: str) -> str:
        """The result of `instruction`, made once in the head of the scope at `depth`."""
        if depth == HERE:
            return self.pure(instruction)
        scope = self.scopes[depth]
        name = scope.known.get(instruction)
        if name is None:
            self._count += 1
            name = scope.known[instruction] = f"%v{self._count}"
            scope.head.append(f"  {name} = {instruction}")
        return name

    def call(self, name: str, result: str, *arguments: tuple[str, str], flags: str = "") -> str:
        """A pure call of an intrinsic by arguments (type, value), declared as it is used."""
        types = ", ".join(type_name for type_name, _ in arguments)
        self.declarations.add(f"declare {result} @{name}({types})")
        values = ", ".join(f"{type_name} {value}" for type_name, value in arguments)
        return self.pure(f"call {flags}{result} @{name}({values})")

    def effect(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """A call of an intrinsic, made wherever it is asked for; "" where `result` is void."""
        types = ", ".join(type_name for type_name, _ in arguments)
        self.declarations.add(f"declare {result} @{name}({types})")
        values = ", ".join(f"{type_name} {value}" for type_name, value in arguments)
        call = f"call {result} @{name}({values})"
        if result != "void":
            return self.emit(call)
        self.put(call)
        return ""

    def overloaded(self, name: str, type_name: str, *values: str) -> str:
        """A pure call of an intrinsic whose arguments and result have one type."""
        head = self._heads.get((name, type_name))
        if head is None:
            full = f"{type_name} @llvm.{name}.{suffix(type_name)}"
            self.declarations.add(f"declare {full}({', '.join([type_name] * len(values))})")
            head = self._heads[name, type_name] = f"call {full}({type_name} "
        return self.pure(f"{head}{f', {type_name} '.join(values)})")

    def widen(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if value.lanes == lanes:
            return value
        if value.const is not None:
            return literal(value.const, value.dtype, lanes)
        wide = type_of(value.dtype, lanes)
        first = self.pure(f"insertelement {wide} poison, {value.type} {value.text}, i64 0")
        zeros = f"{vector('i32', lanes)} zeroinitializer"
        splat = self.pure(f"shufflevector {wide} {first}, {wide} poison, {zeros}")
        return Value(splat, value.dtype, lanes)

    def widen_group(self, value: Value, lanes: int) -> Value:
        """A group of neighbours, an i32, in every lane, for a dot product.

        Where that takes one lane of a register, the group is loaded as a float, into the first.
        LLVM would load it into every lane, which keeps a port of arithmetic busy, if it saw that
        what it multiplies by comes from memory; a vector of another type between hides it.
        """
        if value.lanes == lanes or not self.instructions.takes_lanes or value.const is not None:
            return self.widen(value, lanes)
        floats, words = vector("float", lanes), vector("i32", lanes)
        group = self.pure(f"bitcast i32 {value.text} to float")
        first = self.pure(f"insertelement {floats} poison, float {group}, i64 0")
        first = self.pure(f"bitcast {floats} {first} to {words}")
        splat = self.pure(f"shufflevector {words} {first}, {words} poison, {words} zeroinitializer")
        return Value(splat, value.dtype, lanes)

    def both(self, left: Value | None, right: Value | None) -> Value | None:
        """The conjunction of two conditions, None being one that always holds."""
        if left is None or right is None:
            return left or right
        lanes = max(left.lanes, right.lanes)
        left, right = self.widen(left, lanes), self.widen(right, lanes)
        text = self.pure(f"and {left.type} {left.text}, {right.text}")
        return Value(text, DType.BOOL, lanes)

    def negate(self, condition: Value) -> Value:
        true = literal(True, DType.BOOL, condition.lanes)
        text = self.pure(f"xor {condition.type} {condition.text}, {true.text}")
        return Value(text, DType.BOOL, condition.lanes)

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        """`then` where the condition holds, lane by lane."""
        lanes = max(condition.lanes, then.lanes, otherwise.lanes)
        then, otherwise = self.widen(then, lanes), self.widen(otherwise, lanes)
        if then.text == otherwise.text:
            return then
        text = self.pure(
            f"select {condition.type} {condition.text}, "
            f"{then.type} {then.text}, {otherwise.type} {otherwise.text}"
        )
        return Value(text, then.dtype, lanes)

    def text(self) -> str:
        """All lines, the entry's head first."""
        parts: list[str] = []
        _flatten(self.scopes[0].head, parts)
        _flatten(self.root, parts)
        if self.instructions.pair_reach:
            parts = paired(parts, self.instructions.pair_reach)
        return "\n".join(parts)


def _flatten(lines: Lines, into: list[str]) -> None:
    for line in lines:
        if isinstance(line, str):
            into.append(line)
        else:
            _flatten(line, into)
