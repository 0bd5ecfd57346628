"""Count the instructions of an inference, of Farrier and of ONNX Runtime, by a plugin of qemu-user.

Instructions are not time: no cache is modelled, and an out-of-order core hides instructions off the
critical path. The figures show the number of instructions that each engine executes in addition to
the multiply-adds.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.table import Table

from bench.boards import arrays
from bench.boards.root import HOME, NoRootError, Root
from bench.workloads import workload
from farrier.options import CompileOptions
from farrier.packaging.draws import random_inputs
from farrier.pipeline import compile_model
from farrier.runtime.artifact import Artifact

_SOURCE = Path(__file__).with_name("count.c")
_LANES = 4  # The lanes of a vector of singles.
_MILLION = 1e6
_WORD = 4  # The bytes of an instruction.
_MARKS = 3  # The marks of a process; between the last two is one inference.


@dataclasses.dataclass(frozen=True, slots=True)
class Count:
    """The instructions of one inference: their total, and the multiply-adds (FMLA of f32, dot and
    matrix products of bytes and bf16, which accumulate into four sums) by address ranges of basic
    blocks, relative to the artifact's library."""

    instructions: int
    blocks: Mapping[range, int]

    @property
    def multiply_adds(self) -> int:
        return sum(self.blocks.values())


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """The instruction counts of a model's inference by both engines. `least` is the number of
    vector multiply-adds that the chosen algorithms need at least."""

    model: str
    farrier: Count
    onnxruntime: Count
    least: int

    @property
    def ratio(self) -> float:
        """Farrier's number of instructions over ONNX Runtime's."""
        return self.farrier.instructions / self.onnxruntime.instructions


def count(
    names: Sequence[str], root: Root, target: str, cpu: str, say: Callable[[str], None]
) -> Iterator[Counts]:
    """Compile models for `target`, and yield the instruction counts of an inference with one thread
    on qemu's processor `cpu`. Raises NoRootError."""
    for name in names:
        source = workload(name)
        data = source.build()
        options = CompileOptions(target, source.shapes, threads=1, verify=False)
        artifact = compile_model(data, options, name=name)
        say(f"{name}: Farrier")
        ours = executed(artifact, root, cpu)
        with _inputs(artifact) as inputs:
            onnx = inputs.with_name("model.onnx")
            onnx.write_bytes(data)
            say(f"{name}: ONNX Runtime")
            theirs = _counted(root, cpu, "onnxruntime", onnx, inputs)
        yield Counts(name, ours, theirs, _least(artifact))


def executed(artifact: Artifact, root: Root, cpu: str) -> Count:
    """Count the instructions of one inference of an artifact, with one thread on qemu's processor
    `cpu`. Raises NoRootError."""
    with _inputs(artifact) as inputs:
        file = artifact.save(inputs.with_name("model.farrier"))
        return _counted(root, cpu, "farrier", file, inputs)


@contextlib.contextmanager
def _inputs(artifact: Artifact) -> Iterator[Path]:
    """Yield the path of a file with random inputs for the artifact, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="farrier-count-") as folder:
        inputs = Path(folder) / "inputs"
        arrays.save(inputs, random_inputs(artifact.manifest.inputs))
        yield inputs


def table(rows: Sequence[Counts]) -> Table:
    """Return a table of millions of instructions, one row per model."""
    rendered = Table(box=None)
    rendered.add_column("million instructions", no_wrap=True)
    for name in ("ONNX Runtime", "Farrier", "ratio", "MACs / 4", "fmla of ORT", "of Farrier"):
        rendered.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        ours, theirs = row.farrier, row.onnxruntime
        figures = (row.least, theirs.multiply_adds, ours.multiply_adds)
        rendered.add_row(
            row.model,
            _millions(theirs.instructions),
            _millions(ours.instructions),
            f"{row.ratio:.3f}",
            *map(_millions, figures),
        )
    if len(rows) > 1:
        mean = math.exp(sum(math.log(row.ratio) for row in rows) / len(rows))
        rendered.add_row("geometric mean", "", "", f"{mean:.3f}")
    return rendered


def _millions(figure: int) -> str:
    return f"{figure / _MILLION:,.1f}"


def _least(artifact: Artifact) -> int:
    kernels = artifact.manifest.kernels
    return sum(kernel.multiply_adds * kernel.calls for kernel in kernels) // _LANES


def _plugin() -> Path:
    """Return the path of the plugin's library, compiled again if it is older than its source."""
    packages = {"cc": "gcc libc6-dev", "qemu-aarch64": "qemu-user"}
    missing = [package for tool, package in packages.items() if shutil.which(tool) is None]
    if missing:
        raise NoRootError(
            f"counting needs {', '.join(missing)}",
            hint=f"apt-get install --no-install-recommends {' '.join(missing)}",
        )
    library = HOME / "count.so"
    if not library.exists() or library.stat().st_mtime < _SOURCE.stat().st_mtime:
        command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(_SOURCE)]
        subprocess.run(command, check=True)
    return library


def _counted(root: Root, cpu: str, engine: str, model: Path, inputs: Path) -> Count:
    words = ["-m", "bench.boards.counted", engine, str(model), str(inputs)]
    pipe = subprocess.PIPE
    process = root.start_counted(words, _plugin(), cpu, stdout=pipe, stderr=pipe, text=True)
    _, said = process.communicate()
    start, marks = 0, list[tuple[int, collections.Counter[range]]]()
    for line in said.splitlines():
        match line.split():
            case ["code", address]:
                start = int(address, 16)
            case ["counted", count]:
                marks.append((int(count), collections.Counter()))
            case ["block", address, size, count]:
                first = int(address, 16) - start
                marks[-1][1][range(first, first + _WORD * int(size), _WORD)] += int(count)
    if process.returncode or len(marks) != _MARKS:
        raise RuntimeError(f"{engine} did not run {model.name} in qemu:\n{said.strip()[-2000:]}")
    (before, blocks_before), (after, blocks) = marks[1:]
    return Count(after - before, blocks - blocks_before)
