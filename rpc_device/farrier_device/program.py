"""The grammar of programs: the steps by which a host drives devices, with the address of every
value.

    program = Program([memory], [dim], [counted], {size} named, [step] setup, [step])
    memory  = Memory(name, size nbytes)                 what the caller provides
    step    = Allocate(memory, space, size nbytes)
            | Copy(place source, place target, size nbytes, has_spare)
            | Launch(kernel, space, [place] args, [size], [place] scratch, [size] needed,
                     [size] grid, [size] block)
            | Call(function, [place] args, [size], [place] scratch, [size] needed, copies)
            | Bind(place, name, check?)
            | Fail(number)
            | Branch(place condition, [step] then, [step] otherwise, [joined])
            | Repeat(size? trips, place? limit, place? condition, place? again, place iteration,
                     [carried], [slice], [step] body, name, check?, [grown])
            | Wait(space)
    place   = Place(memory, size offset, space)
    check   = Check(number, size bound, demand)
    joined  = Joined(name, size then, size otherwise)
    carried = Carried(current, next, place initial, place even, place odd)
    slice   = Slice(name, place whole, size step)
    grown   = Grown(name, size initial, size next, result, check)

A size is a number, or an expression over the names of sizes in Python's notation, such as
`4 * n + min(n, 16)`. The caller provides the sizes `dims`, and the program reports the `counted`
sizes. The `named` sizes abbreviate expressions over the `dims`.

A space is `host` or the name of a device. At least one end of a copy is in the host. Copies from or
to a device, and launches, are queued and run in order on that device, while the host continues;
`Wait` waits until the queue is empty. The host has no queue: a call in it runs a function and
returns. The steps of `setup` run once, before the first run; the memory that they allocate is kept
for all runs.

The arguments of kernels and functions are, in this order: `args`, a pointer to `sizes` as i64 if
there are any, `scratch`. A step is skipped if a size in `needed` is 0. A call that `copies` its
first argument to its second is skipped if both are the same memory.

A `Bind` assigns a name to the i64 at a host address. A check ends the run with the code -1 - number
if a value violates it: if the value is not in the relation `demand` to the bound or, without a
demand, not between 0 and the bound. A `Fail` ends the run with such a code, too. A `Repeat` runs
while the iteration number is less than `trips`, or than the i64 at `limit`, and the bool at
`condition` (from the second iteration on, at `again`) is true; the iteration number is stored as
i64 at `iteration`. The pointers `current` and `next` of a carried value are exchanged after each
iteration, and the pointer of a slice advances by `step` bytes. The size `name` is the number of
iterations.

This module needs only the standard library, because it runs on boards without numpy.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeAlias

from farrier_device import codec

HOST = "host"
Size: TypeAlias = int | str


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Host memory that the caller of a program provides, declared in the order of the program's
    arguments."""

    name: str
    nbytes: Size


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """An address: an offset in bytes from the beginning of a memory in a space."""

    memory: str
    offset: Size = 0
    space: str = HOST


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """A condition that a size must meet, with the number that the return code contains if it is
    violated."""

    number: int
    bound: Size
    demand: str = ""  # "", "exact", "least" or "most"


