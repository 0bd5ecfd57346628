"""`python -m bench.candidate_cost`: the processor time that the search spends per candidate,
without measuring it.

    python -m bench.candidate_cost [--models MODEL …] [--trials 256] [--threads 2]

Each model is compiled up to its tasks with default schedules. Single kernels are then tuned
(`farrier.schedule_search.tune`) on a simulated device that answers immediately: candidates are
scheduled, compiled, linked and stored as blobs as usual, but never run. Their times are computed by
the analytic model plus noise that depends on the decisions, so every run tries the same candidates.
The output is milliseconds of processor time per candidate, by part, of this process, its helper
processes and the linker. Starting the helpers does not count.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tempfile
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from bench import models
from bench.candidate_parts import OTHER, PARTS, Others, process_ns, serve, watch
from bench.workloads import NAMES, workload
from farrier.compile_pool import CompilePool, helpers
from farrier.compile_pool.helpers import helpers_for
from farrier.cost_model import pretrained
from farrier.errors import FarrierError
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import model_of
from farrier.measure import TaskMeasurer
from farrier.measure.local import LocalDevice
from farrier.measure.runner import Blobs
from farrier.model_tuning.variant import make_variant
from farrier.passes import Settings, prepare
from farrier.records import FileRecords
from farrier.records.record import pairs
from farrier.schedule_search import TuningTask, tune
from farrier.space import Decisions, Space
from farrier.targets import parse_target
from farrier_device.measurement import CandidateResult, MeasureRequest, MeasureResult, Status

BERT_SMALL = "bert_small"
MODELS = ("resnet18", "mobilenet_v2", BERT_SMALL)
NOISE = 0.15  # The standard deviation of the log of an invented time over the analytic one.
_SAMPLES = 20  # a candidate


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """The total cost of all candidates of a model, in milliseconds by part; time outside of any
    part is a part too."""

    model: str
    candidates: int
    failed: int
    ms: Mapping[str, float]

    @property
    def each_ms(self) -> float:
        """The total in milliseconds per candidate."""
        return sum(self.ms.values()) / self.candidates


class InstantRunner:
    """A runner that executes nothing: every candidate has the same time."""

    @property
    def devices(self) -> int | None:
        """The number of devices: None, as for this machine, which means one batch at a time."""
        return None

    def measure(
        self,
        request: MeasureRequest,
        blobs: Blobs,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """Return a result in the same form as a device would, without running the library."""
        blobs.path(request.code[0].blob)
        ran = CandidateResult(Status.OK, (1000,) * _SAMPLES, 0.0)
        return MeasureResult((ran,) * len(request.candidates))

    def close(self) -> None:
        """Do nothing, since the runner holds no resources."""


class InventingMeasurer(TaskMeasurer):
    """A measurer that replaces measured times by the results of `invented`."""

    def measure(
        self,
        task: str,
        space: Space,
        batch: Sequence[Decisions],
        called_off: threading.Event | None = None,
    ) -> list[CandidateResult]:
        results = super().measure(task, space, batch, called_off)
        return [
            dataclasses.replace(result, samples_ns=invented(task, space, decisions))
            if result.status is Status.OK
            else result
            for decisions, result in zip(batch, results, strict=True)
        ]


def invented(task: str, space: Space, decisions: Decisions) -> tuple[int, ...]:
    """Return the invented nanoseconds of a candidate's calls: the analytic model's cost times noise
    that depends only on the decisions."""
    seed = zlib.crc32(repr((task, pairs(decisions))).encode())
    noise = np.random.default_rng(seed).normal(0.0, NOISE)
    return (max(1, round(space.seconds(decisions) * np.exp(noise) * 1e9)),) * _SAMPLES


def measure(name: str, trials: int, threads: int) -> Cost:
    """Tune a model on the simulated device and return the cost. Raises FarrierError if it cannot be
    compiled."""
    target = parse_target("host")
    model, shapes = _model(name)
    settings = Settings(target, threads)
    imported = import_model(model_of(model), shapes)
    variant = make_variant(prepare(imported.graph, settings), settings)
    tasks = [TuningTask(k, c.task.name, c.space, c.calls) for k, c in variant.choices.items()]
    count = helpers_for(len(imported.graph.nodes))
    with (
        tempfile.TemporaryDirectory(prefix="farrier-candidate-cost-") as folder,
        LocalDevice(InstantRunner()) as device,
        CompilePool(count, target, threads) as processes,
    ):
        others = Others(count)
        measurer = InventingMeasurer(
            {key: choice.task for key, choice in variant.choices.items()},
            target,
            device.runner,
            device.blobs,
            helpers=processes,
        )
        records = FileRecords(Path(folder) / "records.jsonl")
        base = pretrained()
        watched = watch()
        parts, began = Counter(watched.ns), process_ns()
        tune(
            tasks,
            target.fingerprint,
            measurer,
            records,
            trials=trials,
            threads=threads,
            base=base,
        )
        spent = process_ns() - began
        parts = watched.ns - parts
        parts[OTHER] = spent - sum(parts.values())
        parts.update(others.spent())
    failed = sum(record.status is not Status.OK for record in records)
    ms = {part: ns / 1e6 for part, ns in parts.items()}
    return Cost(name, len(records), failed, ms)


def _model(name: str) -> tuple[bytes, Mapping[str, tuple[int, ...]]]:
    if name == BERT_SMALL:
        return models.build("bert_base", layers=4, width=256, heads=4, tokens=128), {}
    source = workload(name)
    return source.build(), source.shapes


def main() -> int:
    arguments = _parser().parse_args()
    vars(helpers)["serve"] = serve  # Helpers run it in place of their own.
    costs: list[Cost] = []
    for name in arguments.models:
        try:
            costs.append(measure(name, arguments.trials, arguments.threads))
        except FarrierError as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            return error.exit_code
    print("\n".join(table(costs)))
    return 0


def table(costs: Sequence[Cost]) -> list[str]:
    """Return the lines of a table with a column per model and a row per part, in milliseconds per
    candidate."""
    width = max(len(cost.model) for cost in costs) + 2

    def line(title: str, cells: Iterable[str]) -> str:
        return f"{title:16}" + "".join(f"{cell:>{width}}" for cell in cells)

    lines = [line("ms a candidate", (cost.model for cost in costs))]
    for part in (*(part.name for part in PARTS), OTHER):
        each = [cost.ms.get(part, 0.0) / cost.candidates for cost in costs]
        lines.append(line(part, (f"{ms:.2f}" for ms in each)))
    lines.append(line("all", (f"{cost.each_ms:.2f}" for cost in costs)))
    lines.append(line("candidates", (str(cost.candidates) for cost in costs)))
    lines.append(line("failed", (str(cost.failed) for cost in costs)))
    mean = statistics.geometric_mean(cost.each_ms for cost in costs)
    return [*lines, f"geometric mean: {mean:.1f} ms"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.candidate_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--models", nargs="+", default=MODELS, choices=(*NAMES, BERT_SMALL), metavar="MODEL"
    )
    parser.add_argument("--trials", type=int, default=256, help="of each model (256)")
    parser.add_argument("--threads", type=int, default=2)
    return parser


if __name__ == "__main__":
    sys.exit(main())
