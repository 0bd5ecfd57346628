"""`python -m bench.assembled`: assemble the kernels of models, with default schedules, by NVIDIA's
assembler. Nothing runs.

    python -m bench.assembled resnet50 bert_base --target cuda:sm_80 --precision f16
    python -m bench.assembled --cache build/assembled.json --page docs/cuda_kernels.md

Without names it takes all models, in f32, in f16, and in int8 where a model has that form, for all
architectures. A line is printed for each model: its kernels, the largest number of registers of a
thread, and the share of the model's operations in kernels whose threads have a stack or spill
registers. The exit status is 1 if a kernel with at least 5% of a model's operations has a stack or
spills, or uses 64-bit arithmetic in a loop for anything but addresses. Equal kernels are assembled
once; results are cached in a file. A page has a table of all models, in which the assembled cells
are replaced.
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
from farrier.targets.cuda.assembler import assemble, find_ptxas, version_of
from farrier.targets.cuda.backend import CudaTarget
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier_device.cuda_library import GPU

LARGE = 0.05  # Of a model's operations.
# LLVM adds a loop's offset to the address of an array. Reading the lower word of a register costs
# nothing, nor does the constant upper word of a matrix descriptor.
_ADDRESSES = {"add.s64", "mov.b64", "cvt.u32.u64", "or.b64"}
_WIDE = re.compile(r"\s(?:@!?%p\d+ )?([a-z][\w.]*\.[bsu]64)\s")
# LLVM extends an index of fewer than 32 bits by a mask. The assembler masks the lower word alone
# (one LOP3 of SASS) where the mask has no bits in the upper word.
_MASK = re.compile(r"\sand\.b64\s+%rd\d+, %rd\d+, (\d+);")
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
    """The assembler, with a cache of results by its version and the kernel text."""

    def __init__(self, ptxas: str, cache: Path | None) -> None:
        self._ptxas, self._cache = ptxas, cache
        self._version = version_of(ptxas)
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
        key = hashlib.sha256(f"{self._version}\n{cpu}\n{text}".encode()).hexdigest()
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
    """Return the 64-bit arithmetic instructions in the loops of a PTX module, but for zero
    extensions of an index."""
    return {
        wide[1]
        for line in in_loops(ptx)
        if (wide := _WIDE.search(line)) and not _is_zero_extension(line)
    }


def _is_zero_extension(line: str) -> bool:
    mask = _MASK.search(line)
    return mask is not None and int(mask[1]) < 1 << 32


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


@dataclasses.dataclass(frozen=True)
class Line:
    """The kernels of a model, in a precision, for an architecture."""

    model: str
    precision: str
    cpu: str
    kernels: Sequence[Kernel]

    @property
    def is_right(self) -> bool:
        """Return whether no large kernel has a fault."""
        return all(kernel.share < LARGE for kernel in self._faults)

    @property
    def _faults(self) -> list[Kernel]:
        return [kernel for kernel in self.kernels if not kernel.is_right]

    @property
    def _most(self) -> int:
        return max((kernel.registers for kernel in self.kernels), default=0)

    @property
    def _outside(self) -> float:
        return sum(kernel.share for kernel in self.kernels if not kernel.is_in_registers)

    @property
    def cell(self) -> str:
        """Return the figures of the page's table."""
        large = [kernel for kernel in self.kernels if kernel.share >= LARGE]
        stack, spilled = (
            max((getattr(kernel, name) for kernel in large), default=0)
            for name in ("stack", "spilled")
        )
        return f"{len(self.kernels)}, {self._most}, {stack}, {spilled}, {self._outside:.2%}"

    def show(self) -> None:
        """Print a line, and one for each fault."""
        print(
            f"{self.model} {self.precision} {self.cpu}: {len(self.kernels)} kernels,"
            f" {self._most} registers, {self._outside:.2%} not in registers"
        )
        for kernel in sorted(self._faults, key=lambda kernel: -kernel.share):
            print(
                f"    {kernel.share:7.2%} {kernel.name} ({kernel.rule}): {kernel.registers}"
                f" registers, stack {kernel.stack}, spilled {kernel.spilled};"
                f" {' '.join(kernel.wide)}; {dict(kernel.decisions)}"
            )
        sys.stdout.flush()


def write_page(page: Path, lines: Sequence[Line]) -> None:
    """Write the table of a page anew: its cells, but for those of the lines."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    text = page.read_text() if page.exists() else ""
    for row in re.findall(r"^\| (\w+) \| (f32|f16|bf16) \|(.*)\|$", text, re.MULTILINE):
        values = map(str.strip, row[2].split("|"))
        cells[row[:2]] = dict(zip(ARCHITECTURES, values, strict=True))
    for line in lines:
        cells.setdefault((line.model, line.precision), {})[line.cpu] = line.cell
    order = {name: at for at, name in enumerate((*NAMES, *QUANTIZED))}
    ordered = sorted(cells, key=lambda key: (key[0] in QUANTIZED, key[1] != "f32", order[key[0]]))
    rows = (
        f"| {model} | {precision} | "
        + " | ".join(cells[model, precision].get(cpu, "") for cpu in ARCHITECTURES)
        + " |"
        for model, precision in ordered
    )
    titles = (
        f"| model | precision | {' | '.join(ARCHITECTURES)} |\n|{'---|' * (2 + len(ARCHITECTURES))}"
    )
    page.write_text("\n".join([_HEAD, titles, *rows, ""]))


_HEAD = f"""# CUDA's kernels, assembled

    python -m bench.assembled --cache build/assembled.json --page docs/cuda_kernels.md

writes this table, by NVIDIA's `ptxas` (the package `nvidia-cuda-nvcc`, or a toolkit). Nothing
runs. A cell has five figures: the kernels of the model; the most registers of a thread; the most
bytes of stack, and of spilled registers, in kernels with {LARGE:.0%} of the model's operations or
more, both of which should be 0; and the share of the operations in all kernels that have stack or
spilled registers. An empty cell was not assembled yet. Models whose names end in `_int8` or
`_dynamic` compute in bytes.
"""


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
    parser.add_argument("--precision", default="", choices=["f32", "tf32", "f16", "bf16"])
    parser.add_argument("--cache", type=Path, help="a file that keeps the figures of kernels")
    parser.add_argument("--page", type=Path, help="a page whose table is updated")
    arguments = parser.parse_args()
    targets = arguments.target or [f"cuda:{name}" for name in ARCHITECTURES]
    try:
        if (ptxas := find_ptxas()) is None:
            raise UsageError("ptxas is missing", hint="pip install nvidia-cuda-nvcc")
        assembler = Assembler(ptxas, arguments.cache)
        lines = []
        for name, precision in _models(arguments.models, arguments.precision):
            source = workload(name)
            model = model_of(source.build())
            for target in map(parse_target, targets):
                settings = Settings(target, 1, precision=precision)
                graph = prepare(import_model(model, source.shapes).graph, settings)
                kernels = list(assembler.kernels(graph, settings))
                lines.append(Line(name, precision.value, target.cpu, kernels))
                lines[-1].show()
                assembler.save()
                if arguments.page is not None:
                    write_page(arguments.page, lines)
    except FarrierError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0 if all(line.is_right for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
