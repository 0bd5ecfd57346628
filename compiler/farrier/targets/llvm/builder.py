"""The builder of one function's instructions.

Instructions are appended to a tree of lists, so that instructions can later be inserted at an
earlier position. Each loop has a `LoopScope` with a list `head` at the start of its body.
Instructions that do not depend on anything in the rest of the body are hoisted into this list. No
later pass hoists instructions, so every instruction is inserted at its final position.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from farrier.intrinsics.declare import Argument
from farrier.ir import instr
from farrier.ir.dim import Extent
from farrier.ir.expr import MemoryScope
from farrier.ir.instr import (
    I1,
    Branch,
    Instruction,
    Joined,
    Operand,
    Operation,
    Return,
    Statement,
    Type,
    Variable,
)
from farrier.ir.types import DType
from farrier.targets.llvm.llvm_text import operand_of, type_named
from farrier.targets.llvm.values import Value, literal

HERE = 1 << 30  # Stands for the current position; no scope has such a depth.

# Equal instructions share a key: operation, type, operands, attribute.
_Key: TypeAlias = tuple[Operation, Type, tuple[Operand, ...], Any]


class LoopScope:
    """The body of a loop, or of the whole function (depth 0). Its `head` is the list of
    instructions at the start of the body, into which loop-invariant instructions are hoisted.

    `known` maps each instruction in the head (its operation and operands) to its result, so that an
    equal one is not emitted again. `atoms` maps index expressions that are computed in the head to
    their values.

    Pointers may advance with the loop counter `variable`; it is None if no pointer may. `stepped`
    maps (start, step) to the pointer that begins at `start` and increases by `step` bytes in each
    iteration.
    """

    __slots__ = ("atoms", "head", "known", "stepped", "variable")

    def __init__(self, variable: Variable | None = None) -> None:
        self.variable = variable
        self.stepped: dict[tuple[Operand, Extent], Variable] = {}
        self.head: list[Statement] = []
        self.known: dict[_Key, Instruction] = {}
        self.atoms: dict[tuple[int, ...], Value] = {}


Nearest: TypeAlias = Callable[["Builder", Operand], Operand]
RoundedHigh: TypeAlias = Callable[["Builder", Operand, Operand], Operand]
Scale: TypeAlias = Callable[["Builder", Operand, Operand, Operand], Operand]


@dataclasses.dataclass(frozen=True, slots=True)
class Instructions:
    """Properties of a machine that determine which instructions the emitter uses where LLVM would
    not choose the best by itself.

    `scale(b, x, exponent, mask)` multiplies f32 vectors of `scale_bits` bits by powers of two with
    one instruction; lanes whose bit in the i16 `mask` is not set become 0. `fuses`: the machine has
    fused multiply-add. `rounds_bf16`: it has an instruction that rounds f32 to bf16.
    `converts_f16`: it has conversions between f32 and f16. `keeps_nan`: its minimum and maximum
    return NaN if an operand is NaN. `counts_loops`: the overhead of loop counters is significant.
    `takes_lanes`: its dot product can take one lane of a register as the factor for all lanes.
    `to_nearest_i32(b, x)` converts an f32 to an i32 with ties to even, saturation, and NaN to 0, if
    that is cheaper than rounding to a float first. `rounded_high(b, x, y)` is the upper half of
    x · y + 2³¹, for vectors of four i32. `pair_reach` is the largest offset in bytes of an
    instruction that loads or stores two vectors, 0 if there is none. `index_bits` is the width
    of addresses. `needs_alignment`: a load of a word at any other address than a multiple of its
    size is a fault. `has_pool`: a thread pool runs parallel loops; otherwise they are serial.
    `attributes` are LLVM attributes for every function, and `spaces` numbers the address spaces
    other than the default one.
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
    index_bits: int = 64
    needs_alignment: bool = False
    has_pool: bool = True
    to_nearest_i32: Nearest | None = None
    rounded_high: RoundedHigh | None = None
    attributes: tuple[str, ...] = ()
    spaces: Mapping[MemoryScope, int] = dataclasses.field(default_factory=dict)


