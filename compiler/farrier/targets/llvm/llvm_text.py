"""The conversion of instructions to LLVM text, by a table with the text of each operation.

Names and labels are derived from instruction numbers, and a module declares the functions that its
instructions call.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from farrier.intrinsics.declare import Argument
from farrier.ir import instr
from farrier.ir.instr import (
    Branch,
    Carried,
    Constant,
    Data,
    Function,
    Instruction,
    Lanes,
    Loop,
    Operand,
    Operation,
    Poison,
    Return,
    Statement,
    Symbol,
    Text,
    Type,
    Variable,
    While,
    Zero,
    vector,
)

# -- types and constants

_ELEMENTS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}
_NAMED = {name: element for element, name in _ELEMENTS.items()}


class _Types(dict[Type, str]):
    def __missing__(self, type_: Type) -> str:
        text = self[type_] = _type_text(type_)
        return text


def _type_text(type_: Type) -> str:
    if type_.element == "struct":
        return f"{{ {', '.join(map(_type_text, type_.parts))} }}"
    if type_.space:
        return f"ptr addrspace({type_.space})"
    if type_.element == "single":
        return f"<1 x {_type_text(type_.parts[0])}>"
    if type_.element == "array":
        return f"[{len(type_.parts)} x {_type_text(type_.parts[0])}]"
    element = _ELEMENTS.get(type_.element, type_.element)
    return element if type_.lanes == 1 else f"<{type_.lanes} x {element}>"


_TYPES = _Types()


def type_named(type_: Type | str) -> Type:
    """Return the type with this LLVM spelling: a scalar, a vector, or an array of these."""
    return _type_named(type_) if isinstance(type_, str) else type_


@functools.cache
def _type_named(text: str) -> Type:
    if match := re.fullmatch(r"<(\d+) x (\w+)>", text):
        return vector(_NAMED.get(match[2], match[2]), int(match[1]))
    if match := re.fullmatch(r"\[(\d+) x (.+)\]", text):
        return instr.array_of(type_named(match[2]), int(match[1]))
    return vector(_NAMED.get(text, text))


def suffix(type_: Type) -> str:
    """Return the spelling of a type in intrinsic names, such as `v16f32` for `<16 x float>`."""
    if type_.element == "single":
        return f"v1{suffix(type_.parts[0])}"
    element = f"p{type_.space}" if type_.element == "ptr" else type_.element
    return element if type_.lanes == 1 else f"v{type_.lanes}{element}"


def operand_of(argument: Argument) -> Operand:
    """Return an intrinsic's argument as an operand. The argument may be an integer, or a zero in
    LLVM's spelling."""
    name, value = argument if isinstance(argument, tuple) else ("", argument)
    if not isinstance(value, str):
        return value
    type_ = type_named(name)
    return instr.zero(type_) if value == "zeroinitializer" else instr.number_of(type_, int(value))


@functools.cache
def _literal(x: Constant | Lanes | Zero | Poison) -> str:
    match x:
        case Constant(type_, number):
            text = _number(number)
            return text if type_.lanes == 1 else f"splat ({_TYPES[type_.of(1)]} {text})"
        case Lanes(type_, numbers):
            element = _TYPES[type_.of(1)]
            return f"<{', '.join(f'{element} {_number(number)}' for number in numbers)}>"
        case Zero(type_):
            return "null" if type_.element == "ptr" else "zeroinitializer"
        case Poison():
            return "poison"


def _number(number: int | float | bool) -> str:
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, int):
        return str(number)
    # The hexadecimal bits of a double are what LLVM asks for.
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


class _Names(dict[Operand, str]):
    """The names of operands in the text. `declare` is called with each symbol that is named."""

    def __init__(self, declare: Callable[[Symbol], None]) -> None:
        super().__init__()
        self._declare = declare

    def __missing__(self, x: Operand) -> str:
        if type(x) is Constant:
            text = _literal(x)
        elif isinstance(x, Instruction):
            text = f"%v{x.number}"
        elif isinstance(x, Variable):
            text = f"%{x.name}"
        elif isinstance(x, Symbol):
            text = f"@{x.name}"
            self._declare(x)
        else:
            text = _literal(x)
        self[x] = text
        return text


# -- instructions


