"""Instructions: what a final loop function becomes before it is the text of a target.

    function    = Function(name, [argument], [statement] body, result?, is_exported)
    statement   = Instruction | Loop | While | Branch | Return | [statement]
    instruction = Instruction(operation, type, [operand], attribute, number)
    operation   = Operation(name, effect)
    loop        = Loop([carried], [statement] body, operand again, number)
    while       = While([carried], [statement] test, operand condition, [statement] body, number)
    branch      = Branch(operand condition, [statement] then, [statement] otherwise, [joined],
                         number)
    return      = Return(operand result, number)
    carried     = Carried(variable, operand first, operand next)
    joined      = Joined(variable, operand then, operand otherwise)
    operand     = Instruction | Variable | Constant | Lanes | Zero | Poison | Symbol
    variable    = Variable(type, name)          an argument, or what a loop or a branch hands on
    constant    = Constant(type, number)                                 the same in every lane
    lanes       = Lanes(type, [number])                                  a number for each lane
    zero        = Zero(type)
    poison      = Poison(type)                                                  any value at all
    symbol      = Symbol(type, name, definition?)           the address of something in the module
    definition  = Data | Function | Text
    data        = Data(content, alignment)
    text        = Text(name)                        what a file in the language of the target holds
    type        = Type(element, lanes, [part], space)
    effect      = pure | read | write | order | any

An instruction is its own result: others name it as their operand. Instructions, types and constants
are compared by identity. A builder makes equal pure instructions one, and types and constants are
made by functions that remember them, so a key of some of these is a key of their contents.

A `Loop` runs its body, with each `variable` of its `carried` first `first` and then `next`, until
`again` fails after it; a `While` tests its condition before the body. A `Branch` runs one side, and
each `variable` of its `joined` is then that side's operand. A `Return`
ends the function, and nothing runs what stands behind it in its body. A list within a body is the
head of a loop: instructions are added there from further in.

The attribute of an instruction holds the rest: the order of a comparison, the lanes that a
shuffle takes, the alignment of an access, the name of a function of the target. Its operation
declares what it may do to memory besides making a value. Numbers are the names of results, and of
labels, of which a return has one, a loop two, a test and a branch three.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias


@dataclasses.dataclass(slots=True, eq=False)
class Type:
    """`lanes` elements, such as f32, i1 or ptr; a "struct", an "array" or a "single" vector has
    parts instead. Pointers differ by their address space, a number of the target."""

    element: str
    lanes: int = 1
    parts: tuple[Type, ...] = ()
    space: int = 0

    def of(self, lanes: int) -> Type:
        """Return the vector of `lanes` of these elements."""
        return vector(self.element, lanes)


@functools.cache
def vector(element: str, lanes: int = 1) -> Type:
    """Return the type of `lanes` elements; one element is a scalar."""
    return Type(element, lanes)


@functools.cache
def pointer(space: int = 0) -> Type:
    """Return the type of pointers into an address space."""
    return Type("ptr", space=space) if space else vector("ptr")


@functools.cache
def struct_of(*parts: Type) -> Type:
    """Return the type of some values of any types."""
    return Type("struct", 1, parts)


@functools.cache
def array_of(part: Type, count: int) -> Type:
    """Return the type of `count` values of one type."""
    return Type("array", 1, (part,) * count)


@functools.cache
def single_of(part: Type) -> Type:
    """Return the vector of one lane, which masked accesses of one element take."""
    return Type("single", 1, (part,))


I1, I8, I16, I32, I64 = (vector(f"i{bits}") for bits in (1, 8, 16, 32, 64))
F16, BF16, F32, F64 = map(vector, ("f16", "bf16", "f32", "f64"))
PTR, VOID = pointer(), vector("void")


class Effect(enum.Enum):
    """The side of an instruction besides its value: it has none, or it reads memory, writes
    it, keeps accesses in order, or may do anything."""

    PURE = "pure"
    READ = "read"
    WRITE = "write"
    ORDER = "order"
    ANY = "any"


@dataclasses.dataclass(slots=True, eq=False)
class Operation:
    """The name of what instructions do, and their effect."""

    name: str
    effect: Effect = Effect.PURE


@dataclasses.dataclass(slots=True, eq=False)
class Variable:
    """A value that a function, a loop or a branch hands to the code in it or behind it."""

    type: Type
    name: str

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclasses.dataclass(slots=True, eq=False)
class Constant:
    """A number in every lane: a bool of i1, a float as its type holds it."""

    type: Type
    number: int | float | bool

    def __str__(self) -> str:
        return str(self.number)


@dataclasses.dataclass(slots=True, eq=False)
class Lanes:
    """A vector of numbers, one for each lane."""

    type: Type
    numbers: tuple[int | bool, ...]


@dataclasses.dataclass(slots=True, eq=False)
class Zero:
    """Zero in each lane and part, or the null pointer."""

    type: Type


@dataclasses.dataclass(slots=True, eq=False)
class Poison:
    """A value that may be anything, as nothing depends on it."""

    type: Type


@dataclasses.dataclass(slots=True, eq=False)
class Data:
    """Bytes in memory that nothing writes."""

    content: bytes
    alignment: int


@dataclasses.dataclass(slots=True, eq=False)
class Text:
    """A file in the language of the target."""

    name: str


@dataclasses.dataclass(slots=True, eq=False)
class Symbol:
    """The address of a function or of data; the module has the definitions of what it names."""

    type: Type
    name: str
    definition: Data | Function | Text | None = None


@dataclasses.dataclass(slots=True, eq=False)
class Instruction:
    """An operation on operands, and its result."""

    operation: Operation
    type: Type
    operands: tuple[Operand, ...]
    attribute: Any
    number: int

    def __str__(self) -> str:
        return f"%v{self.number}"


Operand: TypeAlias = Instruction | Variable | Constant | Lanes | Zero | Poison | Symbol


@dataclasses.dataclass(slots=True, eq=False)
class Carried:
    """A value that an iteration of a loop hands to the next."""

    variable: Variable
    first: Operand
    next: Operand


@dataclasses.dataclass(slots=True, eq=False)
class Joined:
    """A value that a branch leaves to the code behind it."""

    variable: Variable
    then: Operand
    otherwise: Operand


@dataclasses.dataclass(slots=True, eq=False)
class Loop:
    """A loop of at least one iteration."""

    carried: Sequence[Carried]
    body: Sequence[Statement]
    again: Operand
    number: int


@dataclasses.dataclass(slots=True, eq=False)
class While:
    """A loop that may have no iteration."""

    carried: Sequence[Carried]
    test: Sequence[Statement]
    condition: Operand
    body: Sequence[Statement]
    number: int


@dataclasses.dataclass(slots=True, eq=False)
class Branch:
    """One of two bodies, by a condition."""

    condition: Operand
    then: Sequence[Statement]
    otherwise: Sequence[Statement]
    joined: Sequence[Joined]
    number: int


@dataclasses.dataclass(slots=True, eq=False)
class Return:
    """The end of the function, before that of its body."""

    result: Operand
    number: int


# The last is the head of a loop. A list of statements is not a type that an alias can name itself.
Statement: TypeAlias = Instruction | Loop | While | Branch | Return | list[Any]


@dataclasses.dataclass(slots=True, eq=False)
class Function:
    """A function of the module, which returns `result` or nothing."""

    name: str
    arguments: Sequence[Variable]
    body: Sequence[Statement]
    result: Operand | None
    is_exported: bool = False


ADD, SUB, MUL, UDIV, SDIV, UREM = map(Operation, ("add", "sub", "mul", "udiv", "sdiv", "urem"))
AND, OR, XOR, SHL, LSHR, ASHR = map(Operation, ("and", "or", "xor", "shl", "lshr", "ashr"))
FADD, FSUB, FMUL, FDIV, FNEG = map(Operation, ("fadd", "fsub", "fmul", "fdiv", "fneg"))
ICMP, FCMP, SELECT = map(Operation, ("icmp", "fcmp", "select"))  # The attribute is an order.
TRUNC, ZEXT, SEXT, BITCAST = map(Operation, ("trunc", "zext", "sext", "bitcast"))
FPTRUNC, FPEXT = map(Operation, ("fptrunc", "fpext"))
FPTOSI, SITOFP, UITOFP = map(Operation, ("fptosi", "sitofp", "uitofp"))
SATURATE = Operation("saturate")  # A float to an integer, with or without sign (True, False).
MATH = Operation("math")  # A function of equal types, by name: fmuladd, sqrt, smin, …
REDUCE = Operation("reduce")  # All lanes into one; (name, what may be assumed).
EXTRACT, INSERT = map(Operation, ("extract", "insert"))  # The attribute is a lane.
SHUFFLE = Operation("shuffle")  # The lanes of two vectors that make one, -1 for any.
EXTRACT_PART, INSERT_PART = map(Operation, ("extract_part", "insert_part"))
OFFSET = Operation("offset")  # A pointer and a number of bytes.
OPAQUE = Operation("opaque")  # The operand, which no later pass shall look through.
STACK = Operation("stack")  # Memory of the function; (bytes, name).
LOAD = Operation("load", Effect.READ)  # The attribute is an alignment.
STORE = Operation("store", Effect.WRITE)
MASKED_LOAD = Operation("masked_load", Effect.READ)
MASKED_STORE = Operation("masked_store", Effect.WRITE)
PREFETCH = Operation("prefetch", Effect.ORDER)  # The attribute is how near, 3 the first level.
FENCE = Operation("fence", Effect.ORDER)
INTRINSIC = Operation("intrinsic")  # A pure function of the target; (name, what may be assumed).
# A function of the target or of another module; the attribute is its name.
INTRINSIC_EFFECT = Operation("intrinsic_effect", Effect.ANY)
ASSEMBLY = Operation("assembly", Effect.ANY)  # (text, constraints)
CALL = Operation("call", Effect.ANY)  # A function, and what it is given.


def number_of(type_: Type, value: int | float | bool) -> Constant:
    """Return the constant that holds a number in each lane of a type."""
    if isinstance(value, float):
        # By its bits, zeros of both signs are two constants, and a NaN is one.
        return _float(type_, struct.pack("<d", value))
    return _integer(type_, value)


@functools.cache
def index(value: int) -> Constant:
    """Return a number of bytes or elements."""
    return _integer(I64, value)


@functools.cache
def _float(type_: Type, bits: bytes) -> Constant:
    return Constant(type_, struct.unpack("<d", bits)[0])


@functools.cache
def _integer(type_: Type, value: int | bool) -> Constant:
    return Constant(type_, value)


@functools.cache
def lanes_of(type_: Type, *numbers: int | bool) -> Lanes:
    """Return the vector of these numbers."""
    return Lanes(type_, numbers)


@functools.cache
def zero(type_: Type) -> Zero:
    """Return the zero of a type."""
    return Zero(type_)


@functools.cache
def poison(type_: Type) -> Poison:
    """Return what stands for any value of a type."""
    return Poison(type_)


def symbol(name: str) -> Symbol:
    """Return the address of what the module, or another one, calls so."""
    return Symbol(PTR, name)
