"""Import and compile models that may be hostile, in disposable processes with limits.

A nursery has the compiler loaded and forks children, each for some models and up to the first that
ends badly, so that a model costs milliseconds. The limits are those of the worker's job process
(`farrier_worker/job.py`), and lower: a model of a few kilobytes has no business with gigabytes. As
a program this module is the nursery.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# More address space than the nursery's, and the processor's time, for an import and a compilation.
IMPORT = (512 << 20, 10.0)
COMPILATION = (2 << 30, 60.0)
WALL_S = 120.0
MAX_MESSAGE = 20_000  # characters

_MODELS_A_CHILD = 50
_HEADER = struct.Struct("<IQd??")
_RETIRED, _CLOSED = 0, 3  # exit codes


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The judgement of a model: `kind` is read, refused, or the kind of Farrier's failure."""

    kind: str
    message: str
    seconds: float = 0.0

    @property
    def is_finding(self) -> bool:
        return self.kind not in ("read", "refused")


class Nursery:
    """Judges models until it is closed."""

    def __init__(self) -> None:
        # A forked process may have only one thread.
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def judge(
        self,
        model: bytes,
        *,
        compiles: bool = False,
        opens: bool = False,
        limits: tuple[int, float] | None = None,
    ) -> Verdict:
        """Import the model, and compile it where wished. Dims that it leaves open are 3 or, with
        `opens`, in a range. `limits` are bytes and seconds."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        memory, seconds = limits or (COMPILATION if compiles else IMPORT)
        stdin.write(_HEADER.pack(len(model), memory, seconds, compiles, opens) + model)
        stdin.flush()
        return Verdict(**json.loads(stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def _import(model: bytes, opens: bool) -> None:
    from farrier.errors import UnresolvedShapeError
    from farrier.frontends.onnx.importer import import_model

    try:
        import_model(model)
    except UnresolvedShapeError:
        shapes = _shapes(model, opens)
        if shapes:
            import_model(model, shapes)


def _compile(model: bytes, opens: bool) -> None:
    from farrier.frontends.onnx.importer import import_model
    from farrier.options import CompileOptions
    from farrier.pipeline import compile_model

    shapes = _shapes(model, opens)
    imported = import_model(model, shapes)
    if sum(constant.value.type.nbytes for constant in imported.graph.constants) > 64 << 20:
        return  # legal, and slow
    options = CompileOptions(target="host", shapes=shapes, threads=1, verify=False)
    compile_model(model, options)


def _shapes(model: bytes, opens: bool) -> Mapping[str, tuple[Any, ...]]:
    """A shape for each input that leaves dims open."""
    from farrier.frontends.onnx.importer import inspect

    by_name = {}
    for declared in inspect(model).inputs:
        dims = ("?", "?") if declared.dims is None else declared.dims
        if any(isinstance(dim, str) for dim in dims):
            named = [f"d{axis}:1..8" if opens else 3 for axis in range(len(dims))]
            by_name[declared.name] = tuple(
                size if isinstance(dim, str) else dim for dim, size in zip(dims, named, strict=True)
            )
    return by_name


def _judged(model: bytes, compiles: bool, opens: bool) -> Verdict:
    from farrier.errors import CompilerError, FarrierError

    try:
        (_compile if compiles else _import)(model, opens)
    except FarrierError as error:
        text = str(error)
        if isinstance(error, CompilerError):
            return Verdict("defect", _described(error))
        if not error.message.strip() or len(text) > MAX_MESSAGE:
            return Verdict("message", f"{len(text)} characters: {_described(error)[-2000:]}")
        if any(not c.isprintable() and c != "\n" for c in text):
            return Verdict("message", f"control characters: {text[:500]!r}")
        return Verdict("refused", f"{type(error).__name__}: {text}"[:2000])
    except BaseException as error:
        return Verdict(type(error).__name__, _described(error))
    return Verdict("read", "")


def _described(error: BaseException) -> str:
    """The innermost frames and what was raised."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    places = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))
    return f"{places}: {type(error).__name__}: {error}"[:4000]


def _limit(memory: int, seconds: float) -> None:
    """Limit this process to `memory` more bytes than it uses now, and to `seconds` more of
    processor time."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)  # both signals kill
    signal.setitimer(signal.ITIMER_REAL, WALL_S)


def _serve(answers: int) -> int:
    """Judge what comes in, up to the first finding; the exit code says why it ended."""
    for _ in range(_MODELS_A_CHILD):
        header = os.read(0, _HEADER.size)
        if not header:
            return _CLOSED
        size, memory, seconds, compiles, opens = _HEADER.unpack(header)
        model = bytearray()
        while len(model) < size:
            model += os.read(0, size - len(model))
        _limit(memory, seconds)
        start = time.process_time()
        verdict = _judged(bytes(model), compiles, opens)
        _limit(1 << 40, 0.0)
        _answer(answers, dataclasses.replace(verdict, seconds=time.process_time() - start))
        if verdict.is_finding:
            break
    return _RETIRED


def _answer(answers: int, verdict: Verdict) -> None:
    os.write(answers, json.dumps(dataclasses.asdict(verdict)).encode() + b"\n")


def _nurse() -> None:
    """Fork serving children, one after the other, and answer for children that die."""
    import farrier.pipeline

    assert farrier.pipeline
    answers = os.dup(1)
    # The output of libraries must not be mistaken for a verdict.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while True:
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os._exit(_serve(answers))
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == _CLOSED:
            return
        if code == -signal.SIGPROF:
            _answer(answers, Verdict("hang", "it takes more processor time than it may"))
        elif code == -signal.SIGALRM:
            _answer(answers, Verdict("hang", f"it takes more than {WALL_S:g} s"))
        elif code != _RETIRED:
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            _answer(answers, Verdict("crash", how))


if __name__ == "__main__":
    _nurse()