@dataclasses.dataclass(frozen=True, slots=True)
class Convention:
    """The form of function definitions: the calling convention and the argument attributes of
    exported functions, and the attribute of the functions that they call."""

    name: str = ""
    of_arguments: str = ""
    of_called: str = "noinline"


PLAIN = Convention()


class Declarations:
    """The declarations and definitions that a module needs. Methods return the text of a call in
    pieces, which are cached for each function and type."""

    def __init__(self, lines: set[str], convention: Convention = PLAIN) -> None:
        self.lines = lines
        self._convention = convention
        self._heads: dict[tuple[str, Type], tuple[str, str]] = {}

    def math(self, name: str, type_: Type, count: int) -> tuple[str, str]:
        """Declare an intrinsic with `count` arguments; they and the result have the same type.
        Return two pieces of text: of a call up to its first argument, and between two arguments."""
        head = self._heads.get((name, type_))
        if head is None:
            text = _TYPES[type_]
            full = f"{text} @llvm.{name}.{suffix(type_)}"
            self.lines.add(f"declare {full}({', '.join([text] * count)})")
            head = self._heads[name, type_] = f"call {full}({text} ", f", {text} "
        return head

    def define(self, symbol: Symbol) -> None:
        """Add the definition of a symbol, and of the symbols that it refers to."""
        match symbol.definition:
            case Function() as function:
                attribute = self._convention.of_called
                self.lines.add(definition(function, attribute, self.lines, self._convention))
            case Data(content, alignment):
                kind = f"private unnamed_addr constant [{len(content)} x i8]"
                text = "".join([rf"\{byte:02x}" for byte in content])
                self.lines.add(f'@{symbol.name} = {kind} c"{text}", align {alignment}')
            case None:
                pass  # What another module, or the kernel itself, defines.
            case Text(name):
                self.lines.add((Path(__file__).parent / "support" / name).read_text())
                # The attributes of the functions in such files.
                self.lines.add(f"attributes #0 = {{ {self._convention.of_called} nounwind }}")

    def function(self, name: str, result: Type, arguments: Iterable[Type]) -> str:
        """Declare a function, and return the text of a call up to its first argument."""
        types = ", ".join(_TYPES[argument] for argument in arguments)
        self.lines.add(f"declare {_TYPES[result]} @{name}({types})")
        return f"{_TYPES[result]} @{name}"


_Writer: TypeAlias = Callable[[Instruction, _Names, Declarations], str]


def _binary(name: str) -> _Writer:
    def write(x: Instruction, names: _Names, _: Declarations) -> str:
        left, right = x.operands
        return f"{name} {_TYPES[x.type]} {names[left]}, {names[right]}"

    return write


def _flagged(name: str) -> _Writer:
    """Return the writer of a binary operation whose attribute, if any, is its flags."""

    def write(x: Instruction, names: _Names, _: Declarations) -> str:
        left, right = x.operands
        flags = f"{x.attribute} " if x.attribute else ""
        return f"{name} {flags}{_TYPES[x.type]} {names[left]}, {names[right]}"

    return write


def _conversion(name: str) -> _Writer:
    def write(x: Instruction, names: _Names, _: Declarations) -> str:
        (operand,) = x.operands
        return f"{name} {_TYPES[operand.type]} {names[operand]} to {_TYPES[x.type]}"

    return write


def _comparison(name: str) -> _Writer:
    def write(x: Instruction, names: _Names, _: Declarations) -> str:
        left, right = x.operands
        return f"{name} {x.attribute} {_TYPES[left.type]} {names[left]}, {names[right]}"

    return write


def _typed(operands: Iterable[Operand], names: _Names) -> str:
    return ", ".join([f"{_TYPES[x.type]} {names[x]}" for x in operands])


def _listed(name: str) -> _Writer:
    """Return the writer of an instruction whose operands are each preceded by their type."""

    def write(x: Instruction, names: _Names, _: Declarations) -> str:
        return f"{name} {_typed(x.operands, names)}"

    return write


def _at_lane(name: str) -> _Writer:
    def write(x: Instruction, names: _Names, _: Declarations) -> str:
        return f"{name} {_typed(x.operands, names)}, i64 {x.attribute}"

    return write


def _at_part(name: str) -> _Writer:
    def write(x: Instruction, names: _Names, _: Declarations) -> str:
        return f"{name} {_typed(x.operands, names)}, {x.attribute}"

    return write