class Builder:
    """The builder of a function. Equal pure instructions of a basic block are emitted only once.

    `in_memory` caches the memory representation of narrow floats by value and dtype.
    """

    def __init__(self, instructions: Instructions = Instructions()) -> None:
        self.instructions = instructions
        self.in_memory: dict[tuple[Operand, DType], Operand] = {}
        self.scopes = [LoopScope()]
        self.body: list[Statement] = [self.scopes[0].head]
        self._known: dict[_Key, Instruction] = {}
        self._count = 0

    def labels(self, count: int) -> int:
        """Reserve `count` consecutive label numbers, and return the first."""
        self._count += count
        return self._count - count + 1

    def pointer(self, scope: MemoryScope | None) -> Type:
        """Return the pointer type for memory of a scope, or for generic memory if the scope is
        None."""
        return instr.pointer(0 if scope is None else self.instructions.spaces.get(scope, 0))

    def variable(self, type_: Type, prefix: str) -> Variable:
        """Return a variable with an unused name that begins with `prefix`. The prefix "v" is
        reserved for instructions."""
        self._count += 1
        return Variable(type_, f"{prefix}{self._count}")

    # -- instructions of any kind

    def emit(
        self,
        operation: Operation,
        type_: Type,
        operands: tuple[Operand, ...],
        attribute: Any = None,
    ) -> Operand:
        """Append an instruction, and return its result."""
        self._count += 1
        instruction = Instruction(operation, type_, operands, attribute, self._count)
        self.body.append(instruction)
        return instruction

    def pure(
        self,
        operation: Operation,
        type_: Type,
        operands: tuple[Operand, ...],
        attribute: Any = None,
    ) -> Operand:
        """Return the result of an instruction without side effects, which depends only on its
        operands. If this basic block already contains an equal instruction, return its result;
        otherwise append a new one."""
        return self._once((operation, type_, operands, attribute), self._known, self.body)

    def _once(
        self, key: _Key, instructions: dict[_Key, Instruction], body: list[Statement]
    ) -> Instruction:
        """Return the one of `instructions` that equals `key`, or append a new one to `body`."""
        equal = instructions.get(key)
        if equal is None:
            self._count += 1
            equal = instructions[key] = Instruction(*key, self._count)
            body.append(equal)
        return equal

    def hoisted(
        self,
        depth: int,
        operation: Operation,
        type_: Type,
        operands: tuple[Operand, ...],
        attribute: Any = None,
    ) -> Operand:
        """Return the result of a pure instruction in the head (the beginning of the body) of the
        scope at `depth`. Insert the instruction there unless an equal one exists."""
        if depth == HERE:
            return self.pure(operation, type_, operands, attribute)
        scope = self.scopes[depth]
        return self._once((operation, type_, operands, attribute), scope.known, scope.head)

    def put(
        self, operation: Operation, operands: tuple[Operand, ...], attribute: Any = None
    ) -> Operand:
        """Append an instruction without a result."""
        instruction = Instruction(operation, instr.VOID, operands, attribute, 0)
        self.body.append(instruction)
        return instruction

    # -- bodies

    @contextlib.contextmanager
    def nested(self) -> Iterator[list[Statement]]:
        """Redirect instructions to a new list of statements, which starts and ends a basic
        block."""
        outer = self.body
        self.body, self._known = [], {}
        try:
            yield self.body
        finally:
            self.body, self._known = outer, {}

    def branch(
        self,
        condition: Operand,
        then: Sequence[Statement],
        otherwise: Sequence[Statement] = (),
        joined: Sequence[Joined] = (),
    ) -> None:
        """Append a branch that runs the statements `then` if the condition holds, else `otherwise`.
        Each variable in `joined` is a phi: its value after the branch depends on which side ran."""
        self.body.append(Branch(condition, then, otherwise, joined, self.labels(3)))

    @contextlib.contextmanager
    def only_if(self, condition: Operand) -> Iterator[None]:
        """Emit an if-statement: the instructions that the caller emits within the with-block are
        executed only if the condition holds."""
        with self.nested() as body:
            yield
        self.branch(condition, body)

    def leave(self, result: Operand) -> None:
        """Append a return from the function with a result."""
        self.body.append(Return(result, self.labels(1)))

    def open_scope(self, variable: Variable | None = None) -> LoopScope:
        """Open a new scope at the current position and return it. Instructions hoisted to the scope
        are inserted at this position. `variable` is the loop counter if pointers may advance with
        it, else None."""
        scope = LoopScope(variable)
        self.body.append(scope.head)
        self.scopes.append(scope)
        return scope

    def close_scope(self) -> None:
        self.scopes.pop()

    @contextlib.contextmanager
    def at_head(self, depth: int) -> Iterator[None]:
        """Redirect instructions, all of them scalar, to the head (the beginning of the body) of the
        scope at `depth`."""
        body, instructions = self.body, self._known
        scope = self.scopes[depth]
        self.body, self._known = scope.head, scope.known
        try:
            yield
        finally:
            self.body, self._known = body, instructions

    # -- constructors

    def op(self, operation: Operation, left: Operand, right: Operand) -> Operand:
        """Return the result of an arithmetic operation on two operands of the same type."""
        return self.pure(operation, left.type, (left, right))

    def icmp(self, order: str, left: Operand, right: Operand) -> Operand:
        """Return the comparison of integers or pointers by an LLVM predicate such as "slt"."""
        return self.pure(instr.ICMP, I1.of(left.type.lanes), (left, right), order)

    def fcmp(self, order: str, left: Operand, right: Operand) -> Operand:
        """Return the comparison of floats by an LLVM predicate such as "olt"."""
        return self.pure(instr.FCMP, I1.of(left.type.lanes), (left, right), order)

    def choose(self, condition: Operand, then: Operand, otherwise: Operand) -> Operand:
        """Return `then` in lanes where the condition holds, and `otherwise` in the other lanes."""
        return self.pure(instr.SELECT, then.type, (condition, then, otherwise))

    def convert(self, operation: Operation, x: Operand, to: Type) -> Operand:
        """Return `x` converted to another type by an LLVM conversion operation."""
        return self.pure(operation, to, (x,))

    def bitcast(self, x: Operand, to: Type) -> Operand:
        """Return the bits of `x` reinterpreted as another type."""
        return self.pure(instr.BITCAST, to, (x,))

    def fneg(self, x: Operand) -> Operand:
        return self.pure(instr.FNEG, x.type, (x,))

    def math(self, name: str, *operands: Operand) -> Operand:
        """Return the result of an LLVM math intrinsic, whose operands and result have the same
        type."""
        return self.pure(instr.MATH, operands[0].type, operands, name)

    def reduce(self, name: str, *operands: Operand, flags: str = "") -> Operand:
        """Return all lanes of the last operand reduced to one value. If there are two operands, the
        first is the start value."""
        element = vector_element(operands[-1].type)
        return self.pure(instr.REDUCE, element, operands, (name, flags))

    def extract(self, x: Operand, lane: int) -> Operand:
        return self.pure(instr.EXTRACT, vector_element(x.type), (x,), lane)

    def insert(self, x: Operand, element: Operand, lane: int) -> Operand:
        return self.pure(instr.INSERT, x.type, (x, element), lane)

    def shuffle(self, x: Operand, other: Operand | None, order: Sequence[int]) -> Operand:
        """Return a vector whose lane i is lane `order[i]` of `x`, or of `x` followed by `other`. If
        `order[i]` is -1, the lane is undefined."""
        if other is None:
            other = instr.poison(x.type)
        return self.pure(instr.SHUFFLE, x.type.of(len(order)), (x, other), tuple(order))

    def single(self, x: Operand) -> Operand:
        """Return a scalar as a vector of one lane."""
        return self.insert(instr.poison(instr.single_of(x.type)), x, 0)

    def splat(self, x: Operand, lanes: int) -> Operand:
        """Return a vector with the scalar in every lane."""
        first = self.insert(instr.poison(x.type.of(lanes)), x, 0)
        return self.shuffle(first, None, (0,) * lanes)

    def part(self, x: Operand, number: int) -> Operand:
        """Return the member with index `number` of a struct or array value."""
        return self.pure(instr.EXTRACT_PART, x.type.parts[number], (x,), number)

    def with_part(self, x: Operand, part: Operand, number: int) -> Operand:
        """Return a copy of the struct or array value `x` in which the member with index `number` is
        `part`."""
        return self.pure(instr.INSERT_PART, x.type, (x, part), number)

    def offset(self, pointer: Operand, nbytes: Operand | int) -> Operand:
        """Return the address `nbytes` bytes after a pointer."""
        if isinstance(nbytes, int):
            nbytes = instr.index(nbytes)
        return self.pure(instr.OFFSET, pointer.type, (pointer, nbytes))

    def load(
        self, type_: Type, pointer: Operand, alignment: int, *, is_constant: bool = False
    ) -> Operand:
        """Return the value in memory at an address. If `is_constant` is true, the memory never
        changes and loads may be merged."""
        make = self.pure if is_constant else self.emit
        return make(instr.LOAD, type_, (pointer,), alignment)

    def store(self, value: Operand, pointer: Operand, alignment: int | None) -> None:
        self.put(instr.STORE, (value, pointer), alignment)

    def call(self, name: str, result: Type | str, *arguments: Argument, flags: str = "") -> Operand:
        """Return the result of a pure LLVM intrinsic of the target."""
        operands = tuple(map(operand_of, arguments))
        return self.pure(instr.INTRINSIC, type_named(result), operands, (name, flags))

    def effect(self, name: str, result: Type | str, *arguments: Argument) -> Operand:
        """Append a call of an intrinsic with side effects, and return its result."""
        operands, type_ = tuple(map(operand_of, arguments)), type_named(result)
        if type_ is instr.VOID:
            return self.put(instr.INTRINSIC_EFFECT, operands, name)
        return self.emit(instr.INTRINSIC_EFFECT, type_, operands, name)

    def assembly(self, text: str, constraints: str, result: Type) -> Operand:
        """Append a line of inline assembly, and return its result."""
        return self.emit(instr.ASSEMBLY, result, (), (text, constraints, ""))

    def shared_assembly(
        self, text: str, constraints: str, result: Type, *operands: Operand
    ) -> Operand:
        """Append inline assembly that threads execute together, so that LLVM does not duplicate it
        or move it to a branch. Return its result."""
        attribute = text, constraints, " convergent"
        if result is instr.VOID:
            return self.put(instr.ASSEMBLY, operands, attribute)
        return self.emit(instr.ASSEMBLY, result, operands, attribute)

    # -- values

    def widen(self, value: Value, lanes: int) -> Value:
        """Return a scalar value as a vector with the value in every lane. Vectors are returned
        unchanged."""
        if value.lanes == lanes:
            return value
        if value.const is not None:
            return literal(value.const, value.dtype, lanes)
        return Value(self.splat(value.operand, lanes), value.dtype, lanes)

    def widen_group(self, value: Value, lanes: int) -> Value:
        """Return `value`, which holds a group of adjacent elements as one i32, repeated in all
        `lanes` lanes, as operand of a dot product.

        Some dot-product instructions (`takes_lanes`) can read the group from a single lane of a
        register. For these, the group is loaded as a float into the first lane only. LLVM must not
        recognize that the group comes from memory, since it would then load it into every lane,
        which occupies an arithmetic port. An intermediate vector of another type prevents that.
        """
        if value.lanes == lanes or not self.instructions.takes_lanes or value.const is not None:
            return self.widen(value, lanes)
        group = self.bitcast(value.operand, instr.F32)
        first = self.insert(instr.poison(instr.F32.of(lanes)), group, 0)
        words = self.bitcast(first, instr.I32.of(lanes))
        return Value(self.shuffle(words, None, (0,) * lanes), value.dtype, lanes)

    def both(self, left: Value | None, right: Value | None) -> Value | None:
        """Return the conjunction of two conditions. None as an argument or as the result stands for
        a condition that is always true."""
        if left is None or right is None:
            return left or right
        lanes = max(left.lanes, right.lanes)
        left, right = self.widen(left, lanes), self.widen(right, lanes)
        return Value(self.op(instr.AND, left.operand, right.operand), DType.BOOL, lanes)

    def negate(self, condition: Value) -> Value:
        true = literal(True, DType.BOOL, condition.lanes)
        negated = self.op(instr.XOR, condition.operand, true.operand)
        return Value(negated, DType.BOOL, condition.lanes)

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        """Return a value that is `then` in lanes where the condition holds, and `otherwise` in the
        other lanes."""
        lanes = max(condition.lanes, then.lanes, otherwise.lanes)
        then, otherwise = self.widen(then, lanes), self.widen(otherwise, lanes)
        if then.operand is otherwise.operand:
            return then
        chosen = self.choose(condition.operand, then.operand, otherwise.operand)
        return Value(chosen, then.dtype, lanes)


def vector_element(type_: Type) -> Type:
    """Return the scalar type of one lane of a vector type."""
    return type_.of(1)
