"""The driver of a whole model: one entry point that takes the steps of a program in order
(`farrier.partition.program`), each value at its place in memory. It calls kernels, nothing else.

i32 @farrier_entry(ptr %args, ptr %pool)    args = inputs…, outputs…, params, workspace, sizes?

`sizes` are i64: what the caller gives, then room for what the entry finds out. A size found that
does not fit what the caller gave ends the call: the entry returns -1 - n for its check n, and
leaves the size in the last of that room. So does a branch that cannot be taken, for a check of its
own.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from farrier.ir import instr
from farrier.ir.dim import Extent, Symbol, symbols
from farrier.ir.graph import Value
from farrier.ir.instr import I64, Instruction, Operand, Operation, Type, Variable
from farrier.ir.sizes import Demand
from farrier.partition.addresses import Addresses, Sizes, ends_of_copy, position_of
from farrier.partition.checks import Checks, Limit
from farrier.partition.plan_memory import MemoryPlan, Place, Segment, buffers_of
from farrier.partition.program import (
    Bind,
    Branch,
    Call,
    Copy,
    DriverProgram,
    Fail,
    Launch,
    Repeat,
    Step,
    Wait,
    calls_in,
)
from farrier.targets.cpu.codegen.extents import Make, emit_extent, emit_largest
from farrier.targets.cpu.codegen.llvm_text import expression, operand_text
from farrier.targets.cpu.part import WORKSPACE_BYTES
from farrier.targets.linked import Check

ENTRY = "farrier_entry"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A module with an entry point, and the checks that it makes, in the order of their numbers."""

    text: str
    checks: tuple[Check, ...]


def emit_entry(
    program: DriverProgram,
    addresses: Addresses,
    name: str = ENTRY,
    dims: Sequence[Symbol] = (),
    usual: Mapping[str, int] | None = None,
    first_check: int = 0,
) -> Entry:
    """The entry point of a program, the kernels that it calls being declared.

    `dims` are what a caller says, where that is not what the program says. With `usual`, sizes that
    kernels leave in memory are these instead, by symbol, others are held to their limits, and no
    branch is taken that fails: an entry to measure, whatever the memory holds.

    It returns the first non-zero code of a kernel or of a check, and 0 when all have run. The
    entry's last argument points to i64: the values of the dims, behind them room for those that are
    counted, which it finds out, and for the size at which a check fails.
    """
    driver = _Driver(program, addresses, dims or program.dims, usual, first_check)
    driver.steps(program.steps)
    called = {addresses.calls[call.outputs[0].name].function for call in calls_in(program.steps)}
    lines = [
        f"define i32 @{name}(ptr %args, ptr %pool) nounwind {{",
        "entry:",
        *driver.head,
        *driver.code,
        "  ret i32 0",
        "}",
        *(f"declare i32 @{function}(ptr, ptr)" for function in sorted(called)),
        "",
    ]
    return Entry("\n".join(lines), tuple(driver.checks.checks))


@dataclasses.dataclass(frozen=True, slots=True)
class HotEntry:
    """Code for one size of each of the first dims, as the entry `name`, and how its memory is laid
    out, which may depend on the others."""

    sizes: tuple[int, ...]
    name: str
    memory: MemoryPlan


def emit_dispatch(inputs: int, outputs: int, hot: Sequence[HotEntry], otherwise: str) -> str:
    """A module with the entry point that calls the code made for the sizes at hand, or that for all
    sizes."""
    lines = [
        f"define i32 @{ENTRY}(ptr %args, ptr %pool) nounwind {{",
        "entry:",
        f"  %slot = getelementptr ptr, ptr %args, i64 {inputs + outputs + 2}",
        "  %dims = load ptr, ptr %slot, align 8",
    ]
    for number, one in enumerate(hot):
        lines += _compared(number, one.sizes)
        lines.append(f"  br i1 %is{number}, label %hot{number}, label %next{number}")
        lines.append(f"hot{number}:")
        lines.append(f"  %code{number} = tail call i32 @{one.name}(ptr %args, ptr %pool)")
        lines.append(f"  ret i32 %code{number}")
        lines.append(f"next{number}:")
    lines += [f"  %code = tail call i32 @{otherwise}(ptr %args, ptr %pool)", "  ret i32 %code", "}"]
    names = [*(one.name for one in hot), otherwise]
    return "\n".join([*lines, *(f"declare i32 @{name}(ptr, ptr)" for name in names), ""])


