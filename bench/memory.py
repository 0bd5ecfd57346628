"""`python -m bench.memory`: the workspace of models, and its lower bound.

    lower bound   bytes alive at once, including kernels' own workspace: no packing takes less
    ours          bytes of the plan; `over` is its share of the lower bound
    requested     what ONNX Runtime's arena gave away at once, by its own profile
    held          what that arena took from the system

Figures are in megabytes, without inputs and weights. Farrier's outputs are not included either,
because the caller allocates them; ONNX Runtime's outputs are in its arena.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from rich.table import Table

from bench import ort_profile
from bench.terminal import open_console
from bench.workloads import NAMES, Workload, workload
from farrier.bench.race import missing_packages
from farrier.errors import FarrierError
from farrier.options import CompileOptions
from farrier.packaging.draws import random_inputs
from farrier.pipeline import compile_model


@dataclasses.dataclass(frozen=True, slots=True)
class Workspace:
    """The workspace of a model, in bytes. ONNX Runtime's figures are None if it is not
    installed."""

    model: str
    threads: int
    lower_bound: int
    ours: int
    requested: int | None
    held: int | None

    @property
    def over(self) -> float:
        return self.ours / max(self.lower_bound, 1)


def measure(source: Workload, threads: int) -> Workspace:
    data = source.build()
    options = CompileOptions(shapes=source.shapes, threads=threads, verify=False)
    artifact = compile_model(data, options, name=source.name)
    memory = artifact.report["memory"]
    requested = held = None
    if not missing_packages("onnxruntime"):
        inputs = random_inputs(artifact.manifest.inputs)
        profile = ort_profile.run(data, inputs, threads, seconds=0.0)
        requested, held = profile.requested_bytes, profile.held_bytes
    least, ours = memory["lower_bound_bytes"], memory["workspace_bytes"]
    return Workspace(source.name, threads, least, ours, requested, held)


def table(workspaces: Sequence[Workspace]) -> Table:
    rendered = Table(box=None)
    rendered.add_column("model", no_wrap=True)
    for name in ("threads", "lower bound", "ours", "over", "requested", "held"):
        rendered.add_column(name, justify="right", no_wrap=True)
    for workspace in workspaces:
        sizes = (workspace.lower_bound, workspace.ours, workspace.requested, workspace.held)
        lower, ours, *theirs = ("-" if n is None else f"{n / 1e6:.2f}" for n in sizes)
        rendered.add_row(
            workspace.model, str(workspace.threads), lower, ours, f"{workspace.over:.2f}", *theirs
        )
    return rendered


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--threads", default="1,2", help="thread counts (1,2)")
    arguments = parser.parse_args()
    console = open_console()
    try:
        workspaces = [
            measure(workload(name), int(threads))
            for name in arguments.models.split(",")
            for threads in arguments.threads.split(",")
        ]
    except FarrierError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return error.exit_code
    console.print(table(workspaces))
    return 0


if __name__ == "__main__":
    sys.exit(main())