@dataclasses.dataclass(frozen=True, slots=True)
class Allocate:
    """An allocation of memory in a space, with undefined content. It may contain data of the
    previous run."""

    tag: ClassVar = ("step", "allocate")
    memory: str
    space: str
    nbytes: Size


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """A copy of bytes, in the queue of the device that has one end of the copy. With `has_spare`,
    the copy may write undefined bytes after the target, up to a multiple of a word of 4 bytes,
    since no value is stored there."""

    tag: ClassVar = ("step", "copy")
    source: Place
    target: Place
    nbytes: Size
    has_spare: bool = dataclasses.field(default=False, metadata=codec.OMIT_EMPTY)


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """A kernel launch in the queue of a device. `grid` is the number of blocks along each axis, and
    `block` the number of threads of a block."""

    tag: ClassVar = ("step", "launch")
    kernel: str
    space: str
    args: tuple[Place, ...]
    sizes: tuple[Size, ...] = ()
    scratch: tuple[Place, ...] = ()
    needed: tuple[Size, ...] = ()
    grid: tuple[Size, ...] = ()
    block: tuple[Size, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call of a host function. A non-zero return value is a failure code, and ends the run."""

    tag: ClassVar = ("step", "call")
    function: str
    args: tuple[Place, ...]
    sizes: tuple[Size, ...] = ()
    scratch: tuple[Place, ...] = ()
    needed: tuple[Size, ...] = ()
    copies: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Bind:
    """A definition of the size `name` as the i64 at a host address, for the steps that follow; with
    the name "", the value is only checked."""

    tag: ClassVar = ("step", "bind")
    place: Place
    name: str
    check: Check | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Fail:
    """A step that ends the run with the code of its number."""

    tag: ClassVar = ("step", "fail")
    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """A size that both branches define, each by an expression of its own."""

    name: str
    then: Size
    otherwise: Size


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    """Steps that run if the bool at a host address is true, and steps that run otherwise."""

    tag: ClassVar = ("step", "branch")
    condition: Place
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]
    joined: tuple[Joined, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Carried:
    """Two pointers to a loop-carried value, which are exchanged after each iteration: `current`
    starts at `initial` and `next` at `even`. After an iteration, `current` becomes the former
    `next`; `next` becomes `odd` after the first iteration, later the former `current`."""

    current: str
    next: str
    initial: Place
    even: Place
    odd: Place


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """A pointer to the slice of the array `whole` that belongs to the present iteration; `step` is
    the size of a slice in bytes."""

    name: str
    whole: Place
    step: Size


@dataclasses.dataclass(frozen=True, slots=True)
class Grown:
    """A size that changes in each iteration of a loop; `result` is the name of its value after the
    loop."""

    name: str
    initial: Size
    next: Size
    result: str
    check: Check


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """A loop over steps. `check` limits the number of its iterations."""

    tag: ClassVar = ("step", "repeat")
    trips: Size | None
    limit: Place | None
    condition: Place | None
    again: Place | None
    iteration: Place
    carried: tuple[Carried, ...]
    slices: tuple[Slice, ...]
    body: tuple[Step, ...]
    name: str = ""
    check: Check | None = None
    grown: tuple[Grown, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """A step in which the host waits until the queue of a space is empty."""

    tag: ClassVar = ("step", "wait")
    space: str


Step: TypeAlias = Allocate | Copy | Launch | Call | Bind | Fail | Branch | Repeat | Wait


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A whole model, or another sequence of steps that drives devices."""

    memories: tuple[Memory, ...]
    dims: tuple[str, ...]
    counted: tuple[str, ...]
    named: Mapping[str, Size]
    setup: tuple[Step, ...]
    steps: tuple[Step, ...]


def program_to_json(program: Program) -> str:
    return json.dumps(codec.encode(program))


def program_from_json(text: str | bytes) -> Program:
    """Parse a program. Raises ValueError for any other text, and for a program with elements that
    this version does not know."""
    return codec.loads(Program, text, unknown=codec.Unknown.REFUSED, name="program")


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """Return the value of a size expression, from the values of the names in it. Raises ValueError
    for a text that is not a size, and KeyError for a name that has no value."""
    return size if isinstance(size, int) else _evaluator(size)(values)


_FUNCTIONS: Mapping[str, Callable[[int, int], int]] = {"min": min, "max": max}
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub)


@functools.lru_cache(maxsize=4096)  # A program has some hundred sizes.
def _evaluator(text: str) -> Callable[[Mapping[str, int]], int]:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is not a valid size: {error}") from None
    for node in ast.walk(tree.body):
        match node:
            case ast.Constant() if type(node.value) is int:
                continue
            case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _], keywords=[]):
                continue
            case ast.Name() | ast.BinOp() | ast.UnaryOp() | ast.Load():
                continue
            case _ if isinstance(node, _OPERATORS):
                continue
        raise ValueError(f"{text!r} is not a valid size: it contains {ast.unparse(node)}")
    code = compile(tree, "<size>", "eval")
    scope = {"__builtins__": {}, **_FUNCTIONS}

    def value(values: Mapping[str, int]) -> int:
        try:
            result: int = eval(code, scope, dict(values))
        except NameError as error:
            raise KeyError(error.name) from None
        return result

    return value