def _compared(number: int, sizes: Sequence[int]) -> list[str]:
    """Instructions that make `%is<number>`: whether the dims have these sizes."""
    lines, known = [], "true"
    for at, size in enumerate(sizes):
        place = f"{number}.{at}"
        result = f"%is{number}" if at == len(sizes) - 1 else f"%all{place}"
        lines.append(f"  %at{place} = getelementptr i64, ptr %dims, i64 {at}")
        lines.append(f"  %size{place} = load i64, ptr %at{place}, align 8")
        lines.append(f"  %same{place} = icmp eq i64 %size{place}, {size}")
        lines.append(f"  {result} = and i1 {known}, %same{place}")
        known = result
    return lines


def emit_workspace_bytes(
    memory: MemoryPlan, dims: Sequence[Symbol], hot: Sequence[HotEntry] = ()
) -> str:
    """A module with `i64 @farrier_workspace_bytes(ptr dims)`: what the entry needs for these."""
    lines: list[str] = []

    def emit(instruction: str) -> str:
        lines.append(f"  %v{len(lines)} = {instruction}")
        return f"%v{len(lines) - 1}"

    def needed_bytes(memory: MemoryPlan) -> str:
        values: dict[Symbol, str] = {}

        def value_of(symbol: Symbol) -> str:
            if symbol not in values:
                at = emit(f"getelementptr i64, ptr %dims, i64 {dims.index(symbol)}")
                values[symbol] = emit(f"load i64, ptr {at}, align 8")
            return values[symbol]

        for top, extents in memory.tops.items():
            largest = emit_largest(extents, _operands(value_of), _making(emit))
            values[top] = operand_text(largest)
        needed = emit_extent(memory.workspace_bytes, _operands(value_of), _making(emit))
        return operand_text(needed)

    total = needed_bytes(memory)
    for number, one in enumerate(hot):
        needed = needed_bytes(one.memory)
        lines += _compared(number, one.sizes)
        lines.append(f"  %needs{number} = select i1 %is{number}, i64 {needed}, i64 {total}")
        total = f"%needs{number}"
    return "\n".join(
        [
            f"define i64 @{WORKSPACE_BYTES}(ptr %dims) nounwind {{",
            *lines,
            f"  ret i64 {total}",
            "}",
            "",
        ]
    )


def _making(emit: Callable[[str], str]) -> Make:
    """Make instructions by what appends their text and returns the name of the result."""

    def make(
        operation: Operation, type_: Type, operands: tuple[Operand, ...], attribute: Any = None
    ) -> Operand:
        name = emit(expression(Instruction(operation, type_, operands, attribute, 0)))
        return Variable(type_, name.removeprefix("%"))

    return make


def _operands(value_of: Callable[[Symbol], str]) -> Callable[[Symbol], Operand]:
    """Look up sizes, which are names or numbers, as operands."""

    def operand(symbol: Symbol) -> Operand:
        text = value_of(symbol)
        if text.startswith("%"):
            return Variable(I64, text.removeprefix("%"))
        return instr.index(int(text))

    return operand


# The predicate of LLVM's icmp that holds for a size which violates a demand.
_UNMET = {Demand.EXACT: "ne", Demand.LEAST: "slt", Demand.MOST: "sgt"}


