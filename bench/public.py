"""Public models and default exports, compiled without options and compared with ONNX Runtime.

    python -m bench.public [MODEL …]

A MODEL is an ONNX file, a folder of them (`bench.exports full` writes one), or a name of
`bench.models.wheel`; without one, all models of the latter are taken. Each is passed unchanged to
`farrier compile`, and run at three sizes of its open dims (`bench.calls`).

A line is printed for each model: the seconds of the compilation, and for each size the largest
difference from ONNX Runtime relative to its output's range. If that is above 1e-4, a float64
reference decides: `exactly` shows the differences of Farrier and of ONNX Runtime from it. Farrier's
may be up to 1e-4, or up to twice ONNX Runtime's: a quantized model can depend on single roundings.
If a model or a size is rejected, the line is Farrier's message.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import onnxruntime

from bench.calls import Arrays, Call, Input, arrays, calls, show
from bench.compare import difference, in_float64
from bench.models import TRAINED, trained
from farrier.errors import FarrierError, UsageError
from farrier.frontends.onnx.model.file import Model
from farrier.runtime.artifact import Artifact, load

TOLERANCE = 1e-4
_COMPILE_S = 1800.0  # A compilation that takes longer counts as hung.
_DTYPES = {"tensor(float)": "f4", "tensor(double)": "f8", "tensor(float16)": "f2"}
_DEFECT = 70  # the exit code
# The memory that a model's calls may take; a model of 2.7 GB is in it twice.
_MEMORY_BYTES = 12 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """The result of a call. `said` is the message if Farrier or, if not `is_refused`, ONNX Runtime
    rejects the size; `exact` and `peer_exact` are the engines' errors against float64, if their
    outputs differ."""

    shapes: str
    error: float | None = None
    exact: float | None = None
    peer_exact: float | None = None
    said: str = ""
    is_refused: bool = False

    @property
    def is_wrong(self) -> bool:
        if self.error is None or self.error <= TOLERANCE:
            return False
        if self.exact is None or self.peer_exact is None:
            return True
        return self.exact > max(TOLERANCE, 2 * self.peer_exact)

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.shapes} {self.said}"
        exactly = ""
        if self.exact is not None:
            exactly = f" (exactly {self.exact:.1e}, ONNX Runtime {self.peer_exact:.1e})"
        return f"{self.shapes} {self.error:.1e}{exactly}"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The result of a model. `said` is the error message if Farrier does not compile it;
    `is_defect` marks an internal error."""

    model: str
    compile_s: float
    sizes: tuple[Size, ...] = ()
    said: str = ""
    is_defect: bool = False

    @property
    def verdict(self) -> str:
        if self.is_defect or any(size.is_wrong for size in self.sizes):
            return "WRONG"
        if self.said or any(size.is_refused for size in self.sizes):
            return "says"
        # What even ONNX Runtime does not run shows nothing.
        return "right" if any(size.error is not None for size in self.sizes) else "WRONG"

    def __str__(self) -> str:
        rest = self.said or "; ".join(map(str, self.sizes))
        return f"{self.verdict:6}{self.model}: {self.compile_s:.1f} s; {rest}"


def try_model(path: Path, name: str) -> Result:
    """Compile a model by the command `farrier compile`, and run it at its sizes."""
    with tempfile.TemporaryDirectory(prefix="farrier-public-") as folder:
        output = Path(folder) / "model.farrier"
        began = time.perf_counter()
        said, is_defect = _compile(path, output)
        seconds = time.perf_counter() - began
        if said:
            return Result(name, seconds, (), said, is_defect)
        return Result(name, seconds, _sizes(path, name, load(output)))


