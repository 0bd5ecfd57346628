"""The driver program of a model: calls of kernels in order, under conditions and in loops, and
copies of values between the memory spaces in which kernels run.

    program = DriverProgram([value] inputs, [value] outputs, [constant], [step], {home}, {space})
    step    = Call(task, [value] inputs, [value] outputs, origin, runs, [extent] dims,
                   [extent] needed, count, copies)
            | Launch(call, space, [shape])
            | Copy(value source, value target)
            | Wait(space)
            | Bind(value, [extent], origin, is_check, reason, demands, needs)
            | Fail(reason, origin)
            | Branch(condition, [step] then, [step] otherwise, [joined])
            | Repeat(trips?, condition?, again?, iteration, [carried], [slice] read,
                     [slice] written, [step] body, count?, [grown], origin, note)
    shape   = Shape(entry, [extent] grid, [extent] block)
    carried = Carried(initial, current, next)
    slice   = Slice(whole, slice)
    home    = Home(name, offset)                     the value in whose memory another lies

All regions of a graph are in one program, so the names of their values are made unique: those of a
region start with the name of the first result of its node. A value without memory of its own has a
home: the value in whose memory it lies.

A value is stored in the `host` unless `spaces` names another memory space, and it is accessed only
by its space: by the host, or by the queue of the device to which the space belongs. Launches wait
in that queue, and so do copies, one end of which is in the host; the host continues at once, until
a `Wait` blocks it until the queue is empty. Partition creates programs that contain only calls, all
in the host. For a machine with other spaces `farrier.partition.placement` turns them into programs
with launches, copies and waits, which `farrier.partition.verify_program` checks.
`farrier.partition.executable` assigns an address to every value, for `farrier_device.interpreter`
and artifacts; the memory of a device is allocated there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from farrier.ir.control import Grown, Joined
from farrier.ir.dim import Extent, Symbol, as_extent, symbols, upper, with_bounds
from farrier.ir.graph import Constant, Value
from farrier.ir.sizes import Demand
from farrier_device.program import HOST


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One call of a task.

    `inputs` and `outputs` are in the order of the task's region; `origin` names the ONNX nodes that
    the call computes. `runs` is the number of executions in one run of the model: the product of
    the known trip counts of the loops around the call; both branches of a condition count. `dims`
    are the values of the region's dims in terms of the model's. The call is skipped if one of the
    extents `needed` is 0. If an extent of the result depends on the data, `count` is its symbol,
    and the last output is the value of the extent.

    If `copies` is true, the call copies its input to its output without changing a byte. It is
    skipped if the caller of the model passes the same address for both.
    """

    task: str  # The key of the task.
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    origin: str
    runs: int = 1
    dims: tuple[Extent, ...] = ()
    needed: tuple[Extent, ...] = ()
    count: str = ""
    copies: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a launch in terms of the model's dims: `grid` is the number of blocks along each
    axis, and `block` the number of threads. The name of the entry point is the kernel's name
    followed by `entry`."""

    entry: str = ""
    grid: tuple[Extent, ...] = ()
    block: tuple[Extent, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """A call of a device kernel in the queue of a space: one launch for each entry point, in order,
    all with the same arguments."""

    call: Call
    space: str
    shapes: tuple[Shape, ...] = (Shape(),)


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a complete value between the host and another space, in the queue of that space."""

    source: Value
    target: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """A wait of the host until the queue of a space is empty."""

    space: str


