"""The native driver of a whole model: one function that runs the steps of a driver program
(`farrier.partition.program`) in order, with each value at its planned address. It contains only
calls of kernels and control flow.

i32 @farrier_entry(ptr %args, ptr %pool)    args = inputs…, outputs…, params, workspace, sizes?

`sizes` is an i64 array: the sizes that the caller passes, then room for sizes that the entry point
computes. If a computed size contradicts a passed size, the entry point returns -1 - n for its check
n, and stores the computed size in the last element of the array. It also returns -1 - n, with a
check of its own, on reaching a branch that cannot be compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from farrier.ir import instr
from farrier.ir.dim import Extent, Symbol, symbols
from farrier.ir.graph import Value
from farrier.ir.instr import I1, I32, I64, PTR, Carried, Joined, Operand, Variable, index
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
)
from farrier.targets.cpu.part import WORKSPACE_BYTES
from farrier.targets.linked import Check
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.extents import Make, emit_extent, emit_largest
from farrier.targets.llvm.llvm_text import module_text

ENTRY = "farrier_entry"

_ARGS, _POOL, _DIMS = (Variable(PTR, name) for name in ("args", "pool", "dims"))
_WORD = 8  # The bytes of a pointer or a size.


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """The LLVM module with an entry point, and the entry point's checks in the order of their
    numbers."""

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
    """Return the entry point of a program. Its module declares the kernels that it calls.

    `dims` are the sizes that a caller passes; the default is the program's dims. If `usual` is not
    None, the entry point is for timing, and runs with whatever data is in memory. Sizes that
    kernels compute are then replaced by the values in `usual`, by symbol. Other sizes are clamped
    to their limits, and failing branches are not taken.

    The entry point returns 0, or the first non-zero code that a kernel or a check returns. Its last
    argument points to an i64 array: the values of the dims, then room for data-dependent sizes,
    which it computes, and for the size at which a check fails.
    """
    driver = _Driver(program, addresses, dims or program.dims, usual, first_check)
    driver.steps(program.steps)
    success = instr.number_of(I32, 0)
    return Entry(_function(name, (_ARGS, _POOL), driver.b, success), tuple(driver.checks.checks))


@dataclasses.dataclass(frozen=True, slots=True)
class HotEntry:
    """Code that is specialized for fixed sizes of the leading dims: the name of its entry point,
    and its memory plan, which may depend on the remaining dims."""

    sizes: tuple[int, ...]
    name: str
    memory: MemoryPlan


def emit_dispatch(inputs: int, outputs: int, hot: Sequence[HotEntry], otherwise: str) -> str:
    """Return the LLVM module of the entry point of a model with code for hot sizes. It compares the
    sizes that its caller passes with the fixed sizes of each entry in `hot`. It calls the entry
    that matches, or the general code `otherwise` if none matches."""
    b = Builder()
    dims = b.load(PTR, b.offset(_ARGS, _WORD * (inputs + outputs + 2)), _WORD)
    for hot_entry in hot:
        with b.only_if(_has_sizes(b, dims, hot_entry.sizes)):
            b.leave(b.effect(hot_entry.name, I32, _ARGS, _POOL))
    return _function(ENTRY, (_ARGS, _POOL), b, b.effect(otherwise, I32, _ARGS, _POOL))


def emit_workspace_bytes(
    memory: MemoryPlan, dims: Sequence[Symbol], hot: Sequence[HotEntry] = ()
) -> str:
    """Return the LLVM module with `i64 @farrier_workspace_bytes(ptr dims)`, which computes the
    bytes of workspace that a call with these sizes needs."""
    b = Builder()

    def needed_bytes(memory: MemoryPlan) -> Operand:
        values = {symbol: _size_at(b, _DIMS, number) for number, symbol in enumerate(dims)}
        for top, extents in memory.tops.items():
            values[top] = emit_largest(extents, values.__getitem__, b.pure)
        return emit_extent(memory.workspace_bytes, values.__getitem__, b.pure)

    total = needed_bytes(memory)
    for hot_entry in hot:
        total = b.choose(
            _has_sizes(b, _DIMS, hot_entry.sizes), needed_bytes(hot_entry.memory), total
        )
    return _function(WORKSPACE_BYTES, (_DIMS,), b, total)


def _function(name: str, arguments: Sequence[Variable], b: Builder, result: Operand) -> str:
    """Return the text of an LLVM module that contains one function, with the instructions that the
    builder `b` has collected as its body."""
    return module_text([instr.Function(name, arguments, b.body, result, is_exported=True)])


def _size_at(b: Builder, dims: Operand, number: int) -> Operand:
    """Return one of the sizes that a caller passes, as a load from constant memory."""
    return b.load(I64, b.offset(dims, _WORD * number), _WORD, is_constant=True)


def _has_sizes(b: Builder, dims: Operand, sizes: Sequence[int]) -> Operand:
    """Return the condition that the leading dims have the values `sizes`."""
    same = [b.icmp("eq", _size_at(b, dims, n), index(size)) for n, size in enumerate(sizes)]
    return functools.reduce(functools.partial(b.op, instr.AND), same)


# The icmp predicate that is true for a size that violates the demand.
_UNMET = {Demand.EXACT: "ne", Demand.LEAST: "slt", Demand.MOST: "sgt"}


class _Driver:
    """The body of an entry point under construction. Instructions in its head run once, at the
    start."""

    def __init__(
        self,
        program: DriverProgram,
        addresses: Addresses,
        dims: Sequence[Symbol],
        usual: Mapping[str, int] | None,
        first_check: int,
    ) -> None:
        self.b = Builder()
        self.checks = Checks(program, first_check)
        self._addresses = addresses
        self._usual = usual
        self._sides = len(program.inputs), len(program.outputs)
        self._pointers: dict[str, Operand] = {}
        self._hoisted: Make = functools.partial(self.b.hoisted, 0)
        # Arrays in memory, by the sizes that they contain.
        self._given_sizes: dict[tuple[Operand, ...], Operand] = {}
        most = max((len(call.args) for call in addresses.calls.values()), default=0)
        self._arguments = self._room("arguments", most)
        self._sizes_at = sum(self._sides) + 2
        self._dims = {symbol.name: self._dim(number) for number, symbol in enumerate(dims)}
        for top, extents in addresses.tops.items():
            self._dims[top.name] = emit_largest(extents, self._value_of, self._hoisted)
        self._given = frozenset(self._dims)
        self._returned = {s.name: len(dims) + at for at, s in enumerate(program.counted)}
        self._failing_size_at = len(dims) + len(program.counted)

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
        """Emit a kernel call: fill the argument array, call the kernel, and return from the entry
        point if the kernel fails."""
        b = self.b
        call = self._addresses.calls[step.outputs[0].name]
        with contextlib.ExitStack() as conditions:
            for extent in step.needed:
                is_needed = b.icmp("ne", self._extent(extent), index(0))
                conditions.enter_context(b.only_if(is_needed))
            places = ends_of_copy(call) if step.copies else None
            if places is not None:
                moves = b.icmp("ne", *map(self._address, places))
                conditions.enter_context(b.only_if(moves))
            for position, argument in enumerate(call.args):
                at = b.offset(self._arguments, _WORD * position)
                b.store(self._argument(argument), at, _WORD)
            code = b.effect(call.function, I32, self._arguments, _POOL)
            with b.only_if(b.icmp("ne", code, instr.number_of(I32, 0))):
                b.leave(code)
        if step.count:
            self._define(step.count, self._computed_size(step.count, self._place(step.outputs[-1])))

    def _argument(self, argument: Place | Sizes) -> Operand:
        return self._sizes(argument) if isinstance(argument, Sizes) else self._address(argument)

    def _computed_size(self, symbol: str, place: Place) -> Operand:
        """Return the value of a data-dependent size, which a kernel has written to memory at
        `place`. In an entry point for timing, return the typical value of `symbol` instead."""
        if self._usual is not None:
            return index(self._usual[symbol])
        return self.b.load(I64, self._address(place), _WORD)

    def _define(self, symbol: str, value: Operand) -> None:
        """Set the value of a size for all following steps. If the caller expects the size, also
        store it in the caller's array of sizes."""
        self.checks.bound.add(symbol)
        self._dims[symbol] = value
        if symbol in self._returned:
            self._store_size(value, self._returned[symbol])

    def _store_size(self, value: Operand, position: int) -> None:
        """Store `value` at index `position` of the caller's array of sizes."""
        at = self.b.offset(self._base(self._sizes_at), _WORD * position)
        self.b.store(value, at, _WORD)

    def _bind(self, step: Bind) -> None:
        start = self._place(step.value)
        for position, extent in enumerate(step.extents):
            offset = start.offset + position * step.value.type.dtype.nbytes
            place = dataclasses.replace(start, offset=offset)
            limit, symbol = self.checks.of_extent(extent, step)
            if symbol is not None:
                value = self._checked(self._computed_size(symbol.name, place), limit)
                self._define(symbol.name, value)
            elif self._usual is None:
                self._checked(self.b.load(I64, self._address(place), _WORD), limit)

    def _checked(self, value: Operand, limit: Limit) -> Operand:
        """Emit a check that `limit` allows the size `value`, and return the size. If the check
        fails, the entry point returns. An entry point for timing has no check: it uses at most
        `limit.most`."""
        b, most = self.b, self._extent(limit.most)
        if self._usual is not None:
            return b.choose(b.icmp("slt", value, most), value, most)
        bad = b.icmp(_UNMET[limit.demands or Demand.MOST], value, most)
        if limit.demands is None:
            bad = b.op(instr.OR, bad, b.icmp("slt", value, index(0)))
        with b.only_if(bad):
            self._store_size(value, self._failing_size_at)
            b.leave(instr.number_of(I32, -1 - limit.number))
        return value

    def _fail(self, step: Fail) -> None:
        self.b.leave(instr.number_of(I32, -1 - self.checks.of_failure(step)))

    def _branch(self, branch: Branch) -> None:
        b, condition = self.b, self._condition(branch)
        with b.nested() as then:
            self.steps(branch.then)
            first = [self._extent(size.then) for size in branch.joined]
        with b.nested() as otherwise:
            self.steps(branch.otherwise)
            second = [self._extent(size.otherwise) for size in branch.joined]
        variables = [b.variable(I64, "size") for _ in branch.joined]
        b.branch(condition, then, otherwise, list(map(Joined, variables, first, second)))
        for size, variable in zip(branch.joined, variables, strict=True):
            self._define(str(size.symbol), variable)

    def _repeat(self, loop: Repeat) -> None:
        b = self.b
        trips = self._trips(loop)
        starts = instr.number_of(I1, True) if loop.condition is None else self._bool(loop.condition)
        initial = [self._address(self._place(value.initial)) for value in loop.carried]
        buffers = [
            [self._address(self._addresses.places[name]) for name in buffers_of(value.current.name)]
            for value in loop.carried
        ]
        slices = (*loop.read, *loop.written)
        wholes = [self._address(self._place(part.whole)) for part in slices]
        most = self.checks.of_trips(loop)
        limits = [self.checks.of_grown(grown, loop) for grown in loop.grown]
        first_sizes = [
            self._checked(self._extent(extent.initial), limit)
            for extent, limit in zip(loop.grown, limits, strict=True)
        ]
        i, goes = b.variable(I64, "i"), b.variable(I1, "goes")
        sizes = [b.variable(I64, "size") for _ in loop.grown]
        held = [(b.variable(PTR, "current"), b.variable(PTR, "next")) for _ in loop.carried]
        for value, (current, following) in zip(loop.carried, held, strict=True):
            self._pointers |= {value.current.name: current, value.next.name: following}
        for grown, size in zip(loop.grown, sizes, strict=True):
            self.checks.bound.add(str(grown.symbol))
            self._dims[str(grown.symbol)] = size
        with b.nested() as test:
            condition = self._continues(i, goes, trips, most)
        with b.nested() as body:
            if most is not None:
                self._checked(b.op(instr.ADD, i, index(1)), most)
            b.store(i, self._address(self._place(loop.iteration)), _WORD)
            for part, whole in zip(slices, wholes, strict=True):
                offset = b.op(instr.MUL, i, self._extent(part.slice.type.nbytes))
                self._pointers[part.slice.name] = b.offset(whole, offset)
            self.steps(loop.body)
            again = instr.number_of(I1, True) if loop.again is None else self._bool(loop.again)
            carried = [Carried(i, index(0), b.op(instr.ADD, i, index(1)))]
            carried.append(Carried(goes, starts, again))
            grows = zip(loop.grown, sizes, first_sizes, limits, strict=True)
            for grown, size, first, limit in grows:
                carried.append(Carried(size, first, self._checked(self._extent(grown.next), limit)))
            is_first = b.icmp("eq", i, index(0))
            for (current, following), start, (even, odd) in zip(
                held, initial, buffers, strict=True
            ):
                free = b.choose(is_first, odd, current)
                carried.append(Carried(current, start, following))
                carried.append(Carried(following, even, free))
        b.body.append(instr.While(carried, test, condition, body, b.labels(3)))
        if loop.count is not None:
            self._define(loop.count.name, i)
        for grown, size in zip(loop.grown, sizes, strict=True):
            self._define(str(grown.result), size)

    def _trips(self, loop: Repeat) -> Operand | None:
        """Return the trip count of a loop if it is known before the loop starts, else None."""
        match loop.trips:
            case None:
                return None
            case Value() as value:
                return self.b.load(I64, self._address(self._place(value)), _WORD)
            case extent:
                return self._extent(extent)

    def _continues(
        self, i: Operand, goes: Operand, trips: Operand | None, most: Limit | None
    ) -> Operand:
        """Return the condition under which a loop runs another iteration with number `i`: the
        loop's own condition `goes` holds, and `i` is below the trip count `trips` (None: no limit).
        In an entry point for timing, `i` must also be below `most`."""
        ends = [] if trips is None else [trips]
        if most is not None and self._usual is not None:
            ends.append(self._extent(most.most))
        for end in ends:
            goes = self.b.op(instr.AND, goes, self.b.icmp("slt", i, end))
        return goes

    def _condition(self, branch: Branch) -> Operand:
        if self._usual is not None:
            for steps, other in ((branch.then, False), (branch.otherwise, True)):
                if any(isinstance(step, Fail) for step in steps):
                    return instr.number_of(I1, other)
        return self._bool(branch.condition)

    def _bool(self, value: Value) -> Operand:
        byte = self.b.load(instr.I8, self._address(self._place(value)), 1)
        return self.b.icmp("ne", byte, instr.number_of(instr.I8, 0))

    def _place(self, value: Value) -> Place:
        return self._addresses.places[value.name]

    def _address(self, place: Place) -> Operand:
        if place.segment is Segment.POINTER:
            base = self._pointers[place.pointer]
        else:
            base = self._base(position_of(place, *self._sides))
        return base if place.offset == 0 else self.b.offset(base, self._extent(place.offset))

    def _extent(self, extent: Extent) -> Operand:
        make = self._hoisted if self._is_given((extent,)) else self.b.pure
        return emit_extent(extent, self._value_of, make)

    def _value_of(self, symbol: Symbol) -> Operand:
        return self._dims[symbol.name]

    def _is_given(self, extents: Iterable[Extent]) -> bool:
        return all(symbol.name in self._given for symbol in symbols(extents))

    def _sizes(self, sizes: Sizes) -> Operand:
        """Return the address of an array with the values of `sizes`. If the caller passes all of
        these, the array is filled once, at the start of the entry point."""
        values = tuple(map(self._extent, sizes.extents))
        if not self._is_given(sizes.extents):
            return self._filled(values)
        if values not in self._given_sizes:
            with self.b.at_head(0):
                self._given_sizes[values] = self._filled(values)
        return self._given_sizes[values]

    def _filled(self, values: Sequence[Operand]) -> Operand:
        """Emit an array with these sizes, and return its address."""
        array = self._room(f"sizes{self.b.labels(1)}", len(values))
        for number, value in enumerate(values):
            self.b.store(value, self.b.offset(array, _WORD * number), _WORD)
        return array

    def _room(self, name: str, words: int) -> Operand:
        """Return an array of `words` pointers or sizes on the stack. `name` distinguishes arrays of
        equal size."""
        return self._hoisted(instr.STACK, PTR, (), (_WORD * max(words, 1), name))

    def _base(self, position: int) -> Operand:
        """Return the pointer argument of the entry point at `position`, loaded at the start of the
        entry point."""
        at = self._hoisted(instr.OFFSET, PTR, (_ARGS, index(_WORD * position)))
        return self._hoisted(instr.LOAD, PTR, (at,), _WORD)

    def _dim(self, number: int) -> Operand:
        """Return the size with this number that the caller passes."""
        base = self._base(self._sizes_at)
        at = self._hoisted(instr.OFFSET, PTR, (base, index(_WORD * number)))
        return self._hoisted(instr.LOAD, I64, (at,), _WORD)
