"""Measure the current speed of this machine: multiplications in registers, and memory read as a
stream.

Both are measured with the thread pool on which the models run, because clocks drift and cores are
shared: a fraction of a roofline is only meaningful relative to the roofline of the same minute.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from farrier.artifact.manifest import KernelReport
from farrier.intrinsics import Dot
from farrier.ir import instr
from farrier.ir.instr import (
    F32,
    I32,
    I64,
    PTR,
    Carried,
    Function,
    Loop,
    Operand,
    Type,
    Variable,
    index,
    symbol,
)
from farrier.targets.cpu.codegen import compile_text, link, support_object
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.llvm_text import module_text
from farrier.targets.llvm.values import type_of
from farrier_device.memory import aligned_buffer, pointers
from farrier_device.native import Library, Pool

_ITEMS = 64  # The number of work items, which the threads divide among themselves.
_SUMS = 12  # More than ports times latency, and with an operand within 16 registers.
_ROUNDS = 4000  # The multiply-adds of one sum in one item.
_LOADS = 8
_STREAM_BYTES = 256 << 20
_TURNS = 6
_REPEATS = 4

# The next sums of a step, from its number and the present ones.
_Step: TypeAlias = Callable[[Operand, Sequence[Operand]], list[Operand]]


@dataclasses.dataclass(frozen=True, slots=True)
class Roofline:
    """The operations and bytes per second of all threads together; a multiply-add counts as two
    operations."""

    operations: float  # The rate on f32.
    bandwidth: float
    # The rates of the machine's dot products, by the dtypes of factors and sum: "u8 i8 i32".
    dots: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def arithmetic_s(self, kernel: KernelReport) -> float:
        """Return a lower bound of the seconds of a call's arithmetic: products at the rate of the
        machine's dot-product instruction, if it has one for their types, and everything else as
        multiply-adds on f32."""
        products = 2 * kernel.multiply_adds
        rest = (kernel.operations - products) / self.operations
        return rest + products / self.dots.get(kernel.factors, self.operations)

    def floor_s(self, kernel: KernelReport, nbytes: float) -> float:
        """Return a lower bound of the seconds of a call that reads and writes `nbytes` bytes of
        memory that is not cached."""
        return max(self.arithmetic_s(kernel), nbytes / self.bandwidth)


def measure_roofline(target: CpuTarget, threads: int) -> Roofline:
    """Measure with the target's vectors, taking the best of several runs; this takes about half a
    second. Matrix instructions on tiles are not measured."""
    vector_bytes = 4 * target.lanes
    stream_bytes = -(-max(_STREAM_BYTES, 4 * target.l3_bytes) // (1 << 20)) << 20
    steps = stream_bytes // _ITEMS // (_LOADS * vector_bytes)
    dots = {f"{dot.left} {dot.right} {dot.total}": dot for dot in reversed(target.available_dots)}
    names = {"multiply_adds": "", "read_stream": ""}
    names |= {f"dots{number}": key for number, key in enumerate(dots)}
    functions = _multiply_adds(target.lanes) + _read_stream(target.lanes, steps)
    for name, key in names.items():
        functions += _dots(name, dots[key], target) if key else []
    text = module_text(functions, " ".join(target.instructions.attributes))
    library = link([compile_text(text, target), support_object(target)])
    stream, sums = aligned_buffer(stream_bytes), aligned_buffer(64 * threads)
    # Memory that was never written is one page of zeros, read from the first-level cache.
    np.frombuffer(stream.view, np.float32)[:] = 1.0
    args = pointers([stream.address, sums.address])
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with Library.from_bytes(library) as loaded, Pool(loaded, threads) as pool:
        # In turn: a neighbour that takes a core for a while should not spoil all runs of one.
        for _ in range(_TURNS):
            for name in names:
                measured = loaded.time(loaded.entry(name), args, pool, _REPEATS)
                seconds[name] += (ns / 1e9 for ns in measured)
    best = {name: min(samples) for name, samples in seconds.items()}
    multiplied = 2 * _SUMS * _ROUNDS * _ITEMS  # In each lane, and for each product of a group.
    rates = {
        key: multiplied * dots[key].group * _lanes(dots[key], target) / best[name]
        for name, key in names.items()
        if key
    }
    operations = multiplied * target.lanes / best["multiply_adds"]
    return Roofline(operations, stream_bytes / best["read_stream"], rates)


def _multiply_adds(lanes: int) -> list[Function]:
    """Return the functions of a kernel that computes sum = sum * operand + operand with _SUMS
    independent sums."""
    sums = F32.of(lanes)

    def begin(b: Builder, stream: Operand) -> _Step:
        operand = b.load(sums, stream, 4 * lanes)

        def step(_: Operand, totals: Sequence[Operand]) -> list[Operand]:
            # With `contract`, LLVM makes one instruction of the two where the machine has it.
            products = [b.pure(instr.FMUL, sums, (x, operand), "contract") for x in totals]
            return [b.pure(instr.FADD, sums, (x, operand), "contract") for x in products]

        return step

    return _kernel("multiply_adds", sums, _SUMS, _ROUNDS, begin)


def _lanes(dot: Dot, target: CpuTarget) -> int:
    return max(lanes for lanes in dot.lanes if lanes <= target.lanes)


def _dots(name: str, dot: Dot, target: CpuTarget) -> list[Function]:
    """Return the functions of a kernel that repeatedly computes sum = sum + dot(operand, sum).
    The sum is also a factor, because a product of two constant operands would be moved out of
    the loop."""
    lanes = _lanes(dot, target)
    sums = type_of(dot.total, lanes)

    def begin(b: Builder, stream: Operand) -> _Step:
        operand = b.load(I32.of(lanes), stream, 4 * lanes)

        def step(_: Operand, totals: Sequence[Operand]) -> list[Operand]:
            added = [dot.emit(b, lanes, x, operand, b.bitcast(x, operand.type)) for x in totals]
            return [b.bitcast(x, sums) for x in added]

        return step

    return _kernel(name, sums, _SUMS, _ROUNDS, begin)


def _read_stream(lanes: int, steps: int) -> list[Function]:
    """Return the functions of a kernel that computes sum = sum + stream[…], with _LOADS vectors per
    step."""
    vector, nbytes = F32.of(lanes), 4 * lanes

    def begin(b: Builder, stream: Operand) -> _Step:
        def step(at: Operand, totals: Sequence[Operand]) -> list[Operand]:
            block = b.offset(stream, b.op(instr.MUL, at, index(_LOADS * nbytes)))
            places = [b.offset(block, i * nbytes) for i in range(_LOADS)]
            values = [b.load(vector, place, nbytes) for place in places]
            return [b.op(instr.FADD, x, y) for x, y in zip(totals, values, strict=True)]

        return step

    return _kernel("read_stream", vector, _LOADS, steps, begin)


def _kernel(
    name: str,
    sums: Type,
    count: int,
    steps: int,
    begin: Callable[[Builder, Operand], _Step],
) -> list[Function]:
    """Return an entry point and its body, which divides `_ITEMS` times `steps` steps among the
    threads.

    A step computes the next `count` sums from the current ones; `begin` creates the step from the
    address of the stream. The arguments are the stream and an array with an element for each
    worker's result, without which the computation would be removed as dead code.
    """
    args, pool = Variable(PTR, "args"), Variable(PTR, "pool")
    b = Builder()
    run = b.load(PTR, pool, 8)
    b.put(instr.CALL, (run, pool, symbol(f"{name}.body"), args, index(_ITEMS)))
    entry = Function(name, (args, pool), b.body, instr.number_of(I32, 0), is_exported=True)

    chunk = [Variable(I64, word) for word in ("begin", "end", "worker")]
    b = Builder()
    step = begin(b, b.load(PTR, args, 8))
    results = b.load(PTR, b.offset(args, 8), 8)
    first, last = (b.op(instr.MUL, bound, index(steps)) for bound in chunk[:2])
    at, totals = Variable(I64, "at"), [Variable(sums, f"sum{i}") for i in range(count)]
    with b.nested() as body:
        following = step(at, totals)
        after = b.op(instr.ADD, at, index(1))
        again = b.icmp("slt", after, last)
    carried = [Carried(at, first, after)]
    carried += [Carried(x, instr.zero(sums), y) for x, y in zip(totals, following, strict=True)]
    b.body.append(Loop(carried, body, again, b.labels(2)))
    add = instr.FADD if sums.element.startswith(("f", "bf")) else instr.ADD
    total = functools.reduce(functools.partial(b.op, add), following)
    b.store(total, b.offset(results, b.op(instr.MUL, chunk[2], index(64))), 4)
    return [entry, Function(f"{name}.body", (args, *chunk), b.body, None)]
