"""Compare a user's schedule template with the built-in rule, both tuned with the same number of
trials.

    python -m bench.templates --trials 64

Layers y = relu(x @ w + b) have sizes of common models and are compiled to one kernel each. Both
schedule spaces are searched separately; then the fastest schedules of both are measured in the same
batch, in turns. A ratio above 1 means that the template is slower. The template is that of
`examples/template_matmul`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.models.writer import Writer
from bench.tuning.tasks import Layer
from farrier.ir.tensor import TensorProgram
from farrier.measure import LocalDevice, TaskMeasurer
from farrier.records import MemoryRecords
from farrier.schedule_search import TuningTask, tune
from farrier.space import Decisions, JoinedSpace, Space
from farrier.targets import parse_target
from farrier.targets.cpu.target import as_cpu
from farrier.templates import Problem
from farrier.templates.space import TemplateSpace
from farrier_device.measurement import TimingPolicy

EXAMPLE = Path(__file__).parents[1] / "examples/template_matmul"
LAYERS = (
    (128, 256, 1024),
    (128, 768, 768),
    (49, 1024, 512),
    (16, 512, 2048),
)  # rows, steps, columns
_PIPED_COLUMNS = 160
_TURNS = 15  # of each finalist


@dataclasses.dataclass(frozen=True, slots=True)
class Contest:
    """The comparison for a layer: microseconds of each turn, of the fastest schedule of the
    template and of the rule."""

    layer: str
    template_us: Sequence[float]
    built_in_us: Sequence[float]

    @property
    def ratio(self) -> float:
        """The median latency of the template over that of the built-in rule."""
        return statistics.median(self.template_us) / statistics.median(self.built_in_us)


def contest(rows: int, steps: int, columns: int, trials: int, threads: int) -> Contest:
    """Tune a layer by the template and by the built-in rule, and measure the fastest schedule of
    each."""
    target = as_cpu(parse_target("host"))
    choice = _layer(rows, steps, columns).task(target, threads)
    assert isinstance(choice.program, TensorProgram)
    problem = Problem(choice.program, target, threads, target.machine(threads))
    template = importlib.import_module("dense_product").TEMPLATE
    own = TemplateSpace(template, problem, f"the template {template.name}", "")
    key = choice.task.key
    with LocalDevice() as device:
        measurer = TaskMeasurer(
            {key: choice.task},
            target,
            device.runner,
            device.blobs,
            TimingPolicy(threads=threads),
        )

        def fastest(space: Space) -> Decisions:
            records = MemoryRecords()
            task = TuningTask(key, choice.task.name, space)
            fingerprint = target.fingerprint
            tune([task], fingerprint, measurer, records, trials=trials, threads=threads)
            return min(records, key=lambda record: record.seconds).knobs

        finalists = [fastest(own), fastest(choice.space)]
        both = JoinedSpace([own, choice.space], choice.space)
        results = measurer.measure(key, both, finalists * _TURNS)
    seconds = [result.undisturbed_ns / 1e3 for result in results]
    return Contest(choice.task.name, seconds[::2], seconds[1::2])


def _layer(rows: int, steps: int, columns: int) -> Layer:
    def write(w: Writer) -> None:
        x = w.input("x", (rows, steps))
        w.output(w.op("Relu", w.linear(x, steps, columns)), "y", (rows, columns))

    return Layer("layer", write)


def table(contests: Sequence[Contest]) -> Table:
    """Return a table with one row for each layer: median microseconds, the 10th and 90th
    percentile, and the ratio."""
    shown = Table(box=None)
    shown.add_column("layer", no_wrap=True)
    for name in ("template", "p10-p90", "built-in", "p10-p90", "ratio"):
        shown.add_column(name, justify="right", no_wrap=True)
    for contest in contests:
        cells = []
        for turns in (contest.template_us, contest.built_in_us):
            low, median, high = np.percentile(turns, (10, 50, 90))
            cells += [f"{median:.1f}", f"{low:.1f}-{high:.1f}"]
        shown.add_row(contest.layer, *cells, f"{contest.ratio:.3f}")
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.templates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--trials", type=int, default=64, help="of each rule and layer (64)")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    sys.path.insert(0, str(EXAMPLE))
    contests = [contest(*layer, arguments.trials, arguments.threads) for layer in LAYERS]
    console = Console(width=None if sys.stdout.isatty() else _PIPED_COLUMNS)
    console.print(table(contests))
    mean = statistics.geometric_mean(result.ratio for result in contests)
    console.print(f"geometric mean: {mean:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