@dataclasses.dataclass(frozen=True, slots=True)
class Bind:
    """A step that reads an i64 value whose elements are sizes, and compares or defines the extents
    in `extents`, one for each element.

    If an extent is a symbol without a value, the symbol gets the element as its value, after a
    check of the symbol's bounds. Any other extent, and with `is_check` every extent, is compared
    with its element; `demands` is the relation that must hold. `origin` names the ONNX node that
    requires the sizes, and `needs` describes the required size in words. If `reason` is not empty,
    other sizes lead to a branch of the model that was not compiled, for this reason.
    """

    value: Value
    extents: tuple[Extent, ...]
    origin: str
    is_check: bool = False
    reason: str = ""
    demands: Demand = Demand.EXACT
    needs: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Fail:
    """A step that aborts the run: `origin` names the ONNX node with the branch that cannot be
    compiled, and `reason` explains why."""

    reason: str
    origin: str


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    condition: Value
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]
    joined: tuple[Joined, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Carried:
    """A value that passes from iteration to iteration. `current` and `next` have no memory of their
    own: they are pointers that are exchanged after each iteration. After the loop `current` is the
    result."""

    initial: Value
    current: Value
    next: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """The pointer `slice`, which points to slice i of `whole` along axis 0 in iteration i."""

    whole: Value
    slice: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """A loop over `body` with the semantics of `ir.control.Loop`. `trips` is an extent if it
    follows from sizes, or a value; None means no bound. `note` is a sentence for the user about a
    loop that a pass inserted."""

    trips: Value | Extent | None
    condition: Value | None
    again: Value | None
    iteration: Value
    carried: tuple[Carried, ...]
    read: tuple[Slice, ...]
    written: tuple[Slice, ...]
    body: tuple[Step, ...]
    count: Symbol | None = None  # The number of iterations that ran.
    grown: tuple[Grown, ...] = ()
    origin: str = ""
    note: str = ""


Step: TypeAlias = Call | Launch | Copy | Wait | Bind | Fail | Branch | Repeat


@dataclasses.dataclass(frozen=True, slots=True)
class Home:
    """The value in whose memory another value lies, and the offset from its start in bytes."""

    name: str
    offset: Extent = 0


@dataclasses.dataclass(frozen=True)
class DriverProgram:
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...]
    homes: Mapping[str, Home]  # By the name of a value without memory of its own.
    spaces: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # By the name of a value with memory; absent for the host.

    @property
    def dims(self) -> tuple[Symbol, ...]:
        """The sizes that a caller passes, in order: the symbols in the shapes of the inputs, then
        capacities."""
        shapes = (value.type.shape for value in self.inputs)
        input_sizes = dict.fromkeys(symbols(extent for shape in shapes for extent in shape))
        return (*input_sizes, *self.capacities)

    @functools.cached_property
    def capacities(self) -> tuple[Symbol, ...]:
        """The capacities: upper bounds, passed by the caller, of extents that the data decides and
        that no other size bounds."""
        input_sizes = {s.name for v in self.inputs for s in symbols(v.type.shape)}
        computed = {name for step in steps_in(self.steps) for name in defined_in(step)}
        defined = input_sizes | computed
        return tuple(s for s in self.symbols if s.name not in defined and isinstance(s.high, int))

    @functools.cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol in the extents of the program, each after the symbols of its own bound."""
        return tuple(dict.fromkeys(with_bounds(_extents_of(self.steps))))

    @property
    def has_checks(self) -> bool:
        """Check whether the program computes sizes that may be invalid."""
        return bool(self.capacities) or any(isinstance(step, Bind) for step in steps_in(self.steps))

    def room(self, value: Value) -> Extent:
        """Return the largest number of bytes that a value may need. Extents that depend on the data
        count with their upper bounds."""
        argument_names = frozenset(symbol.name for symbol in self.dims)
        return upper(value.type.nbytes, lambda symbol: symbol.name in argument_names)

    @property
    def counted(self) -> tuple[Symbol, ...]:
        """The data-dependent symbols in the extents of the outputs, and in the bounds of these
        symbols, without sizes that the caller passes. A symbol comes after all symbols that occur
        in its bound."""
        ordered = with_bounds(extent for value in self.outputs for extent in value.type.shape)
        return tuple(symbol for symbol in dict.fromkeys(ordered) if symbol not in self.dims)

    @property
    def calls(self) -> list[Call]:
        """Every call once, in textual order."""
        return list(calls_in(self.steps))

    def with_tasks(self, tasks: Iterable[str]) -> DriverProgram:
        """Return the program with the task of each of `calls` replaced, in order."""
        pairs = zip(self.calls, tasks, strict=True)
        return self.with_calls(dataclasses.replace(call, task=task) for call, task in pairs)

    def with_calls(self, calls: Iterable[Call]) -> DriverProgram:
        """Return the program with each of `calls` replaced, in order."""
        return dataclasses.replace(self, steps=_with_calls(self.steps, iter(calls)))

    def as_text(self) -> tuple[str, str]:
        """Return the file name under which the program is dumped, and its text."""
        from farrier.partition.print_program import print_driver

        return "driver", print_driver(self)

    def home(self, value: Value) -> Home:
        """Return the value in whose memory `value` is stored, and the offset there. If `value` has
        memory of its own, return `value` itself and the offset 0."""
        return outermost(Home(value.name), self.homes)

    def space(self, value: Value) -> str:
        """Return the name of the memory space in which a value is stored."""
        if not self.spaces:
            return HOST
        return self.spaces.get(self.home(value).name, HOST)


def steps_in(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield every step, nested ones included, in pre-order."""
    for step in steps:
        yield step
        match step:
            case Branch():
                yield from steps_in(step.then)
                yield from steps_in(step.otherwise)
            case Repeat():
                yield from steps_in(step.body)
            case Call() | Launch() | Copy() | Wait() | Bind() | Fail():
                pass