def _compile(path: Path, output: Path) -> tuple[str, bool]:
    """Run `farrier compile`. Return its error message ("" on success), and whether the error is a
    defect of Farrier."""
    command = [sys.executable, "-m", "farrier.cli", "compile", str(path), "-o", str(output)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_COMPILE_S
        )
    except subprocess.TimeoutExpired:
        return f"not compiled after {_COMPILE_S:.0f} s", True
    if not done.returncode:
        return "", False
    error_lines = done.stderr.strip().splitlines() or ["nothing"]
    sentence = next((line for line in error_lines if line.startswith("error: ")), error_lines[-1])
    return sentence.removeprefix("error: "), done.returncode == _DEFECT or done.returncode < 0


def _sizes(path: Path, name: str, artifact: Artifact) -> tuple[Size, ...]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    peer = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = [Input(port.name, _dtype(port.type), tuple(port.shape)) for port in peer.get_inputs()]
    rng = np.random.default_rng(0)
    return tuple(
        _size(path, artifact, peer, call, arrays(call, inputs, rng)) for call in calls(name, inputs)
    )


def _size(
    path: Path,
    artifact: Artifact,
    peer: onnxruntime.InferenceSession,
    call: Call,
    inputs: Arrays,
) -> Size:
    shapes = show(call)
    names = [port.name for port in peer.get_outputs()]
    try:
        theirs = dict(zip(names, map(np.asarray, peer.run(names, inputs)), strict=True))
    except Exception as refusal:  # ONNX Runtime has many types of errors.
        lines = str(refusal).strip().splitlines()
        return Size(shapes, said=f"ONNX Runtime refuses: {lines[0][:200]}")
    try:
        ours = artifact.run(inputs)
    except FarrierError as refusal:
        return Size(shapes, said=f"refused: {refusal.message}", is_refused=True)
    error = difference(ours, theirs)
    if error <= TOLERANCE:
        return Size(shapes, error)
    try:
        wanted = in_float64(Model.of_path(path), inputs)
    except FarrierError:
        return Size(shapes, error)
    return Size(shapes, error, difference(ours, wanted), difference(theirs, wanted))


def _dtype(kind: str) -> str:
    """Return the numpy name of ONNX's type name, such as `int64` for `tensor(int64)`."""
    return _DTYPES.get(kind) or kind.removeprefix("tensor(").removesuffix(")")


def models(arguments: Sequence[str]) -> list[tuple[str, Path]]:
    """Return the names and files of the models that the arguments select. Raises UsageError, and
    ServiceError if a wheel cannot be downloaded."""
    collected: list[tuple[str, Path]] = []
    for argument in arguments or TRAINED:
        path = Path(argument)
        if argument in TRAINED:
            collected.append((argument, trained(argument)))
        elif path.is_dir() or path.suffix == ".onnx":
            files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
            collected += [(file.stem, file) for file in files]
        else:
            raise UsageError(
                f"{argument} is no folder, no .onnx file and no public model",
                hint=f"public models: {', '.join(TRAINED)}",
            )
    return collected


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))


def attempt(path: Path, name: str) -> Result:
    """Call `try_model` in a separate process, because wrong compiled code may crash the process."""
    context = multiprocessing.get_context("spawn")
    began = time.perf_counter()
    with concurrent.futures.ProcessPoolExecutor(1, context, _limit_memory) as pool:
        try:
            return pool.submit(try_model, path, name).result()
        except BrokenProcessPool:
            said = "the process that ran it has died"
        except Exception as defect:  # One model's error of any kind must not prevent the others.
            said = f"{type(defect).__name__}: {defect}"
    return Result(name, time.perf_counter() - began, (), said, True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.public",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL")
    try:
        chosen = models(parser.parse_args().models)
    except FarrierError as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return refusal.exit_code
    verdicts: list[str] = []
    for name, path in chosen:
        result = attempt(path, name)
        verdicts.append(result.verdict)
        print(result, flush=True)
    counts = ", ".join(
        f"{verdicts.count(verdict)} {verdict}" for verdict in ("right", "says", "WRONG")
    )
    print(f"{len(verdicts)} models: {counts}")
    return 1 if "WRONG" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
