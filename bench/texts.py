"""Read back all dumped compiler stages of models: the text of each must parse, verify and print
identically.

    python -m bench.texts MODEL … [--shape MODEL:INPUT=DIM,…] [--hot MODEL:DIM=SIZE,…]

MODEL, --shape and --hot are as for `python -m bench.real`; if a model has open dims and no hot
sizes are named, the typical ones are hot. A model is compiled up to the loop nests of its kernels;
then `farrier opt` reads each graph (import, prepare, optimize, and the graphs of hot sizes) in its
own process, and all other texts are read in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.real import open_shapes, workloads
from bench.workloads import Workload
from farrier.errors import FarrierError
from farrier.ir.constants import beside
from farrier.options import CompileOptions
from farrier.passes import Settings, opt
from farrier.pipeline import Dump, StoppedError, compile_model
from farrier.targets import parse_target

_LAST = "lower"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The result of a model: the number of texts, the number that `farrier opt` has read, and the
    failures."""

    model: str
    texts: int
    graphs: int
    constant_bytes: int
    failures: tuple[str, ...]


def read_back(source: Workload, folder: Path, *, by_command: bool = True) -> Result:
    """Dump the stages of a model into a folder and read them back; with `by_command`, graphs are
    also read by `farrier opt`. Raises FarrierError if the model cannot be compiled."""
    data = source.build()
    shapes = source.open_shapes or open_shapes(data)
    options = CompileOptions(shapes=shapes, hot=source.hot or ({},), threads=2, verify=False)
    with contextlib.suppress(StoppedError):
        compile_model(data, options, dump=Dump(folder, _LAST))
    texts = sorted(folder.rglob("*.ir"))
    graphs = [path for path in texts if path.parent == folder and _is_graph(path)]
    failures = [*unlike(texts), *unlike_by_command(graphs if by_command else [])]
    stored = sum(file.stat().st_size for file in folder.rglob("*.npy"))
    return Result(source.name, len(texts), len(graphs), stored, tuple(failures))


def _is_graph(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        return file.readline().startswith("@graph")


def unlike(texts: Sequence[Path]) -> Iterator[str]:
    """Yield a message for each text that does not parse or prints differently."""
    machine = parse_target("host")
    for path in texts:
        text = path.read_text(encoding="utf-8")
        try:
            again = opt(text, [], constants=beside(path), settings=Settings(machine, 2))
        except FarrierError as error:
            yield f"{path.name}: {error}"
        else:
            if again != text:
                yield f"{path.name}: it prints otherwise"


def unlike_by_command(graphs: Sequence[Path]) -> Iterator[str]:
    """Yield a message for each graph that `farrier opt` does not parse or prints differently."""
    for path in graphs:
        command = [sys.executable, "-m", "farrier.cli", "opt", str(path)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            yield f"farrier opt {path.name}: {done.stderr.strip()}"
        elif done.stdout != path.read_text(encoding="utf-8"):
            yield f"farrier opt {path.name} prints otherwise"


def table(results: Sequence[Result]) -> Table:
    """Return a table with a row per model."""
    rendered = Table("model", "texts", "graphs", "constants MB", "wrong", box=None)
    for result in results:
        size = f"{result.constant_bytes / 1e6:.1f}"
        rendered.add_row(
            result.model, str(result.texts), str(result.graphs), size, str(len(result.failures))
        )
    return rendered


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.texts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--shape", action="append", default=[], metavar="MODEL:INPUT=DIM,…")
    parser.add_argument("--hot", action="append", default=[], metavar="MODEL:DIM=SIZE,…")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    results, failed = [], 0
    try:
        chosen = workloads(arguments.models, arguments.shape, arguments.hot)
    except FarrierError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return error.exit_code
    for source in chosen:
        with tempfile.TemporaryDirectory(prefix="farrier-texts-") as folder:
            try:
                results.append(read_back(source, Path(folder)))
            except FarrierError as error:  # One model's error must not prevent the others.
                failed += 1
                console.print(f"{source.name}: {error}", style="red", markup=False)
                continue
        for failure in results[-1].failures:
            console.print(f"{source.name}: {failure}", style="red", markup=False)
    console.print(table(results))
    return 1 if failed or any(result.failures for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