def _shuffle(x: Instruction, names: _Names, _: Declarations) -> str:
    order, count = x.attribute, len(x.attribute)
    if not any(order) and not isinstance(x.operands[1], Instruction):
        return f"shufflevector {_typed(x.operands, names)}, <{count} x i32> zeroinitializer"
    lanes = ", ".join(["i32 poison" if n < 0 else f"i32 {n}" for n in order])
    return f"shufflevector {_typed(x.operands, names)}, <{count} x i32> <{lanes}>"


def _math(x: Instruction, names: _Names, declarations: Declarations) -> str:
    head, between = declarations.math(x.attribute, x.type, len(x.operands))
    return f"{head}{between.join([names[operand] for operand in x.operands])})"


def _reduce(x: Instruction, names: _Names, declarations: Declarations) -> str:
    name, flags = x.attribute
    full = f"llvm.vector.reduce.{name}.{suffix(x.operands[-1].type)}"
    called = declarations.function(full, x.type, (operand.type for operand in x.operands))
    return f"call {flags}{called}({_typed(x.operands, names)})"


def _saturate(x: Instruction, names: _Names, declarations: Declarations) -> str:
    (operand,) = x.operands
    sign = "s" if x.attribute else "u"
    full = f"llvm.fpto{sign}i.sat.{suffix(x.type)}.{suffix(operand.type)}"
    return (
        f"call {declarations.function(full, x.type, (operand.type,))}({_typed(x.operands, names)})"
    )


def _intrinsic(x: Instruction, names: _Names, declarations: Declarations) -> str:
    name, flags = x.attribute
    called = declarations.function(name, x.type, (operand.type for operand in x.operands))
    return f"call {flags}{called}({_typed(x.operands, names)})"


def _intrinsic_effect(x: Instruction, names: _Names, declarations: Declarations) -> str:
    called = declarations.function(x.attribute, x.type, (operand.type for operand in x.operands))
    return f"call {called}({_typed(x.operands, names)})"


def _assembly(x: Instruction, names: _Names, _: Declarations) -> str:
    text, constraints, flags = x.attribute
    operands = _typed(x.operands, names)
    return f'call {_TYPES[x.type]} asm sideeffect "{text}", "{constraints}"({operands}){flags}'


def _opaque(x: Instruction, names: _Names, _: Declarations) -> str:
    return f'call {_TYPES[x.type]} asm "", "=r,0"({_typed(x.operands, names)})'


def _call(x: Instruction, names: _Names, _: Declarations) -> str:
    function, *arguments = x.operands
    return f"call {_TYPES[x.type]} {names[function]}({_typed(arguments, names)})"


def _offset(x: Instruction, names: _Names, _: Declarations) -> str:
    pointer, nbytes = x.operands
    number = f"i64 {nbytes.number}" if type(nbytes) is Constant else _typed((nbytes,), names)
    return f"getelementptr i8, {_TYPES[x.type]} {names[pointer]}, {number}"


def _stack(x: Instruction, names: _Names, _: Declarations) -> str:
    nbytes, name = x.attribute
    space = f", addrspace({x.type.space})" if x.type.space else ""
    return f"alloca [{nbytes} x i8], align 64{space} ; {name}"


def _load(x: Instruction, names: _Names, _: Declarations) -> str:
    (pointer,) = x.operands
    at = f"{_TYPES[pointer.type]} {names[pointer]}"
    return f"load {_TYPES[x.type]}, {at}, align {x.attribute}"


def _store(x: Instruction, names: _Names, _: Declarations) -> str:
    return f"store {_typed(x.operands, names)}, align {x.attribute}"


def _masked_load(x: Instruction, names: _Names, declarations: Declarations) -> str:
    pointer, mask = x.operands
    kind, name = _TYPES[x.type], f"llvm.masked.load.{suffix(x.type)}.{suffix(pointer.type)}"
    called = declarations.function(name, x.type, (pointer.type, mask.type, x.type))
    at = f"{_TYPES[pointer.type]} align {x.attribute} {names[pointer]}"
    return f"call {called}({at}, {_TYPES[mask.type]} {names[mask]}, {kind} zeroinitializer)"


