"""The named steps of a compilation: each is timed, reported, and dumped as text on request; a
compilation can be stopped after any of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from farrier.errors import StorageError, UsageError
from farrier.ir.constants import FOLDER, ConstantFiles
from farrier.ir.graph import Graph
from farrier.ir.loop import Function
from farrier.ir.printer import print_ir
from farrier.ir.tensor import TensorProgram
from farrier.progress import Listener, StageFinished, StageStarted

T = TypeVar("T")
_IR: TypeAlias = Graph | TensorProgram | Function

STAGES = (
    "import",
    "prepare",
    "optimize",
    "partition",
    "space",
    "schedule",
    "compare",
    "lower",
    "codegen",
    "reference",
    "link",
    "verify",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Dump:
    """A request to write the results of steps to files, or to stop early. `directory` is the folder
    for the IR of every step, as text; None writes nothing. `until` is the name of the step after
    which the compilation stops, or None."""

    directory: Path | None = None
    until: str | None = None

    def wants(self, stage: str) -> bool:
        """Check whether the result of the step `stage` is needed: results are dumped, or the
        compilation stops after this step."""
        return self.directory is not None or self.until == stage

    def __post_init__(self) -> None:
        if self.until is not None and self.until not in STAGES:
            raise UsageError(
                f"there is no stage {self.until!r}", hint=f"--until {'|'.join(STAGES)}"
            )


@runtime_checkable
class Printable(Protocol):
    """The interface of a step's result that is dumped as one piece of IR."""

    def printed(self) -> tuple[str, _IR]:
        """Return the name of the piece, and the IR."""
        ...


@runtime_checkable
class Readable(Protocol):
    """The interface of a step's result that is dumped as a text for people."""

    def as_text(self) -> tuple[str, str]:
        """Return the name of the text, and the text."""
        ...


class StoppedError(Exception):
    """The compilation stopped after the step that `Dump.until` names, as requested; not a
    failure."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"stopped after {stage}")
        self.stage = stage


class Step:
    """A step in progress. The code of the step sets `result`. `is_read` is true if the result will
    be dumped, or if the compilation stops after this step."""

    def __init__(self, is_read: bool) -> None:
        self.is_read = is_read
        self.result: object = None
        self.notes: dict[str, list[tuple[str, Function | str]]] = {}

    def note(self, folder: str, name: str, ir: Function | str) -> None:
        """Record an intermediate piece of IR, or the text of instructions, for the dump. In the
        dump, the pieces of each `folder` are numbered in the order of the calls."""
        self.notes.setdefault(folder, []).append((name, ir))

    def done(self, result: T) -> T:
        """Record the result for the dump, and return it."""
        self.result = result
        return result


class Steps:
    """The steps of one compilation, each a block of code:

    with steps("optimize") as step:
        graph = step.done(finish(prepared, settings))
    """

    def __init__(self, listener: Listener, dump: Dump) -> None:
        self._listener = listener
        self._dump = dump
        # The time of a step that runs several times is the sum.
        self.seconds: dict[str, float] = {}
        self.part = ""  # The part of the model in the names of dumps.
        directory = dump.directory
        self._constants = None if directory is None else ConstantFiles(directory / FOLDER)

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[Step]:
        """Time the `with` block as the step `stage`, and dump its result. Raises StoppedError after
        the last requested step."""
        step = Step(self._dump.wants(stage))
        self._listener(StageStarted(stage))
        start = time.perf_counter()
        yield step
        seconds = time.perf_counter() - start
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self._listener(StageFinished(stage, seconds))
        if self._dump.directory is not None and self._constants is not None:
            name = f"{STAGES.index(stage)}-{stage}{self.part}"
            _write(self._dump.directory, name, step.result, self._constants)
            for folder, notes in step.notes.items():
                for number, (note, ir) in enumerate(notes):
                    path = f"{name}-passes/{folder}/{number}-{note}"
                    _write(self._dump.directory, path, ir, self._constants)
        if stage == self._dump.until:
            raise StoppedError(stage)


def _write(directory: Path, name: str, result: object, constants: ConstantFiles) -> None:
    """Write the IR in a step's result to one file, or to a folder of several pieces, and its other
    texts next to it. Large arrays are written by `constants`."""
    pieces: dict[str, _IR] = {}
    texts: dict[str, str] = {}
    for piece, part in _pieces(result):
        if isinstance(part, str):
            texts[piece] = part
        else:
            pieces[piece] = part
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if isinstance(result, str):
            _put(directory / f"{name}.txt", result)
        for piece, text in texts.items():
            _put(directory / f"{name}-{piece}.txt", text)
        for piece, node in pieces.items():
            path = directory / name / f"{piece}.ir" if len(pieces) > 1 else directory / f"{name}.ir"
            _put(path, print_ir(constants.store(node) if isinstance(node, Graph) else node))
    except OSError as error:
        raise StorageError(f"cannot write to {directory}: {error.strerror}") from error


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _pieces(result: object) -> Iterable[tuple[str, _IR | str]]:
    """Yield all parts of a step's result that can be printed, each with the name of its file. All
    parts of a kernel have the kernel's name."""
    match result:
        case Graph() | TensorProgram() | Function():
            yield result.name, result
        case Printable():
            yield result.printed()
        case Readable():
            yield result.as_text()
        case Mapping():
            for value in result.values():
                yield from _pieces(value)
        case list() | tuple():
            for value in result:
                yield from _pieces(value)
        case _ if dataclasses.is_dataclass(result) and not isinstance(result, type):
            for field in dataclasses.fields(result):
                yield from _pieces(getattr(result, field.name))