def calls_in(steps: Iterable[Step]) -> Iterator[Call]:
    """Yield every call, those of launches and nested ones included, in textual order."""
    for step in steps_in(steps):
        if isinstance(step, Call):
            yield step
        elif isinstance(step, Launch):
            yield step.call


def notes_of(program: DriverProgram) -> tuple[str, ...]:
    """Return the sentences for the user about loops that passes inserted."""
    loops = (step for step in steps_in(program.steps) if isinstance(step, Repeat))
    return tuple(loop.note for loop in loops if loop.note)


def _with_calls(steps: Iterable[Step], calls: Iterator[Call]) -> tuple[Step, ...]:
    new_steps: list[Step] = []
    for step in steps:
        match step:
            case Call():
                new_steps.append(next(calls))
            case Launch():
                new_steps.append(dataclasses.replace(step, call=next(calls)))
            case Copy() | Wait() | Bind() | Fail():
                new_steps.append(step)
            case Branch():
                then = _with_calls(step.then, calls)
                otherwise = _with_calls(step.otherwise, calls)
                new_steps.append(dataclasses.replace(step, then=then, otherwise=otherwise))
            case Repeat():
                new_steps.append(dataclasses.replace(step, body=_with_calls(step.body, calls)))
    return tuple(new_steps)


def without(steps: Iterable[Step], is_gone: Callable[[Step], bool]) -> tuple[Step, ...]:
    """Return the steps, including nested ones, from which all steps are removed for which `is_gone`
    is true."""
    left: list[Step] = []
    for step in steps:
        match step:
            case _ if is_gone(step):
                continue
            case Branch():
                then, otherwise = without(step.then, is_gone), without(step.otherwise, is_gone)
                left.append(dataclasses.replace(step, then=then, otherwise=otherwise))
            case Repeat():
                left.append(dataclasses.replace(step, body=without(step.body, is_gone)))
            case Call() | Launch() | Copy() | Wait() | Bind() | Fail():
                left.append(step)
    return tuple(left)


def _extents_of(steps: Iterable[Step]) -> Iterator[Extent]:
    """Yield the extents of all values that steps access, and of all sizes that they use."""
    for step in steps:
        match step:
            case Call():
                yield from step.dims
                for value in (*step.inputs, *step.outputs):
                    yield from value.type.shape
            case Launch():
                for shape in step.shapes:
                    yield from (*shape.grid, *shape.block)
                yield from _extents_of((step.call,))
            case Copy():
                yield from step.source.type.shape
            case Bind():
                yield from step.extents
            case Fail() | Wait():
                pass
            case Branch():
                yield from _extents_of((*step.then, *step.otherwise))
                yield from (joined.symbol for joined in step.joined)
            case Repeat():
                for part in (*step.read, *step.written):
                    yield from part.whole.type.shape
                for grown in step.grown:
                    yield from (grown.symbol, grown.result)
                yield from _extents_of(step.body)


def defined_in(step: Step) -> Iterable[str]:
    """Return the names of the symbols whose values a step itself computes."""
    match step:
        case Call():
            return (step.count,)
        case Bind():
            computed: Iterable[Extent] = () if step.is_check else step.extents
        case Launch(call=call):
            return (call.count,)
        case Fail() | Copy() | Wait():
            computed = ()
        case Branch():
            computed = (extent.symbol for extent in step.joined)
        case Repeat():
            counted = () if step.count is None else (as_extent(step.count),)
            computed = (
                *counted,
                *(e for extent in step.grown for e in (extent.symbol, extent.result)),
            )
    return (symbol.name for symbol in symbols(computed))


def outermost(home: Home, homes: Mapping[str, Home]) -> Home:
    """Follow `homes` from one value to the next until a value has memory of its own. Return that
    value, with the sum of all offsets."""
    while home.name in homes:
        outer = homes[home.name]
        home = Home(outer.name, home.offset + outer.offset)
    return home
