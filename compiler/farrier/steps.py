"""Named steps: each is timed, reported, dumped as text where wished, and may be the last."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from farrier.errors import StorageError, UsageError
from farrier.ir.dim import typical
from farrier.ir.graph import Graph
from farrier.ir.loop import Function
from farrier.ir.printer import print_ir
from farrier.ir.tensor import Program
from farrier.progress import Listener, StageFinished, StageStarted, Warned

T = TypeVar("T")
MAX_DUMPED_BYTES = 1 << 30  # of a graph's constants

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
    """Where to write every step's IR as text (None: nowhere), and after which step to stop."""

    directory: Path | None = None
    until: str | None = None

    def wants(self, stage: str) -> bool:
        """Whether a stage is to be taken for its text, or as the last one."""
        return self.directory is not None or self.until == stage

    def __post_init__(self) -> None:
        if self.until is not None and self.until not in STAGES:
            raise UsageError(
                f"there is no stage {self.until!r}", hint=f"--until {'|'.join(STAGES)}"
            )


class StoppedError(Exception):
    """The step that `Dump.until` names is done; not a failure."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"stopped after {stage}")
        self.stage = stage


class Steps:
    """Runs the steps of one compilation."""

    def __init__(self, listener: Listener, dump: Dump) -> None:
        self._listener = listener
        self._dump = dump
        self.seconds: dict[str, float] = {}  # in all, of steps taken several times
        self.part = ""  # of the model, for the names of dumps

    def __call__(self, stage: str, step: Callable[..., T], *args: Any) -> T:
        """Runs `step(*args)` as `stage`. Raises StoppedError after the last one wished for."""
        self._listener(StageStarted(stage))
        start = time.perf_counter()
        result = step(*args)
        seconds = time.perf_counter() - start
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self._listener(StageFinished(stage, seconds))
        if self._dump.directory is not None:
            name = f"{STAGES.index(stage)}-{stage}{self.part}"
            for left_out in _write(self._dump.directory, name, result):
                self._listener(Warned(left_out))
        if stage == self._dump.until:
            raise StoppedError(stage)
        return result


def _write(directory: Path, name: str, result: Any) -> list[str]:
    """Writes the IR in a step's result: one file, or a folder where there are several pieces. The
    constants too large for text go beside a graph, by their digests; what of them is left out."""
    left_out = []
    pieces = dict(_pieces(result))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for piece, node in pieces.items():
            path = directory / name / f"{piece}.ir" if len(pieces) > 1 else directory / f"{name}.ir"
            path.parent.mkdir(exist_ok=True)
            path.write_text(print_ir(node))
            if isinstance(node, Graph) and node.constants:
                beside = path.with_suffix(".constants.npz")
                nbytes = sum(typical(c.value.type.nbytes) for c in node.constants)
                if nbytes > MAX_DUMPED_BYTES:
                    left_out.append(
                        f"{beside} is not written: the constants have {nbytes / 1e9:.1f} GB, and "
                        f"every stage would have them; farrier opt does not run on this text"
                    )
                    continue
                with beside.open("wb") as file:
                    np.savez(file, **{c.digest: c.made() for c in node.constants})  # type: ignore[arg-type]
    except OSError as error:
        raise StorageError(f"cannot write to {directory}: {error.strerror}") from error
    return left_out


def _pieces(result: Any) -> Iterable[tuple[str, Graph | Program | Function]]:
    """The printable parts of a step's result, by name."""
    if isinstance(result, Graph | Program | Function):
        yield result.name, result
    elif isinstance(result, dict):
        for value in result.values():
            yield from _pieces(value)
    elif isinstance(result, list | tuple):
        for value in result:
            yield from _pieces(value)
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        for field in dataclasses.fields(result):
            yield from _pieces(getattr(result, field.name))