def _masked_store(x: Instruction, names: _Names, declarations: Declarations) -> str:
    value, pointer, mask = x.operands
    name = f"llvm.masked.store.{suffix(value.type)}.{suffix(pointer.type)}"
    called = declarations.function(name, instr.VOID, (value.type, pointer.type, mask.type))
    at = f"{_TYPES[pointer.type]} align {x.attribute} {names[pointer]}"
    kind, mask_type = _TYPES[value.type], _TYPES[mask.type]
    return f"call {called}({kind} {names[value]}, {at}, {mask_type} {names[mask]})"


def _prefetch(x: Instruction, names: _Names, declarations: Declarations) -> str:
    (pointer,) = x.operands
    name = f"llvm.prefetch.{suffix(pointer.type)}"
    called = declarations.function(name, instr.VOID, (pointer.type, *[instr.I32] * 3))
    return f"call {called}({_typed(x.operands, names)}, i32 0, i32 {x.attribute}, i32 1)"


def _fence(x: Instruction, names: _Names, _: Declarations) -> str:
    return 'fence syncscope("singlethread") acq_rel'


_WRITERS: Mapping[Operation, _Writer] = {
    **{
        operation: _binary(operation.name)
        for operation in (
            instr.SUB, instr.UDIV, instr.SDIV, instr.UREM, instr.AND, instr.OR,
            instr.XOR, instr.SHL, instr.LSHR, instr.ASHR, instr.FDIV,
        )
    },
    **{
        operation: _flagged(operation.name)
        for operation in (instr.ADD, instr.MUL, instr.FADD, instr.FSUB, instr.FMUL)
    },
    **{
        operation: _conversion(operation.name)
        for operation in (
            instr.TRUNC, instr.ZEXT, instr.SEXT, instr.BITCAST, instr.FPTRUNC, instr.FPEXT,
            instr.FPTOSI, instr.SITOFP, instr.UITOFP, instr.PTRTOINT,
        )
    },
    instr.FNEG: _listed("fneg"),
    instr.SELECT: _listed("select"),
    instr.ICMP: _comparison("icmp"),
    instr.FCMP: _comparison("fcmp"),
    instr.SATURATE: _saturate,
    instr.MATH: _math,
    instr.REDUCE: _reduce,
    instr.EXTRACT: _at_lane("extractelement"),
    instr.INSERT: _at_lane("insertelement"),
    instr.SHUFFLE: _shuffle,
    instr.EXTRACT_PART: _at_part("extractvalue"),
    instr.INSERT_PART: _at_part("insertvalue"),
    instr.OFFSET: _offset,
    instr.OPAQUE: _opaque,
    instr.STACK: _stack,
    instr.LOAD: _load,
    instr.STORE: _store,
    instr.MASKED_LOAD: _masked_load,
    instr.MASKED_STORE: _masked_store,
    instr.PREFETCH: _prefetch,
    instr.FENCE: _fence,
    instr.INTRINSIC: _intrinsic,
    instr.INTRINSIC_EFFECT: _intrinsic_effect,
    instr.ASSEMBLY: _assembly,
    instr.CALL: _call,
}  # fmt: skip


def lines_of(statements: Sequence[Statement], declarations: set[str] | None = None) -> list[str]:
    """Return the lines of text of a function body, and add the functions that it calls to the
    declarations."""
    body = _Body(Declarations(set() if declarations is None else declarations))
    body.write(statements)
    return body.lines


# -- functions


def definition(
    function: Function, attributes: str, declarations: set[str], convention: Convention = PLAIN
) -> str:
    """Return the text of a function definition, and add the functions that it calls to the
    declarations."""
    of_arguments = f" {convention.of_arguments}" if function.is_exported else ""
    of_arguments = of_arguments.rstrip()
    arguments = ", ".join(
        f"{_TYPES[a.type]}{of_arguments if a.attributes is None else f' {a.attributes}'} %{a.name}"
        for a in function.arguments
    )
    body = _Body(Declarations(declarations, convention))
    body.write(function.body)
    kind, end = "void", "ret void"
    if function.result is not None:
        kind = _TYPES[function.result.type]
        end = f"ret {kind} {body.names[function.result]}"
    exported = f"{convention.name} " if convention.name else ""
    linkage = exported if function.is_exported else "internal "
    signature = f"define {linkage}{kind} @{function.name}({arguments}) nounwind {attributes}"
    lines = "\n".join(body.lines)
    return f"{signature} {{\nentry:\n{lines}\n  {end}\n}}"


