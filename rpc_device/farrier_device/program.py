"""The grammar of programs: steps by which a host drives devices, every value at its address.

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

A space is `host` or the name that a device has. One end of a copy at least is in the host. Copies
from or to a device, and launches, wait in the queue of that device and run in its order, while the
host goes on; `Wait` ends when the queue is empty. A host has no queue: there a call runs a function
and returns. The steps of `setup` run once, before the first run; the memory that they allocate
stays for all runs.

Kernels and functions have their arguments in this order: `args`, a pointer to `sizes` as i64 if
there are any, `scratch`. A step is skipped if a size in `needed` is 0, and a call that `copies` its
first argument to its second if both are the same memory.

A `Bind` names the i64 in a place of the host. A check ends the run with the code -1 - number for a
value that breaks it: one which is not in the relation `demand` to the bound, or, without a demand,
not between 0 and the bound. So does a `Fail`. A `Repeat` runs while the iteration is less than
`trips`, or than the i64 at `limit`, and the bool at `condition`, later at `again`, holds; the i64
at `iteration` counts. The pointers `current` and `next` of a carried value change places, and the
pointer of a slice moves by `step` bytes. The size `name` is the number of iterations.

Standard library only: this module runs on a board that has no numpy.
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
    """Memory of the host that the caller of a program provides, in the order of its arguments."""

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
    """The condition that a size must meet, and the number by which a failure reports it."""

    number: int
    bound: Size
    demand: str = ""  # "", "exact", "least" or "most"


@dataclasses.dataclass(frozen=True, slots=True)
class Allocate:
    """Memory of a space, undefined at first. A run may find that of the run before again."""

    tag: ClassVar = ("step", "allocate")
    memory: str
    space: str
    nbytes: Size


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """A copy of bytes, in the queue of the device that holds one end. If it `has_spare`, it may
    write undefined bytes behind the target up to a multiple of a word, 4 bytes: nothing lies there.
    """

    tag: ClassVar = ("step", "copy")
    source: Place
    target: Place
    nbytes: Size
    has_spare: bool = dataclasses.field(default=False, metadata=codec.OMIT_EMPTY)


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """A kernel in the queue of a device. `grid` counts its blocks along each axis, and `block` the
    threads of a block."""

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
    """A call of a function of the host. A non-zero return value is its code of failure, and ends
    the run."""

    tag: ClassVar = ("step", "call")
    function: str
    args: tuple[Place, ...]
    sizes: tuple[Size, ...] = ()
    scratch: tuple[Place, ...] = ()
    needed: tuple[Size, ...] = ()
    copies: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Bind:
    """From here on the size `name` is the i64 in a place of the host; "" only checks it."""

    tag: ClassVar = ("step", "bind")
    place: Place
    name: str
    check: Check | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Fail:
    """The end of a run that gets here."""

    tag: ClassVar = ("step", "fail")
    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """A size that either branch computes."""

    name: str
    then: Size
    otherwise: Size


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    """Steps that run if the bool in a place of the host is true, and others if it is not."""

    tag: ClassVar = ("step", "branch")
    condition: Place
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]
    joined: tuple[Joined, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Carried:
    """Two pointers that a loop exchanges after each iteration: `current` begins at `initial` and
    `next` at `even`. After an iteration, `current` is what `next` was, and `next` is `odd` after
    the first iteration, then the former `current`."""

    current: str
    next: str
    initial: Place
    even: Place
    odd: Place


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """A pointer to one step of a whole."""

    name: str
    whole: Place
    step: Size


@dataclasses.dataclass(frozen=True, slots=True)
class Grown:
    """A size that changes in each iteration; `result` is its name when the loop has ended."""

    name: str
    initial: Size
    next: Size
    result: str
    check: Check


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """Steps that run once an iteration. `check` bounds how often."""

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
    """The host waits until the queue of a space is empty."""

    tag: ClassVar = ("step", "wait")
    space: str


Step: TypeAlias = Allocate | Copy | Launch | Call | Bind | Fail | Branch | Repeat | Wait


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A whole model, or any other sequence of steps on devices."""

    memories: tuple[Memory, ...]
    dims: tuple[str, ...]
    counted: tuple[str, ...]
    named: Mapping[str, Size]
    setup: tuple[Step, ...]
    steps: tuple[Step, ...]


def program_to_json(program: Program) -> str:
    return json.dumps(codec.encode(program))


def program_from_json(text: str | bytes) -> Program:
    """Return the program that a text holds. Raises ValueError for a text that holds none, or one
    with parts that this version does not know."""
    return codec.loads(Program, text, unknown=codec.Unknown.REFUSED, name="program")


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """Return the value of a size, from those of the names in it. Raises ValueError for a text that
    is not a size, KeyError for a name that has no value."""
    return size if isinstance(size, int) else _evaluator(size)(values)


_FUNCTIONS: Mapping[str, Callable[[int, int], int]] = {"min": min, "max": max}
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub)


@functools.lru_cache(maxsize=4096)  # A program has some hundred sizes.
def _evaluator(text: str) -> Callable[[Mapping[str, int]], int]:
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is not a size: {error}") from None
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
        raise ValueError(f"{text!r} is not a size: {ast.unparse(node)}")
    code = compile(tree, "<size>", "eval")
    scope = {"__builtins__": {}, **_FUNCTIONS}

    def value(values: Mapping[str, int]) -> int:
        try:
            result: int = eval(code, scope, dict(values))
        except NameError as error:
            raise KeyError(error.name) from None
        return result

    return value
