"""The driver of a whole model: one entry point that calls the kernels in order, under conditions
and in loops. It calls nothing else.

i32 @farrier_entry(ptr %args, ptr %pool)    args = inputs…, outputs…, params, workspace, sizes?

`sizes` are i64: what the caller gives, then room for what the entry finds out. A size found that
does not fit what the caller gave ends the call: the entry returns -1 - n for its check n, and
leaves the size in the last of that room. So does a branch that cannot be taken, for a check of its
own.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, assert_never

from farrier.ir.dim import Dim, Extent, Symbol, symbols
from farrier.targets.cpu.codegen.extents import emit_extent

ENTRY = "farrier_entry"
WORKSPACE_BYTES = "farrier_workspace_bytes"


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """The model's input `number`."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """The model's output `number`."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Params:
    """The model's packed constants."""


@dataclasses.dataclass(frozen=True, slots=True)
class Workspace:
    """Memory for intermediate values and the kernels' scratch."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pointer:
    """Memory that a loop moves on from iteration to iteration, by name."""

    name: str


Segment: TypeAlias = Input | Output | Params | Workspace | Pointer
Address: TypeAlias = tuple[Segment, Extent]  # and the offset in bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """Values of a kernel's dims: an argument that points to as many i64."""

    extents: tuple[Extent, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a kernel with the addresses of its arguments, and the sizes that it runs for;
    none where one of `needed` is 0. `count` is a symbol, and where the kernel leaves its value, an
    i64."""

    function: str
    args: tuple[Address | Sizes, ...]
    needed: tuple[Extent, ...] = ()
    count: tuple[str, Address] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """What a size found may be: `most` at most and not negative, or where it `is_exact`, that; else
    check `number` fails."""

    number: int
    most: Extent
    is_exact: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Bind:
    """From here on the i64 at `address` is a symbol's value; "" where it is only checked."""

    address: Address
    symbol: str
    limit: Limit


@dataclasses.dataclass(frozen=True, slots=True)
class Fail:
    """Check `number` fails whenever the run gets here."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    """One of two sequences of steps, by the bool at `condition`. Of each symbol in `joined`, the
    value is the first extent behind `then`, and the second behind `otherwise`."""

    condition: Address
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]
    joined: tuple[tuple[str, Extent, Extent], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Carried:
    """Memory that changes places: at first `current` is `initial` and `next` the first buffer; with
    each iteration `next` becomes current, and the other buffer next."""

    current: str
    next: str
    initial: Address
    buffers: tuple[Address, Address]


@dataclasses.dataclass(frozen=True, slots=True)
class Grown:
    """A symbol that is `initial` in the first iteration and what was `next` in the one before in
    others; `result` is its value after the loop."""

    symbol: str
    initial: Extent
    next: Extent
    result: str
    limit: Limit


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """The pointer `name` to `whole` plus `stride` bytes an iteration."""

    name: str
    whole: Address
    stride: Extent


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """The body again and again: while the iteration, an i64 from 0 on that is written where the
    body reads it, is below `trips` (an extent, or where an i64 lies), and as long as the bool at
    `condition` holds at first, and that at `again` after an iteration. None: no such bound.
    `count` is the symbol of how often it ran, at most `limit` times where there is one."""

    trips: Extent | Address | None
    condition: Address | None
    again: Address | None
    iteration: Address
    carried: tuple[Carried, ...]
    slices: tuple[Slice, ...]
    body: tuple[Step, ...]
    count: str = ""
    limit: Limit | None = None
    grown: tuple[Grown, ...] = ()


Step: TypeAlias = KernelCall | Bind | Fail | Branch | Repeat


def emit_entry(
    steps: Sequence[Step],
    inputs: int,
    outputs: int,
    name: str = ENTRY,
    dims: Sequence[Symbol] = (),
    counted: Sequence[Symbol] = (),
    usual: Mapping[str, int] | None = None,
) -> str:
    """A module with the entry point, the kernels it calls being declared.

    With `usual`, sizes that kernels leave in memory are these instead, by symbol, others are held
    to their limits, and no branch is taken that fails: an entry to measure, whatever the memory
    holds.

    It returns the first non-zero code of a kernel or of a check, and 0 when all have run. The
    entry's last argument points to i64: the values of `dims`, behind them room for those of
    `counted`, which it finds out, and for the size at which a check fails.
    """
    driver = _Driver(inputs, outputs, dims, counted, usual)
    driver.steps(steps)
    declared = sorted({call.function for call in kernel_calls(steps)})
    return "\n".join(
        [
            f"define i32 @{name}(ptr %args, ptr %pool) nounwind {{",
            "entry:",
            *driver.head,
            *driver.code,
            "  ret i32 0",
            "}",
            *(f"declare i32 @{function}(ptr, ptr)" for function in declared),
            "",
        ]
    )


@dataclasses.dataclass(frozen=True, slots=True)
class HotEntry:
    """Code for one size of each of the first dims, as the entry `name`, and the workspace that it
    needs, which may depend on the others."""

    sizes: tuple[int, ...]
    name: str
    workspace_bytes: Extent


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
    extent: Extent, dims: Sequence[Symbol], hot: Sequence[HotEntry] = ()
) -> str:
    """A module with `i64 @farrier_workspace_bytes(ptr dims)`: what the entry needs for these."""
    lines: list[str] = []

    def emit(instruction: str) -> str:
        lines.append(f"  %v{len(lines)} = {instruction}")
        return f"%v{len(lines) - 1}"

    def value_of(symbol: Symbol) -> str:
        at = emit(f"getelementptr i64, ptr %dims, i64 {dims.index(symbol)}")
        return emit(f"load i64, ptr {at}, align 8")

    total = emit_extent(extent, value_of, emit)
    for number, one in enumerate(hot):
        needed = emit_extent(one.workspace_bytes, value_of, emit)
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


def kernel_calls(steps: Sequence[Step]) -> Iterator[KernelCall]:
    """Every call in some steps, in the order of the text."""
    for step in steps:
        match step:
            case KernelCall():
                yield step
            case Bind() | Fail():
                pass
            case Branch():
                yield from kernel_calls(step.then)
                yield from kernel_calls(step.otherwise)
            case Repeat():
                yield from kernel_calls(step.body)


def position_of(segment: Input | Output | Params | Workspace, inputs: int, outputs: int) -> int:
    """Which argument of the entry a segment is."""
    match segment:
        case Input(number):
            return number
        case Output(number):
            return inputs + number
        case Params():
            return inputs + outputs
        case Workspace():
            return inputs + outputs + 1
        case _:
            assert_never(segment)


class _Driver:
    """Text of the entry's body. `head` runs once, when the entry begins."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        dims: Sequence[Symbol],
        counted: Sequence[Symbol],
        usual: Mapping[str, int] | None,
    ) -> None:
        self.head: list[str] = []
        self.code: list[str] = []
        self._inputs = inputs
        self._outputs = outputs
        self._usual = usual
        self._loaded: set[int] = set()
        self._pointers: dict[str, str] = {}
        self._block = "entry"
        self._count = itertools.count()
        self._known: dict[str, str] = {}  # results of instructions in the head
        self._dims: dict[str, str] = {}
        for number, symbol in enumerate(dims):
            base = self._base(inputs + outputs + 2)
            at = self._hoisted(f"getelementptr i64, ptr {base}, i64 {number}")
            self._dims[symbol.name] = self._hoisted(f"load i64, ptr {at}, align 8")
        self._given = frozenset(self._dims)
        self._sizes_at = inputs + outputs + 2
        self._returned = {s.name: len(dims) + at for at, s in enumerate(counted)}
        self._found_at = len(dims) + len(counted)

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case KernelCall():
                    self._call(step)
                case Bind():
                    self._bind(step)
                case Fail():
                    self._fail(step)
                case Branch():
                    self._branch(step)
                case Repeat():
                    self._repeat(step)

    def _call(self, call: KernelCall) -> None:
        """Fills the argument array, calls, and leaves on a failure."""
        number = next(self._count)
        for position, extent in enumerate(call.needed):
            self._put(f"%any{number}.{position} = icmp ne i64 {self._extent(extent)}, 0")
            self._put(
                f"br i1 %any{number}.{position}, label %go{number}.{position}, label %next{number}"
            )
            self._open(f"go{number}.{position}")
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
        if call.count is not None:
            symbol, address = call.count
            self._define(symbol, self._found(symbol, address))

    def _found(self, symbol: str, address: Address) -> str:
        """The value of a symbol that lies in memory."""
        if self._usual is not None:
            return str(self._usual[symbol])
        return self._new(f"load i64, ptr {self._address(address)}, align 8")

    def _define(self, symbol: str, value: str) -> None:
        """The value of a symbol is known from here on."""
        self._dims[symbol] = value
        if symbol in self._returned:
            self._tell(value, self._returned[symbol])

    def _tell(self, value: str, position: int) -> None:
        """Leaves a size where the caller finds it."""
        base = self._base(self._sizes_at)
        at = self._new(f"getelementptr i64, ptr {base}, i64 {position}")
        self._put(f"store i64 {value}, ptr {at}, align 8")

    def _bind(self, bind: Bind) -> None:
        if bind.symbol:
            value = self._checked(self._found(bind.symbol, bind.address), bind.limit)
            self._define(bind.symbol, value)
        elif self._usual is None:
            self._checked(self._new(f"load i64, ptr {self._address(bind.address)}"), bind.limit)

    def _checked(self, value: str, limit: Limit) -> str:
        """The value; leaves where it is beyond its limit, or negative."""
        if self._usual is not None:
            most = self._extent(limit.most)
            within = self._new(f"icmp slt i64 {value}, {most}")
            return self._new(f"select i1 {within}, i64 {value}, i64 {most}")
        number = next(self._count)
        order = "ne" if limit.is_exact else "sgt"
        bad = self._new(f"icmp {order} i64 {value}, {self._extent(limit.most)}")
        if not limit.is_exact:
            negative = self._new(f"icmp slt i64 {value}, 0")
            bad = self._new(f"or i1 {bad}, {negative}")
        self._put(f"br i1 {bad}, label %beyond{number}, label %within{number}")
        self._open(f"beyond{number}")
        self._tell(value, self._found_at)
        self._put(f"ret i32 {-1 - limit.number}")
        self._open(f"within{number}")
        return value

    def _fail(self, step: Fail) -> None:
        self._put(f"ret i32 {-1 - step.number}")
        self._open(f"behind{step.number}")  # which nothing reaches

    def _branch(self, branch: Branch) -> None:
        number = next(self._count)
        condition = self._condition(branch)
        self._put(f"br i1 {condition}, label %then{number}, label %else{number}")
        ends: list[list[tuple[str, str]]] = []  # of each branch the values joined, and the block
        for side, (label, steps) in enumerate((("then", branch.then), ("else", branch.otherwise))):
            self._open(f"{label}{number}")
            self.steps(steps)
            values = [self._extent(extents[side]) for _, *extents in branch.joined]
            ends.append([(value, self._block) for value in values])
            self._put(f"br label %join{number}")
        self._open(f"join{number}")
        joined = []
        for (symbol, *_), *pairs in zip(branch.joined, *ends, strict=True):
            name = f"%v{next(self._count)}"
            self._put(f"{name} = phi i64 " + ", ".join(f"[ {v}, %{b} ]" for v, b in pairs))
            joined.append((symbol, name))
        for symbol, name in joined:
            self._define(symbol, name)

    def _repeat(self, loop: Repeat) -> None:
        number = next(self._count)
        match loop.trips:
            case None:
                trips = None
            case int() | Dim():
                trips = self._extent(loop.trips)
            case address:
                trips = self._new(f"load i64, ptr {self._address(address)}, align 8")
        starts = "true" if loop.condition is None else self._bool(loop.condition)
        initial = [self._address(one.initial) for one in loop.carried]
        buffers = [[self._address(buffer) for buffer in one.buffers] for one in loop.carried]
        wholes = [self._address(one.whole) for one in loop.slices]
        sizes = [self._checked(self._extent(one.initial), one.limit) for one in loop.grown]
        before = self._block
        self._put(f"br label %loop{number}")
        self._open(f"loop{number}")
        heading = len(self.code)  # where the values that change stand, once their ends are known
        i, goes = f"%i{number}", f"%goes{number}"
        for position, one in enumerate(loop.carried):
            self._pointers[one.current] = f"%current{number}.{position}"
            self._pointers[one.next] = f"%next{number}.{position}"
        for position, grown in enumerate(loop.grown):
            self._dims[grown.symbol] = f"%size{number}.{position}"
        ends = [] if trips is None else [trips]
        if loop.limit is not None and self._usual is not None:
            ends.append(self._extent(loop.limit.most))
        for end in ends:
            below = self._new(f"icmp slt i64 {i}, {end}")
            goes = self._new(f"and i1 {goes}, {below}")
        self._put(f"br i1 {goes}, label %body{number}, label %done{number}")
        self._open(f"body{number}")
        if loop.limit is not None:
            self._checked(self._new(f"add i64 {i}, 1"), loop.limit)
        self._put(f"store i64 {i}, ptr {self._address(loop.iteration)}, align 8")
        for part, whole in zip(loop.slices, wholes, strict=True):
            offset = self._new(f"mul i64 {i}, {self._extent(part.stride)}")
            self._pointers[part.name] = self._new(f"getelementptr i8, ptr {whole}, i64 {offset}")
        self.steps(loop.body)
        again = "true" if loop.again is None else self._bool(loop.again)
        following = self._new(f"add i64 {i}, 1")
        after_sizes = [self._checked(self._extent(one.next), one.limit) for one in loop.grown]
        first = self._new(f"icmp eq i64 {i}, 0")
        phis = [
            f"{i} = phi i64 [ 0, %{before} ], [ {following}, %{self._block} ]",
            f"%goes{number} = phi i1 [ {starts}, %{before} ], [ {again}, %{self._block} ]",
        ]
        for position, (start, (even, odd)) in enumerate(zip(initial, buffers, strict=True)):
            current, after = f"%current{number}.{position}", f"%next{number}.{position}"
            free = self._new(f"select i1 {first}, ptr {odd}, ptr {current}")
            phis.append(f"{current} = phi ptr [ {start}, %{before} ], [ {after}, %{self._block} ]")
            phis.append(f"{after} = phi ptr [ {even}, %{before} ], [ {free}, %{self._block} ]")
        for position, (start, end) in enumerate(zip(sizes, after_sizes, strict=True)):
            size = f"%size{number}.{position}"
            phis.append(f"{size} = phi i64 [ {start}, %{before} ], [ {end}, %{self._block} ]")
        self._put(f"br label %loop{number}")
        self.code[heading:heading] = [f"  {phi}" for phi in phis]
        self._open(f"done{number}")
        if loop.count:
            self._define(loop.count, i)
        for grown in loop.grown:
            self._define(grown.result, self._dims[grown.symbol])

    def _condition(self, branch: Branch) -> str:
        if self._usual is not None:
            for steps, other in ((branch.then, "false"), (branch.otherwise, "true")):
                if any(isinstance(step, Fail) for step in steps):
                    return other
        return self._bool(branch.condition)

    def _bool(self, address: Address) -> str:
        byte = self._new(f"load i8, ptr {self._address(address)}, align 1")
        return self._new(f"icmp ne i8 {byte}, 0")

    def _address(self, address: Address) -> str:
        segment, offset = address
        if isinstance(segment, Pointer):
            base = self._pointers[segment.name]
        else:
            base = self._base(position_of(segment, self._inputs, self._outputs))
        if offset == 0:
            return base
        return self._new(f"getelementptr i8, ptr {base}, i64 {self._extent(offset)}")

    def _extent(self, extent: Extent) -> str:
        emit = self._hoisted if self._is_given((extent,)) else self._new
        return emit_extent(extent, lambda symbol: self._dims[symbol.name], emit)

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
        """Begins the block `label`."""
        self.code.append(f"{label}:")
        self._block = label