def module_text(functions: Iterable[Function], attributes: str = "") -> str:
    """Return the text of an LLVM module that contains `functions`, together with the declarations
    and definitions of everything that they use."""
    declared: set[str] = set()
    definitions = [definition(function, attributes, declared) for function in functions]
    return "\n".join([*definitions, *sorted(declared), ""])


class _Body:
    """The lines of a function body under construction."""

    def __init__(self, declarations: Declarations) -> None:
        self.lines: list[str] = []
        self.names = _Names(declarations.define)
        self._declarations = declarations
        self._block = "entry"

    def write(self, statements: Sequence[Statement]) -> None:
        lines, names, declarations = self.lines, self.names, self._declarations
        void, writers = instr.VOID, _WRITERS
        for x in statements:
            if type(x) is Instruction:
                text = writers[x.operation](x, names, declarations)
                if x.type is void:
                    lines.append(f"  {text}")
                else:
                    name = names[x] = f"%v{x.number}"
                    lines.append(f"  {name} = {text}")
            elif isinstance(x, list):
                self.write(x)
            elif isinstance(x, Loop):
                self._loop(x)
            elif isinstance(x, While):
                self._while(x)
            elif isinstance(x, Return):
                lines.append(f"  ret {_TYPES[x.result.type]} {names[x.result]}")
                self._open(f"behind{x.number}")
            else:
                assert isinstance(x, Branch)
                self._branch(x)

    def _open(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._block = label

    def _loop(self, x: Loop) -> None:
        before = self._block
        label, done = f"loop{x.number}", f"done{x.number + 1}"
        self.lines.append(f"  br label %{label}")
        self._open(label)
        start = len(self.lines)
        self.write(x.body)
        self._carry(start, x.carried, before)
        self.lines.append(f"  br i1 {self.names[x.again]}, label %{label}, label %{done}")
        self._open(done)

    def _while(self, x: While) -> None:
        number, before = x.number, self._block
        label, body, done = f"while{number}", f"body{number + 1}", f"done{number + 2}"
        self.lines.append(f"  br label %{label}")
        self._open(label)
        start = len(self.lines)
        self.write(x.test)
        self.lines.append(f"  br i1 {self.names[x.condition]}, label %{body}, label %{done}")
        self._open(body)
        self.write(x.body)
        self._carry(start, x.carried, before)
        self.lines.append(f"  br label %{label}")
        self._open(done)

    def _branch(self, x: Branch) -> None:
        names = self.names
        then, after = f"then{x.number}", f"after{x.number + 1}"
        other = f"else{x.number + 2}" if x.otherwise else after
        self.lines.append(f"  br i1 {names[x.condition]}, label %{then}, label %{other}")
        before = self._block
        then_end = self._side(then, x.then, after)
        other_end = self._side(other, x.otherwise, after) if x.otherwise else before
        self._open(after)
        for handed in x.joined:
            ways = (handed.then, then_end), (handed.otherwise, other_end)
            self.lines.append(self._phi(handed.variable, ways))

    def _side(self, label: str, body: Sequence[Statement], after: str) -> str:
        """Write the basic blocks of one side of a branch, which begin with `label` and end with a
        jump to `after`. Return the label of the last of these blocks, for the phis after the
        branch."""
        self._open(label)
        self.write(body)
        self.lines.append(f"  br label %{after}")
        return self._block

    def _carry(self, start: int, carried: Sequence[Carried], before: str) -> None:
        """Insert the phis of a loop at the line `start`, the beginning of the loop. `before` is the
        label of the block that precedes the loop. This is done after the body has been written,
        since the phis refer to values at its end."""
        self.lines[start:start] = [
            self._phi(handed.variable, ((handed.first, before), (handed.next, self._block)))
            for handed in carried
        ]

    def _phi(self, variable: Variable, ways: Iterable[tuple[Operand, str]]) -> str:
        texts = ", ".join(f"[ {self.names[x]}, %{block} ]" for x, block in ways)
        return f"  %{variable.name} = phi {_TYPES[variable.type]} {texts}"
