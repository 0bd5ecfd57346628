"""Verify driver programs: each value is written before it is read, in the space where it is stored,
and no step depends on an access that is still pending in a queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from farrier.errors import CompilerError
from farrier.ir.dim import Extent, symbols
from farrier.ir.graph import Value
from farrier.partition.print_program import print_step
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
    defined_in,
    steps_in,
)
from farrier.partition.queues import Access, Hazard, Queues, accesses
from farrier.partition.spans import Span, in_both, is_within
from farrier_device.program import HOST


def verify_driver(program: DriverProgram) -> None:
    """Check a driver program. Raises CompilerError for a step that reads bytes before they are
    written, for a step that accesses a value in a space where it is not stored, and for a missing
    wait before a step."""
    for step in steps_in(program.steps):
        _check_spaces(program, step)
    _Written(program).check()
    Queues(program, _refuse).walk()


def _refuse(step: Step | None, hazard: Hazard) -> None:
    access, space = hazard.access, hazard.space
    verb = "writes" if hazard.is_write else "reads"
    if step is None:
        raise CompilerError(
            f"the program ends while the queue of {space} still {verb} {access.value.name}",
            hint=f"a wait for {space} is missing at its end",
        )
    needs = "written" if access.is_write else "read"
    raise CompilerError(
        f"{print_step(step)}: {access.value.name} is {needs} while the queue of {space} still "
        f"{verb} it",
        hint=f"a wait for {space} is missing before it",
    )


def _check_spaces(program: DriverProgram, step: Step) -> None:
    """Check that a step accesses values in the spaces in which they are stored."""
    for access in accesses(step):
        _check_space(program, step, access.value, access.by)
    match step:
        case Copy(source, target):
            spaces = program.space(source), program.space(target)
            if HOST not in spaces:
                raise CompilerError(
                    f"{print_step(step)}: it copies from {spaces[0]} to {spaces[1]}",
                    hint="a copy has one end in the host",
                )
            if source.type.nbytes != target.type.nbytes:
                raise CompilerError(
                    f"{print_step(step)}: it copies {source.type.nbytes} bytes to "
                    f"{target.type.nbytes}"
                )
        case Repeat():
            if step.again is not None:
                _check_space(program, step, step.again, HOST)
            for carried in step.carried:
                space = program.space(carried.current)
                _check_space(program, step, carried.initial, space)
                _check_space(program, step, carried.next, space)
            for part in (*step.read, *step.written):
                _check_space(program, step, part.slice, program.space(part.whole))
        case Call() | Launch() | Wait() | Bind() | Fail() | Branch():
            pass


def _check_space(program: DriverProgram, step: Step, value: Value, space: str) -> None:
    if program.space(value) != space:
        raise CompilerError(
            f"{print_step(step)}: {value.name} lies in {program.space(value)}, and not in {space}",
            hint=f"copy it to a value in {space}",
        )


# The ranges of bytes that are written, by the name of the memory.
_Ranges: TypeAlias = dict[str, tuple[Span, ...]]


class _Written:
    """A traversal that tracks the byte ranges of each memory that have been written, and the
    symbols that have values."""

    def __init__(self, program: DriverProgram) -> None:
        self._program = program
        self._sizes = {symbol.name for symbol in program.dims}
        # Empty values; the size of a view of one is 0 at run time, but may be symbolic here.
        self._empty = {
            value.name
            for value in (*program.inputs, *(c.value for c in program.constants))
            if value.type.nbytes == 0
        }

    def check(self) -> None:
        ranges: _Ranges = {}
        for value in (*self._program.inputs, *(c.value for c in self._program.constants)):
            self._write(value, ranges)
        end = self._steps(self._program.steps, ranges)
        if end is None:
            return
        for value in self._program.outputs:
            if self._program.space(value) != HOST:
                raise CompilerError(f"the output {value.name} does not lie in the host")
            if not self._is_there(value, end):
                raise CompilerError(f"the output {value.name} is not written")

    def _steps(self, steps: Iterable[Step], ranges: _Ranges) -> _Ranges | None:
        """Return the ranges that are written after the steps; None if the steps always end the
        run."""
        for step in steps:
            for symbol in symbols(_sizes_of(step)):
                if symbol.name not in self._sizes:
                    raise CompilerError(
                        f"{print_step(step)}: the size {symbol} has no value yet",
                        hint="a step that binds it is missing before",
                    )
            uses = [*accesses(step)]
            if isinstance(step, Copy):
                uses = [Access(step.source, False, HOST), Access(step.target, True, HOST)]
            for access in uses:
                if not access.is_write:
                    self._read(step, access.value, ranges)
            for access in uses:
                if access.is_write:
                    self._write(access.value, ranges)
            match step:
                case Fail():
                    return None
                case Branch():
                    sizes = set(self._sizes)
                    then = self._steps(step.then, dict(ranges))
                    self._sizes = set(sizes)
                    otherwise = self._steps(step.otherwise, dict(ranges))
                    self._sizes = sizes
                    joined = _in_both(then, otherwise)
                    if joined is None:
                        return None
                    ranges = joined
                case Repeat():
                    self._repeat(step, ranges)
                case Call() | Launch() | Copy() | Wait() | Bind():
                    pass
            self._sizes.update(defined_in(step))
        return ranges

    def _repeat(self, step: Repeat, ranges: _Ranges) -> None:
        """Check a loop, and add the ranges that are written after it to `ranges`."""
        for part in step.read:
            self._read(step, part.whole, ranges)
        for carried in step.carried:
            self._read(step, carried.initial, ranges)
        inside = dict(ranges)
        for value in (
            *(carried.current for carried in step.carried),
            *(part.slice for part in step.read),
        ):
            self._write(value, inside)
        sizes = set(self._sizes)
        self._sizes.update(str(grown.symbol) for grown in step.grown)
        end = self._steps(step.body, inside)
        self._sizes = sizes
        if end is not None:
            returned = [carried.next for carried in step.carried]
            returned += [part.slice for part in step.written]
            for value in (*returned, *(() if step.again is None else (step.again,))):
                self._read(step, value, end)
        for carried in step.carried:
            self._write(carried.current, ranges)
        for part in step.written:
            self._write(part.whole, ranges)

    def _read(self, step: Step, value: Value, ranges: _Ranges) -> None:
        if not self._is_there(value, ranges):
            raise CompilerError(
                f"{print_step(step)}: {value.name} is read, and not written before",
                hint=f"a step that writes it in {self._program.space(value)} is missing",
            )

    def _is_there(self, value: Value, ranges: _Ranges) -> bool:
        home = self._program.home(value)
        span = home.offset, home.offset + value.type.nbytes
        is_written = is_within(span, ranges.get(home.name, ()), if_open=True)
        return is_written or home.name in self._empty

    def _write(self, value: Value, ranges: _Ranges) -> None:
        home = self._program.home(value)
        span = (home.offset, home.offset + value.type.nbytes)
        before = ranges.get(home.name, ())
        if span[0] != span[1] and span not in before:
            ranges[home.name] = (*before, span)


def _sizes_of(step: Step) -> Iterator[Extent]:
    """Yield the sizes that a step in a queue uses."""
    match step:
        case Launch(call):
            yield from (*call.dims, *call.needed)
            for shape in step.shapes:
                yield from (*shape.grid, *shape.block)
        case Copy():
            yield step.source.type.nbytes
        case Call() | Bind() | Fail() | Branch() | Repeat() | Wait():
            pass


def _in_both(ranges: _Ranges | None, other: _Ranges | None) -> _Ranges | None:
    """Return the ranges that are written on both of two paths. None stands for a path that ends the
    run; all ranges count as written on it."""
    if ranges is None or other is None:
        return ranges if other is None else other
    names = ranges.keys() & other.keys()
    return {name: in_both(ranges[name], other[name], if_open=True) for name in names}
