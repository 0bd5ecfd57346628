"""LLVM's estimates for the hot loops of a model, compiled for a target.

    python -m bench.loops --target rpi5 --mca neoverse-n1 resnet50 mobilenet_v2 bert_base

The loops are the innermost ones that execute nine tenths of an inference's vector multiply-adds (of
f32 or, in groups, of bytes). Printed are the instructions, multiply-adds and cycles of an
iteration, and the share of the peak, which is the rate at which the same CPU executes such
multiply-adds alone. A model is a model of the benchmark or an ONNX file with static shapes, such as
a quantized model. Loads are assumed to hit the first-level cache. The iterations of a loop are
counted under qemu, in the arm64 root of `make boards`. Needs Debian's llvm-22, whose processor
models are the same as those of llvmlite's LLVM.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.table import Table

from bench.boards import count
from bench.boards.board import qemu_cpu
from bench.boards.root import Root, root
from bench.terminal import open_console
from bench.workloads import NAMES, Workload, workload
from farrier.errors import FarrierError, UsageError
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.runtime.artifact import Artifact

_NAME = 60  # columns
_OBJDUMP, _MCA = "llvm-objdump-22", "llvm-mca-22"
_SHOWN, _COUNTED = 0.9, 0.99  # Shares of a model's multiply-adds.
_NEAR = 0.9  # of the peak
_ITERATIONS = 200
_REGISTERS = 24  # The registers of the peak's multiply-adds: more than a latency's worth.

_SYMBOL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S.*)$")
_BRANCH = re.compile(r"^(?:b|b\.\w+|cbn?z|tbn?z)\s.*?0x([0-9a-f]+)(?: <.*>)?$")
_MULTIPLY_ADD = re.compile(
    r"^(fmla|fmls|[su]dot|usdot|sudot|us?mmla|smmla|bfdot|bfmmla)\s+v\d+\.4s\b"
)
_FACTORS = {  # The factors of dot products of bytes a lane.
    **dict.fromkeys(("fmla", "fmls"), "v30.4s, v31.4s"),
    **dict.fromkeys(("ummla", "usmmla", "smmla"), "v30.16b, v31.16b"),
    **dict.fromkeys(("bfdot", "bfmmla"), "v30.8h, v31.8h"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """An innermost loop: its instructions by address; the last one is the backward branch."""

    function: str
    code: Mapping[int, str]

    @property
    def multiply_adds(self) -> int:
        """The number of vector instructions that accumulate products into four sums."""
        return len(self._mnemonics)

    @property
    def multiplies_by(self) -> str:
        """The most frequent mnemonic of the loop's multiply-add instructions."""
        return collections.Counter(self._mnemonics).most_common(1)[0][0]

    @property
    def _mnemonics(self) -> list[str]:
        return [match[1] for match in map(_MULTIPLY_ADD.match, self.code.values()) if match]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """The estimate for a loop of a kernel. `share` is its share of the model's multiply-adds;
    `of_peak` is its multiply-adds per cycle over the CPU's peak."""

    kernel: str
    loop: Loop
    share: float
    cycles: float
    of_peak: float


def loops_in(disassembly: str) -> list[Loop]:
    """Return the innermost loops in llvm-objdump's text: the range from the target of a backward
    branch to the branch, if it contains no other such range."""
    collected: list[Loop] = []
    name, code = "", dict[int, str]()
    for line in [*disassembly.splitlines(), "0 <>:"]:
        if match := _SYMBOL.match(line):
            collected += _innermost(name, code)
            name, code = match[1], {}
        elif match := _INSTRUCTION.match(line):
            code[int(match[1], 16)] = " ".join(match[2].split())
    return collected


def loops_of(artifact: Artifact) -> list[Loop]:
    """Return the innermost loops of an artifact's code. Raises UsageError without llvm-objdump."""
    return loops_in(_disassembled(artifact))


def share_of_peak(loop: Loop, cpu: str) -> float:
    """Return a loop's multiply-adds per cycle over the CPU's peak, by llvm-mca's model."""
    cycles = cycles_of(loop.code.values(), cpu)
    return loop.multiply_adds / cycles / peak_of(cpu, loop.multiplies_by)


def _innermost(function: str, code: dict[int, str]) -> list[Loop]:
    ranges = {
        (int(match[1], 16), address)
        for address, text in code.items()
        if (match := _BRANCH.match(text)) and int(match[1], 16) in code
    }
    back = {(start, end) for start, end in ranges if start <= end}
    return [
        Loop(function, {at: text for at, text in code.items() if start <= at <= end})
        for start, end in sorted(back)
        if not any(
            start <= first and last <= end and (start, end) != (first, last) for first, last in back
        )
    ]


def rows_of(artifact: Artifact, board: Root, qemu: str, cpu: str) -> list[Row]:
    """Return the loops that execute most of an inference's multiply-adds on qemu's processor
    `qemu`; loops that together have less than a hundredth are left out. Raises UsageError without
    the tools."""
    tasks = {kernel.task: kernel.name for kernel in artifact.manifest.kernels}
    names = {call.function: tasks[call.task] for call in artifact.calls}
    executed = count.executed(artifact, board, qemu)
    text = _disassembled(artifact)
    times = _times(executed.blocks, text)
    counted_loops = [(sum(times[at] for at in loop.code), loop) for loop in loops_in(text)]
    rows: list[Row] = []
    for done, loop in sorted(counted_loops, key=lambda entry: -entry[0]):
        if sum(row.share for row in rows) >= _COUNTED or not done:
            break
        cycles = cycles_of(loop.code.values(), cpu)
        of_peak = share_of_peak(loop, cpu)
        name = names.get(loop.function.partition(".")[0], loop.function)
        rows.append(Row(name, loop, done / executed.multiply_adds, cycles, of_peak))
    return rows


