"""`python -m bench.assembled`: assemble the kernels of models, with default schedules, by NVIDIA's
assembler. Nothing runs.

    python -m bench.assembled resnet50 bert_base --target cuda:sm_80 --precision f16
    python -m bench.assembled --cache build/assembled.json

Without names it takes all models, in f32, in f16, and in int8 where a model has that form, for all
architectures. A line is printed for each model: its kernels, the largest number of registers of a
thread, and the share of the model's operations in kernels whose threads have a stack or spill
registers. The exit status is 1 if a kernel with at least 5% of a model's operations has a stack or
spills, or uses 64-bit arithmetic in a loop for anything but addresses. Equal kernels are assembled
once; results are cached in a file.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from bench.workloads import NAMES, QUANTIZED, workload
from farrier.compile_pool.choose import ScheduledTask
from farrier.compile_pool.compile import BuildInput, lower
from farrier.errors import FarrierError, UsageError
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import model_of
from farrier.ir.graph import Graph
from farrier.model_tuning.variant import make_variant
from farrier.options.precision import Precision
from farrier.passes import Settings, prepare
from farrier.targets import Target, parse_target
from farrier.targets.cuda.architectures import ARCHITECTURES
from farrier.targets.cuda.assembler import assemble, find_ptxas
from farrier.targets.cuda.backend import CudaTarget
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier_device.cuda_library import GPU

LARGE = 0.05  # Of a model's operations.
# LLVM adds a loop's offset to the address of an array. Reading the lower word of a register costs
# nothing.
_ADDRESSES = {"add.s64", "mov.b64", "cvt.u32.u64"}
_WIDE = re.compile(r"\s(?:@!?%p\d+ )?([a-z][\w.]*\.[bsu]64)\s")
_Known: TypeAlias = dict[str, dict[str, Any]]  # Fields of kernels by the hash of their text.


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel of a model: its share of the model's operations, the largest resources of a thread
    over its entry points, and the 64-bit instructions in its loops."""

    name: str
    rule: str
    decisions: Mapping[str, int]
    share: float
    registers: int
    stack: int
    spilled: int
    wide: Sequence[str]

    @property
    def is_in_registers(self) -> bool:
        return not self.stack and not self.spilled

    @property
    def is_right(self) -> bool:
        return self.is_in_registers and set(self.wide) <= _ADDRESSES


class Assembler:
    """The assembler, with a cache of results by kernel text."""

    def __init__(self, ptxas: str, cache: Path | None) -> None:
        self._ptxas, self._cache = ptxas, cache
        text = cache.read_text() if cache is not None and cache.exists() else "{}"
        self._known: _Known = json.loads(text)

    def kernels(self, graph: Graph, settings: Settings) -> Iterator[Kernel]:
        """Yield the kernels of a model's graph, compiled for its GPU and assembled. Raises
        CompilerError."""
        choices = make_variant(graph, settings).choices.values()
        total = sum(choice.calls * choice.operations for choice in choices)
        for choice in choices:
            if choice.site.space == GPU:
                yield self._kernel(choice, settings.target, total)

    def _kernel(self, choice: ScheduledTask, target: Target, total: int) -> Kernel:
        function = dataclasses.replace(lower(BuildInput.of(choice), target), name="kernel")
        machine = target.part(GPU)
        assert isinstance(machine, CudaTarget)
        cpu = machine.architecture
        text = render(function, cpu)
        key = hashlib.sha256(f"{cpu}\n{text}".encode()).hexdigest()
        if key not in self._known:
            self._known[key] = self._measured(ptx_of(text, cpu), cpu)
        return Kernel(
            choice.program.name,
            choice.space.rule_of(choice.decisions).name,
            choice.decisions,
            choice.calls * choice.operations / max(1, total),
            **self._known[key],
        )

    def _measured(self, ptx: str, cpu: str) -> dict[str, Any]:
        _, frames = assemble(ptx, cpu, self._ptxas)
        return {
            "registers": max(frame.registers for frame in frames),
            "stack": max(frame.stack for frame in frames),
            "spilled": max(frame.spilled for frame in frames),
            "wide": sorted(wide_in_loops(ptx)),
        }

    def save(self) -> None:
        """Write the cached results to the file."""
        if self._cache is not None:
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            self._cache.write_text(json.dumps(self._known))


def wide_in_loops(ptx: str) -> set[str]:
    """Return the 64-bit arithmetic instructions in the loops of a PTX module."""
    return {wide[1] for line in in_loops(ptx) if (wide := _WIDE.search(line))}


def in_loops(ptx: str) -> list[str]:
    """Return the lines that are within loops, that is, between a label and a later jump back to
    it."""
    lines, inside = ptx.splitlines(), []
    labels: dict[str, int] = {}
    for position, line in enumerate(lines):
        if label := re.match(r"(\$\w+):", line):
            labels[label[1]] = position
        jump = re.search(r"\bbra(?:\.uni)?\s+(\$\w+)", line)
        if jump and jump[1] in labels:
            inside += lines[labels[jump[1]] : position]
    return inside


def _print(title: str, kernels: Sequence[Kernel]) -> bool:
    """Print the line of a model and its faults. Return true if no kernel with a large share has a
    fault."""
    most = max((kernel.registers for kernel in kernels), default=0)
    outside = sum(kernel.share for kernel in kernels if not kernel.is_in_registers)
    print(f"{title}: {len(kernels)} kernels, {most} registers, {outside:.2%} not in registers")
    faults = [kernel for kernel in kernels if not kernel.is_right]
    for kernel in sorted(faults, key=lambda kernel: -kernel.share):
        print(
            f"    {kernel.share:7.2%} {kernel.name} ({kernel.rule}): {kernel.registers} registers,"
            f" stack {kernel.stack}, spilled {kernel.spilled}; {' '.join(kernel.wide)};"
            f" {dict(kernel.decisions)}"
        )
    sys.stdout.flush()
    return all(kernel.share < LARGE for kernel in faults)


def _models(names: Sequence[str], precision: str) -> Iterator[tuple[str, Precision]]:
    """Yield the requested models, each with its precision."""
    if names:
        yield from ((name, Precision(precision or "f32")) for name in names)
        return
    precisions = [Precision(precision)] if precision else [Precision.F32, Precision.F16]
    for each in precisions:
        yield from ((name, each) for name in NAMES)
    if not precision:
        yield from ((name, Precision.F32) for name in QUANTIZED)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.assembled",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", help=f"of {', '.join((*NAMES, *QUANTIZED))}")
    parser.add_argument("--target", action="append", help="such as cuda:sm_80; repeatable")
    parser.add_argument("--precision", default="", choices=["f32", "f16", "bf16"])
    parser.add_argument("--cache", type=Path, help="a file of kernels that are known")
    arguments = parser.parse_args()
    targets = arguments.target or [f"cuda:{name}" for name in ARCHITECTURES]
    try:
        if (ptxas := find_ptxas()) is None:
            raise UsageError("ptxas is missing", hint="pip install nvidia-cuda-nvcc")
        assembler = Assembler(ptxas, arguments.cache)
        are_right = []
        for name, precision in _models(arguments.models, arguments.precision):
            source = workload(name)
            model = model_of(source.build())
            for target in map(parse_target, targets):
                settings = Settings(target, 1, precision=precision)
                graph = prepare(import_model(model, source.shapes).graph, settings)
                title = f"{name} {precision.value} {target.cpu}"
                are_right.append(_print(title, list(assembler.kernels(graph, settings))))
                assembler.save()
    except FarrierError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0 if all(are_right) else 1


if __name__ == "__main__":
    sys.exit(main())
