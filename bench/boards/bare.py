"""Run artifacts for architectures without an emulated Python: a C program calls them under
qemu-user.

Debian's cross compiler compiles the program, and qemu finds Debian's C library for the
architecture. Neither an emulated root directory nor a privilege is needed.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import math
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bench.boards.arrays import Arrays
from bench.boards.artifacts import Run
from bench.boards.guest import GuestError
from bench.boards.root import NoRootError
from farrier.artifact.manifest import Manifest, TensorSpec
from farrier.errors import UsageError
from farrier.ir.dim import evaluate, upper
from farrier.runtime.artifact import Artifact
from farrier.targets import parse_target
from farrier.targets.cpu.backend import CpuBackend
from farrier.targets.cpu.part import CpuPart
from farrier.targets.registry import backend_for

_SOURCE = Path(__file__).with_name("call.c")
# The program asks the library for the size of a workspace of these bytes.
_ASK = -1
# The position of the workspace among the arguments.
_WORKSPACE = -2


@dataclasses.dataclass(frozen=True, slots=True)
class Tools:
    """The tools that run code for an architecture: an emulator, a C compiler and the folder of a C
    library, with the Debian package of each. `cpus` are the emulator's processors with their
    instruction set extensions, smallest first; instructions of other extensions are illegal on a
    processor."""

    qemu: str
    gcc: str
    library: Path
    packages: tuple[str, str, str]
    cpus: tuple[tuple[str, frozenset[str]], ...]


_RV64GC = frozenset("imafdc")
_BITS = _RV64GC | {"zba", "zbb", "zbs"}
TOOLS = {
    "riscv64": Tools(
        "qemu-riscv64-static",
        "riscv64-linux-gnu-gcc",
        Path("/usr/riscv64-linux-gnu"),
        ("qemu-user-static", "gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross"),
        (
            ("sifive-u54", _RV64GC),
            ("rv64", _BITS),
            ("rv64,v=true,vlen=128", _BITS | {"v", "zvl128b"}),
            ("rv64,v=true,vlen=256", _BITS | {"v", "zvl256b"}),
        ),
    ),
}


def missing(arch: str) -> str:
    """Return a sentence that names the Debian packages that are needed to run code for `arch` and
    are missing; "" if none is."""
    tools = TOOLS[arch]
    there = shutil.which(tools.qemu), shutil.which(tools.gcc), tools.library.is_dir()
    lacks = [name for name, has in zip(tools.packages, there, strict=True) if not has]
    return f"running code for {arch} needs Debian's {', '.join(lacks)}" if lacks else ""


def runner(target: str) -> Run:
    """Return a function that runs artifacts for a target with the number of threads that they were
    compiled for. Raises NoRootError if a tool is missing, and UsageError if the target's
    architecture is not supported."""
    arch = parse_target(target).arch
    if arch not in TOOLS:
        raise UsageError(f"--bare runs code for {', '.join(TOOLS)}, and {target} is {arch}")
    if sentence := missing(arch):
        raise NoRootError(sentence)
    return lambda artifact, inputs: run(artifact, inputs, _part(artifact).threads)


def run(artifact: Artifact, inputs: Arrays, threads: int = 1, timeout_s: float = 600.0) -> Arrays:
    """Call an artifact once and return its outputs by name. The artifact must not have states or
    strings. Raises GuestError if the program fails or exceeds the time limit."""
    manifest, part = artifact.manifest, _part(artifact)
    [library] = artifact.code.objects
    arch = manifest.architecture
    tools = TOOLS[arch]
    sizes = _given(manifest, inputs)
    contents = _arguments(artifact, inputs, sizes)
    workspace = _ASK if manifest.given else part.workspace_bytes
    with tempfile.TemporaryDirectory(prefix="farrier-bare-") as name:
        folder = Path(name)
        (folder / "library.so").write_bytes(library.content)
        (folder / "memory").write_bytes(_written(contents, workspace))
        backend = backend_for(arch)
        assert isinstance(backend, CpuBackend)  # All of `TOOLS` are CPUs.
        needed = backend.implied(manifest.machine) | set(manifest.features)
        cpu = next(cpu for cpu, has in tools.cpus if needed <= has)
        command = [tools.qemu, "-cpu", cpu, "-L", str(tools.library), str(_program(tools.gcc))]
        command += [str(folder / "library.so"), part.entry, str(threads), str(folder / "memory")]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise GuestError(f"no answer after {timeout_s:g} s") from None
        if done.returncode:
            raise GuestError(f"ended with {done.returncode}: {done.stderr}{done.stdout}")
        return _outputs(manifest, contents, (folder / "memory").read_bytes())


def _part(artifact: Artifact) -> CpuPart:
    return CpuPart.of_json(artifact.manifest.backend)


def _given(manifest: Manifest, inputs: Arrays) -> dict[str, int]:
    """Return the size of each open dim, by symbol, from the shapes of the inputs. The capacity of a
    data-dependent size has its initial value."""
    sizes = {capacity.symbol: capacity.first for capacity in manifest.capacities}
    by_extent = {dim.step * dim.extent: dim for dim in manifest.dims}
    for spec in manifest.inputs:
        for size, extent in zip(inputs[spec.name].shape, manifest.extents(spec), strict=True):
            if dim := by_extent.get(extent):
                sizes[dim.symbol] = size // dim.step
    return sizes


def _arguments(artifact: Artifact, inputs: Arrays, sizes: Mapping[str, int]) -> list[bytes]:
    """Return the bytes of each argument of the entry point; the workspace's are empty."""
    manifest, params = artifact.manifest, artifact.params
    assert params is not None, "an artifact out of a file has its parameters there"
    numbers = np.array(manifest.sizes, np.int64)
    numbers[: len(manifest.given)] = [sizes[size.symbol] for size in manifest.given]
    arrays = [np.ascontiguousarray(inputs[spec.name]).tobytes() for spec in manifest.inputs]
    outputs = [bytes(_nbytes(manifest, spec, sizes)) for spec in manifest.outputs]
    return [*arrays, *outputs, bytes(params), b"", numbers.tobytes()]


