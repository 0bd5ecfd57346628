"""What this machine can do right now: products in registers, and memory read in a stream.

All are measured with the pool that the models run on, because clocks drift and cores are shared:
a share of a roofline is worth something only against the roofline of the same minute.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from farrier.artifact.manifest import KernelReport
from farrier.intrinsics import Dot
from farrier.ir.instr import I32, Variable
from farrier.targets.cpu.codegen import compile_text, link, support_object
from farrier.targets.cpu.codegen.builder import Builder
from farrier.targets.cpu.codegen.llvm_text import lines_of, operand_text, type_text
from farrier.targets.cpu.codegen.values import type_of
from farrier.targets.cpu.target import CpuTarget
from farrier_device.memory import aligned_buffer, pointers
from farrier_device.native import Library, Pool

_ITEMS = 64  # that the threads share
_SUMS = 12  # more than ports times latency, and with an operand within 16 registers
_ROUNDS = 4000  # multiply-adds of one sum in one item
_LOADS = 8
_STREAM_BYTES = 256 << 20
_TURNS = 6
_REPEATS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Roofline:
    """Operations and bytes a second, of all threads together; a multiply-add counts two."""

    operations: float  # on f32
    bandwidth: float
    # of the machine's dot products, by the dtypes of factors and sum: "u8 i8 i32"
    dots: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def arithmetic_s(self, kernel: KernelReport) -> float:
        """Seconds that a call's arithmetic takes at least: products at the rate of the machine's
        dot product, where it has one for them, and all else as multiply-adds on f32."""
        products = 2 * kernel.multiply_adds
        rest = (kernel.operations - products) / self.operations
        return rest + products / self.dots.get(kernel.factors, self.operations)

    def floor_s(self, kernel: KernelReport, nbytes: float) -> float:
        """Seconds below which no call can come that reads and writes so much cold memory."""
        return max(self.arithmetic_s(kernel), nbytes / self.bandwidth)


def measure_roofline(target: CpuTarget, threads: int) -> Roofline:
    """With vectors of the target, the best of some runs of each; takes about half a second.
    Products of whole tiles are not measured."""
    vector_bytes = 4 * target.lanes
    stream_bytes = -(-max(_STREAM_BYTES, 4 * target.l3_bytes) // (1 << 20)) << 20
    steps = stream_bytes // _ITEMS // (_LOADS * vector_bytes)
    dots = {f"{dot.left} {dot.right} {dot.total}": dot for dot in reversed(target.available_dots)}
    names = {"multiply_adds": "", "read_stream": ""}
    names |= {f"dots{number}": key for number, key in enumerate(dots)}
    text = _multiply_adds(target.lanes) + _read_stream(target.lanes, steps)
    text += "".join(_dots(name, dots[key], target) for name, key in names.items() if key)
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
    multiplied = 2 * _SUMS * _ROUNDS * _ITEMS  # in each lane, and of each product of a group
    rates = {
        key: multiplied * dots[key].group * _lanes(dots[key], target) / best[name]
        for name, key in names.items()
        if key
    }
    operations = multiplied * target.lanes / best["multiply_adds"]
    return Roofline(operations, stream_bytes / best["read_stream"], rates)


def _multiply_adds(lanes: int) -> str:
    """sum = sum * operand + operand, _SUMS of them that do not wait for each other."""
    step = []
    for i in range(_SUMS):
        # `contract` makes one instruction of the two where the machine has it.
        step += [
            f"  %product{i} = fmul contract VECTOR %sum{i}, %operand",
            f"  %next{i} = fadd contract VECTOR %product{i}, %operand",
        ]
    before = ["  %operand = load VECTOR, ptr %stream"]
    return _kernel("multiply_adds", f"<{lanes} x float>", _SUMS, _ROUNDS, before, step)


def _lanes(dot: Dot, target: CpuTarget) -> int:
    return max(lanes for lanes in dot.lanes if lanes <= target.lanes)


def _dots(name: str, dot: Dot, target: CpuTarget) -> str:
    """sum = sum + dot product of operand and sum, likewise: a product of what does not change would
    leave the loop."""
    lanes = _lanes(dot, target)
    type_, declared, builder = type_of(dot.total, lanes), set[str](), Builder()
    kind, operand = type_text(type_), Variable(I32.of(lanes), "operand")
    names = []
    for i in range(_SUMS):
        sums = Variable(type_, f"sum{i}")
        total = dot.emit(builder, lanes, sums, operand, builder.bitcast(sums, operand.type))
        names.append(f"  %next{i} = bitcast {kind} {operand_text(total)} to {kind}")
    step = [*lines_of(builder.body, declared), *names]
    before = [f"  %operand = load <{lanes} x i32>, ptr %stream"]
    adds = "fadd" if dot.total.is_float else "add"
    kernel = _kernel(name, kind, _SUMS, _ROUNDS, before, step, adds)
    return "\n".join([kernel, *sorted(declared), ""])


def _read_stream(lanes: int, steps: int) -> str:
    """sum = sum + stream[…], a block of _LOADS vectors a step."""
    vector = f"<{lanes} x float>"
    step = [
        f"  %offset = mul i64 %at, {_LOADS}",
        "  %block = getelementptr VECTOR, ptr %stream, i64 %offset",
    ]
    for i in range(_LOADS):
        step += [
            f"  %place{i} = getelementptr VECTOR, ptr %block, i64 {i}",
            f"  %value{i} = load VECTOR, ptr %place{i}",
            f"  %next{i} = fadd VECTOR %sum{i}, %value{i}",
        ]
    return _kernel("read_stream", vector, _LOADS, steps, [], step)


def _kernel(
    name: str,
    vector: str,
    sums: int,
    steps: int,
    before: list[str],
    step: list[str],
    adds: str = "fadd",
) -> str:
    """An entry point that shares `_ITEMS` times `steps` steps among the threads; its arguments are
    the stream and a place for each worker's result, without which nothing would be computed."""
    numbers = range(sums)
    start = (f"[ zeroinitializer, %entry ], [ %next{i}, %loop ]" for i in numbers)
    lines = [
        f"define i32 @{name}(ptr %args, ptr %pool) nounwind {{",
        "  %parallel_for = load ptr, ptr %pool",
        f"  call void %parallel_for(ptr %pool, ptr @{name}.body, ptr %args, i64 {_ITEMS})",
        "  ret i32 0",
        "}",
        f"define internal void @{name}.body(ptr %args, i64 %begin, i64 %end, i64 %worker) "
        'nounwind "min-legal-vector-width"="512" {',
        "entry:",
        "  %stream = load ptr, ptr %args",
        "  %results.at = getelementptr ptr, ptr %args, i64 1",
        "  %results = load ptr, ptr %results.at",
        *before,
        f"  %first = mul i64 %begin, {steps}",
        f"  %last = mul i64 %end, {steps}",
        "  br label %loop",
        "loop:",
        "  %at = phi i64 [ %first, %entry ], [ %at.next, %loop ]",
        *(f"  %sum{i} = phi VECTOR {values}" for i, values in zip(numbers, start, strict=True)),
        *step,
        "  %at.next = add i64 %at, 1",
        "  %more = icmp slt i64 %at.next, %last",
        "  br i1 %more, label %loop, label %done",
        "done:",
        f"  %total0 = {adds} VECTOR %next0, zeroinitializer",
        *(f"  %total{i} = {adds} VECTOR %total{i - 1}, %next{i}" for i in numbers[1:]),
        "  %line = mul i64 %worker, 64",
        "  %result = getelementptr i8, ptr %results, i64 %line",
        f"  store VECTOR %total{sums - 1}, ptr %result, align 4",
        "  ret void",
        "}",
        "",
    ]
    return "\n".join(lines).replace("VECTOR", vector)