def _times(blocks: Mapping[range, int], disassembly: str) -> collections.Counter[int]:
    """Return the number of executions of each multiply-add, by address. The count of a basic block
    is divided evenly among its multiply-adds."""
    lines = filter(None, map(_INSTRUCTION.match, disassembly.splitlines()))
    addresses = {
        int(line[1], 16) for line in lines if _MULTIPLY_ADD.match(" ".join(line[2].split()))
    }
    times = collections.Counter[int]()
    for block, done in blocks.items():
        places = addresses.intersection(block)
        times.update(dict.fromkeys(places, done // max(1, len(places))))
    return times


def cycles_of(instructions: Iterable[str], cpu: str) -> float:
    """Return the cycles per iteration of these instructions, by llvm-mca's model of the CPU."""
    lines = ["again:", *map(_to_assemble, instructions)]
    options = ["-mtriple=aarch64", f"-mcpu={cpu}", f"-iterations={_ITERATIONS}"]
    said = _run([_tool(_MCA), *options], "\n".join(lines) + "\n")
    match = re.search(r"^Total Cycles:\s+(\d+)$", said, re.MULTILINE)
    if match is None:
        raise UsageError(f"{_MCA} gives no cycles for {cpu}")
    return int(match[1]) / _ITERATIONS


@functools.cache
def peak_of(cpu: str, mnemonic: str) -> float:
    """Return the multiply-adds per cycle that the CPU's model can execute with that mnemonic,
    without other work."""
    factors = _FACTORS.get(mnemonic, "v30.16b, v31.4b[0]")
    alone = [f"{mnemonic} v{number}.4s, {factors}" for number in range(_REGISTERS)]
    return _REGISTERS / cycles_of(alone, cpu)


def table(name: str, rows: Sequence[Row], cpu: str) -> Table:
    rendered = Table(box=None)
    rendered.add_column(f"{name}, {cpu}", max_width=_NAME)
    for title in ("of all", "loop", "instructions", "mul-adds", "cycles", "of peak"):
        rendered.add_column(title, justify="right", no_wrap=True)
    shown = list(_first(rows, _SHOWN))
    for row in shown:
        rendered.add_row(
            row.kernel,
            f"{row.share:.1%}",
            f"{min(row.loop.code):x}",
            str(len(row.loop.code)),
            str(row.loop.multiply_adds),
            f"{row.cycles:.1f}",
            f"{row.of_peak:.1%}",
        )
    shares = sum(row.share for row in shown)
    time = sum(row.share / row.of_peak for row in shown)
    near = sum(row.share for row in rows if row.of_peak >= _NEAR)
    rendered.add_row("all of these", f"{shares:.1%}", *[""] * 4, f"{shares / time:.1%}")
    rendered.add_row(f"all loops at {_NEAR:.0%} of the peak or more", f"{near:.1%}")
    return rendered


def _first(rows: Sequence[Row], share: float) -> Iterator[Row]:
    """Yield the first rows until their shares add up to `share`."""
    for row in rows:
        if share <= 0:
            return
        share -= row.share
        yield row


def _to_assemble(text: str) -> str:
    """Return a disassembled instruction in the assembler's syntax, without its address."""
    return re.sub(r"(?<![\w#])0x[0-9a-f]+(?: <.*>)?$", "again", text.partition(" //")[0])


def _disassembled(artifact: Artifact) -> str:
    [library] = artifact.code.objects
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        Path(file.name).write_bytes(library.content)
        return _run([_tool(_OBJDUMP), "-d", "--no-show-raw-insn", file.name], "")


def _tool(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise UsageError(f"{name} is not here", hint="apt-get install llvm-22")
    return program


def _run(command: Sequence[str], text: str) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{Path(command[0]).name} failed: {done.stderr.strip()[:500]}")
    return done.stdout


def _model(name: str) -> Workload:
    """Return a model of the benchmark by name, or an ONNX file by path."""
    path = Path(name)
    if path.suffix != ".onnx":
        return workload(name)
    return Workload(path.stem, path.read_bytes, path.read_bytes)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.loops",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = f"of {', '.join(NAMES)}, or a file"
    parser.add_argument("models", nargs="+", metavar="MODEL", help=names)
    parser.add_argument("--target", default="rpi5", help="that is compiled for; of aarch64")
    parser.add_argument("--mca", default="neoverse-n1", help="LLVM's name of the CPU to model")
    arguments = parser.parse_args()
    console = open_console()
    try:
        board = root(console.print)
        for source in map(_model, arguments.models):
            options = CompileOptions(arguments.target, source.shapes, threads=1, verify=False)
            artifact = compile_model(source.build(), options, name=source.name)
            rows = rows_of(artifact, board, qemu_cpu(arguments.target), arguments.mca)
            console.print(table(source.name, rows, arguments.mca))
    except FarrierError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