def _written(contents: Sequence[bytes], workspace: int) -> bytes:
    """Return the content of the program's input file: the number and sizes of the arguments, then
    their bytes. `workspace` is in bytes."""
    sizes = [len(content) for content in contents]
    sizes[_WORKSPACE] = workspace
    return np.array([len(sizes), *sizes], np.int64).tobytes() + b"".join(contents)


def _outputs(manifest: Manifest, contents: Sequence[bytes], memory: bytes) -> Arrays:
    """Extract the outputs, by name, from the program's memory after a call."""
    numbers = np.frombuffer(memory[-len(contents[-1]) :] if contents[-1] else b"", np.int64)
    names = [size.symbol for size in (*manifest.given, *manifest.counted)]
    sizes = dict(zip(names, numbers.tolist(), strict=False))
    at = 8 * (1 + len(contents)) + sum(map(len, contents[: len(manifest.inputs)]))
    outputs: Arrays = {}
    for spec, content in zip(manifest.outputs, contents[len(manifest.inputs) :], strict=False):
        shape = [evaluate(extent, sizes) for extent in manifest.extents(spec)]
        array = np.frombuffer(memory[at : at + len(content)], spec.element.numpy)
        outputs[spec.name] = array[: math.prod(shape)].reshape(shape)
        at += len(content)
    return outputs


def _nbytes(manifest: Manifest, spec: TensorSpec, sizes: Mapping[str, int]) -> int:
    """Return the number of bytes to reserve for an output; a size that only the entry point
    computes counts with its upper bound."""
    shape = [
        upper(extent, lambda symbol: symbol.name in sizes) for extent in manifest.extents(spec)
    ]
    elements = math.prod(evaluate(extent, sizes) for extent in shape)
    return elements * spec.element.numpy.itemsize


@functools.cache
def _program(gcc: str) -> Path:
    """Compile the C program, once per process, and return its path."""
    folder = tempfile.mkdtemp(prefix="farrier-bare-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = Path(folder) / "call"
    subprocess.run([gcc, "-O1", "-pthread", _SOURCE, "-o", program, "-ldl"], check=True)
    return program