class _Driver:
    """Text of the entry's body. `head` runs once, when the entry begins."""

    def __init__(
        self,
        program: DriverProgram,
        addresses: Addresses,
        dims: Sequence[Symbol],
        usual: Mapping[str, int] | None,
        first_check: int,
    ) -> None:
        self.head: list[str] = []
        self.code: list[str] = []
        self.checks = Checks(program, first_check)
        self._program = program
        self._addresses = addresses
        self._usual = usual
        self._sides = len(program.inputs), len(program.outputs)
        self._loaded: set[int] = set()
        self._pointers: dict[str, str] = {}
        self._block = "entry"
        self._count = itertools.count()
        self._known: dict[str, str] = {}  # results of instructions in the head
        self._dims: dict[str, str] = {}
        self._sizes_at = sum(self._sides) + 2
        for number, symbol in enumerate(dims):
            base = self._base(self._sizes_at)
            at = self._hoisted(f"getelementptr i64, ptr {base}, i64 {number}")
            self._dims[symbol.name] = self._hoisted(f"load i64, ptr {at}, align 8")
        for top, extents in addresses.tops.items():
            largest = emit_largest(extents, _operands(self._value_of), _making(self._hoisted))
            self._dims[top.name] = operand_text(largest)
        self._given = frozenset(self._dims)
        self._returned = {s.name: len(dims) + at for at, s in enumerate(program.counted)}
        self._found_at = len(dims) + len(program.counted)

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Call():
                    self._call(step)
                case Bind():
                    self._bind(step)
                case Fail():
                    self._fail(step)
                case Branch():
                    self._branch(step)
                case Repeat():
                    self._repeat(step)
                case Launch() | Copy() | Wait():
                    raise AssertionError("a CPU has one space, and no queue")

    def _call(self, step: Call) -> None:
        """Fill the argument array, call, and leave on a failure."""
        number = next(self._count)
        call = self._addresses.calls[step.outputs[0].name]
        for position, extent in enumerate(step.needed):
            self._put(f"%any{number}.{position} = icmp ne i64 {self._extent(extent)}, 0")
            self._put(
                f"br i1 %any{number}.{position}, label %go{number}.{position}, label %next{number}"
            )
            self._open(f"go{number}.{position}")
        places = ends_of_copy(call) if step.copies else None
        if places is not None:
            source, target = map(self._address, places)
            self._put(f"%stays{number} = icmp eq ptr {source}, {target}")
            self._put(f"br i1 %stays{number}, label %next{number}, label %copy{number}")
            self._open(f"copy{number}")
        self.head.append(f"  %args{number} = alloca [{max(len(call.args), 1)} x ptr], align 8")
        for position, argument in enumerate(call.args):
            slot = f"%slot{number}.{position}"
            if isinstance(argument, Sizes):
                value = self._sizes(argument)
            else:
                value = self._address(argument)
            self._put(f"{slot} = getelementptr ptr, ptr %args{number}, i64 {position}")
            self._put(f"store ptr {value}, ptr {slot}, align 8")
        self._put(f"%code{number} = call i32 @{call.function}(ptr %args{number}, ptr %pool)")
        self._put(f"%failed{number} = icmp ne i32 %code{number}, 0")
        self._put(f"br i1 %failed{number}, label %leave{number}, label %next{number}")
        self._open(f"leave{number}")
        self._put(f"ret i32 %code{number}")
        self._open(f"next{number}")
        if step.count:
            self._define(step.count, self._found(step.count, self._place(step.outputs[-1])))

    def _found(self, symbol: str, place: Place) -> str:
        """The value of a symbol that lies in memory."""
        if self._usual is not None:
            return str(self._usual[symbol])
        return self._new(f"load i64, ptr {self._address(place)}, align 8")

    def _define(self, symbol: str, value: str) -> None:
        """The value of a symbol is known from here on."""
        self.checks.bound.add(symbol)
        self._dims[symbol] = value
        if symbol in self._returned:
            self._tell(value, self._returned[symbol])

    def _tell(self, value: str, position: int) -> None:
        """Leave a size where the caller finds it."""
        base = self._base(self._sizes_at)
        at = self._new(f"getelementptr i64, ptr {base}, i64 {position}")
        self._put(f"store i64 {value}, ptr {at}, align 8")

    def _bind(self, step: Bind) -> None:
        start = self._place(step.value)
        for position, extent in enumerate(step.extents):
            offset = start.offset + position * step.value.type.dtype.nbytes
            place = dataclasses.replace(start, offset=offset)
            limit, symbol = self.checks.of_extent(extent, step)
            if symbol is not None:
                value = self._checked(self._found(symbol.name, place), limit)
                self._define(symbol.name, value)
            elif self._usual is None:
                self._checked(self._new(f"load i64, ptr {self._address(place)}"), limit)

    def _checked(self, value: str, limit: Limit) -> str:
        """The value; leaves where it is beyond its limit, or negative."""
        if self._usual is not None:
            most = self._extent(limit.most)
            within = self._new(f"icmp slt i64 {value}, {most}")
            return self._new(f"select i1 {within}, i64 {value}, i64 {most}")
        number = next(self._count)
        order = _UNMET[limit.demands or Demand.MOST]
        bad = self._new(f"icmp {order} i64 {value}, {self._extent(limit.most)}")
        if limit.demands is None:
            negative = self._new(f"icmp slt i64 {value}, 0")
            bad = self._new(f"or i1 {bad}, {negative}")
        self._put(f"br i1 {bad}, label %beyond{number}, label %within{number}")
        self._open(f"beyond{number}")
        self._tell(value, self._found_at)
        self._put(f"ret i32 {-1 - limit.number}")
        self._open(f"within{number}")
        return value

    def _fail(self, step: Fail) -> None:
        number = self.checks.of_failure(step)
        self._put(f"ret i32 {-1 - number}")
        self._open(f"behind{number}")  # which nothing reaches

    def _branch(self, branch: Branch) -> None:
        number = next(self._count)
        condition = self._condition(branch)
        self._put(f"br i1 {condition}, label %then{number}, label %else{number}")
        ends: list[list[tuple[str, str]]] = []  # of each branch the values joined, and the block
        for side, (label, steps) in enumerate((("then", branch.then), ("else", branch.otherwise))):
            self._open(f"{label}{number}")
            self.steps(steps)
            values = [self._extent((one.then, one.otherwise)[side]) for one in branch.joined]
            ends.append([(value, self._block) for value in values])
            self._put(f"br label %join{number}")
        self._open(f"join{number}")
        joined = []
        for one, *pairs in zip(branch.joined, *ends, strict=True):
            name = f"%v{next(self._count)}"
            self._put(f"{name} = phi i64 " + ", ".join(f"[ {v}, %{b} ]" for v, b in pairs))
            joined.append((str(one.symbol), name))
        for symbol, name in joined:
            self._define(symbol, name)

    def _repeat(self, loop: Repeat) -> None:
        number = next(self._count)
        trips = self._trips(loop)
        starts = "true" if loop.condition is None else self._bool(loop.condition)
        initial = [self._address(self._place(one.initial)) for one in loop.carried]
        buffers = [
            [self._address(self._addresses.places[name]) for name in buffers_of(one.current.name)]
            for one in loop.carried
        ]
        slices = (*loop.read, *loop.written)
        wholes = [self._address(self._place(one.whole)) for one in slices]
        most = self.checks.of_trips(loop)
        limits = [self.checks.of_grown(grown, loop) for grown in loop.grown]
        sizes = [
            self._checked(self._extent(one.initial), limit)
            for one, limit in zip(loop.grown, limits, strict=True)
        ]
        before = self._block
        self._put(f"br label %loop{number}")
        self._open(f"loop{number}")
        heading = len(self.code)  # where the values that change stand, once their ends are known
        i = f"%i{number}"
        self._name_what_changes(loop, number)
        goes = self._goes_on(number, trips, most)
        self._put(f"br i1 {goes}, label %body{number}, label %done{number}")
        self._open(f"body{number}")
        if most is not None:
            self._checked(self._new(f"add i64 {i}, 1"), most)
        self._put(f"store i64 {i}, ptr {self._address(self._place(loop.iteration))}, align 8")
        for part, whole in zip(slices, wholes, strict=True):
            offset = self._new(f"mul i64 {i}, {self._extent(part.slice.type.nbytes)}")
            pointer = self._new(f"getelementptr i8, ptr {whole}, i64 {offset}")
            self._pointers[part.slice.name] = pointer
        self.steps(loop.body)
        again = "true" if loop.again is None else self._bool(loop.again)
        changes = [
            ("i64", i, "0", self._new(f"add i64 {i}, 1")),
            ("i1", f"%goes{number}", starts, again),
        ]
        for grown, start, limit in zip(loop.grown, sizes, limits, strict=True):
            end = self._checked(self._extent(grown.next), limit)
            changes.append(("i64", self._dims[str(grown.symbol)], start, end))
        first = self._new(f"icmp eq i64 {i}, 0")
        for one, start, (even, odd) in zip(loop.carried, initial, buffers, strict=True):
            current, after = self._pointers[one.current.name], self._pointers[one.next.name]
            free = self._new(f"select i1 {first}, ptr {odd}, ptr {current}")
            changes += [("ptr", current, start, after), ("ptr", after, even, free)]
        self._put(f"br label %loop{number}")
        self.code[heading:heading] = [
            f"  {name} = phi {kind} [ {start}, %{before} ], [ {end}, %{self._block} ]"
            for kind, name, start, end in changes
        ]
        self._open(f"done{number}")
        if loop.count is not None:
            self._define(loop.count.name, i)
        for grown in loop.grown:
            self._define(str(grown.result), self._dims[str(grown.symbol)])

    def _trips(self, loop: Repeat) -> str | None:
        """How often a loop runs, where something says that beforehand."""
        match loop.trips:
            case None:
                return None
            case Value() as value:
                return self._new(f"load i64, ptr {self._address(self._place(value))}, align 8")
            case extent:
                return self._extent(extent)

    def _name_what_changes(self, loop: Repeat, number: int) -> None:
        """Tell the steps of a body under which names they find what its iterations change."""
        for position, one in enumerate(loop.carried):
            self._pointers[one.current.name] = f"%current{number}.{position}"
            self._pointers[one.next.name] = f"%next{number}.{position}"
        for position, grown in enumerate(loop.grown):
            self.checks.bound.add(str(grown.symbol))
            self._dims[str(grown.symbol)] = f"%size{number}.{position}"

    def _goes_on(self, number: int, trips: str | None, most: Limit | None) -> str:
        """Whether a loop runs once more."""
        ends = [] if trips is None else [trips]
        if most is not None and self._usual is not None:
            ends.append(self._extent(most.most))
        goes = f"%goes{number}"
        for end in ends:
            below = self._new(f"icmp slt i64 %i{number}, {end}")
            goes = self._new(f"and i1 {goes}, {below}")
        return goes

    def _condition(self, branch: Branch) -> str:
        if self._usual is not None:
            for steps, other in ((branch.then, "false"), (branch.otherwise, "true")):
                if any(isinstance(step, Fail) for step in steps):
                    return other
        return self._bool(branch.condition)

    def _bool(self, value: Value) -> str:
        byte = self._new(f"load i8, ptr {self._address(self._place(value))}, align 1")
        return self._new(f"icmp ne i8 {byte}, 0")

    def _place(self, value: Value) -> Place:
        return self._addresses.places[value.name]

    def _address(self, place: Place) -> str:
        if place.segment is Segment.POINTER:
            base = self._pointers[place.pointer]
        else:
            base = self._base(position_of(place, *self._sides))
        if place.offset == 0:
            return base
        return self._new(f"getelementptr i8, ptr {base}, i64 {self._extent(place.offset)}")

    def _extent(self, extent: Extent) -> str:
        emit = self._hoisted if self._is_given((extent,)) else self._new
        return operand_text(emit_extent(extent, _operands(self._value_of), _making(emit)))

    def _value_of(self, symbol: Symbol) -> str:
        return self._dims[symbol.name]

    def _is_given(self, extents: Iterable[Extent]) -> bool:
        return all(symbol.name in self._given for symbol in symbols(extents))

    def _sizes(self, sizes: Sizes) -> str:
        """A pointer to sizes in memory, filled where the entry begins if they are known there."""
        values = [self._extent(extent) for extent in sizes.extents]
        if not self._is_given(sizes.extents):
            array = f"%sizes{next(self._count)}"
            self.head.append(f"  {array} = alloca [{len(values)} x i64], align 8")
            for number, value in enumerate(values):
                at = self._new(f"getelementptr i64, ptr {array}, i64 {number}")
                self._put(f"store i64 {value}, ptr {at}, align 8")
            return array
        key = ", ".join(values)
        if key not in self._known:
            array = self._hoisted(f"alloca [{len(values)} x i64], align 8 ; {key}")
            for number, value in enumerate(values):
                at = self._hoisted(f"getelementptr i64, ptr {array}, i64 {number}")
                self.head.append(f"  store i64 {value}, ptr {at}, align 8")
            self._known[key] = array
        return self._known[key]

    def _base(self, position: int) -> str:
        """An argument of the entry, loaded where it begins."""
        if position not in self._loaded:
            self._loaded.add(position)
            self.head.append(f"  %at{position} = getelementptr ptr, ptr %args, i64 {position}")
            self.head.append(f"  %base{position} = load ptr, ptr %at{position}, align 8")
        return f"%base{position}"

    def _hoisted(self, operation: str) -> str:
        """The result of an instruction, made once where the entry begins."""
        if operation not in self._known:
            self._known[operation] = f"%v{next(self._count)}"
            self.head.append(f"  {self._known[operation]} = {operation}")
        return self._known[operation]

    def _new(self, operation: str) -> str:
        name = f"%v{next(self._count)}"
        self._put(f"{name} = {operation}")
        return name

    def _put(self, line: str) -> None:
        self.code.append(f"  {line}")

    def _open(self, label: str) -> None:
        """Begin the block `label`."""
        self.code.append(f"{label}:")
        self._block = label
