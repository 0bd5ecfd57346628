"""`make scaling`: measure how the rate of a job's trials grows with the number of devices that
measure them.

    python -m bench.scaling [--devices 1,2,4,8,16] [--seconds 120] [--candidate-s 1]
                            [--model mobilenet_v2 | --model FILE.onnx] [--invented]
                            [--json build/scaling.json] [--docs docs/operate | --no-docs]
    python -m bench.scaling --simulate

Each run has a new farm, so no run can use another's measurements: Valkey, API, broker, a worker,
and simulated devices that speak the protocol and take `--candidate-s` seconds for a candidate
(`bench.scaling.devices`). Time counts from the first batch of single kernels. `--simulate` runs a
queueing model of the farm with the service times of the last measurement: first for the measured
runs, then for farms of thousands of devices (`bench.scaling.simulation`). Tables go to
docs/operate/scaling.md, which explains them, and the chart to docs/operate/scaling.svg.

The command fails if a limit is not met: of the rate of 8 devices relative to one, or of the model's
error.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.page import put
from bench.scaling import prediction, tables
from bench.scaling.chart import Points, chart
from bench.scaling.measured import Run, Setting, measure, model_bytes
from bench.scaling.results import Measurement, summarized
from bench.scaling.simulation import Size
from farrier.errors import FarrierError

_DEVICES = "1,2,4,8,16"
_SIZES = ((100, 10), (1_000, 100), (10_000, 1_000))  # devices, users


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return _simulate(options) if options.simulate else _measure(options)
    except FarrierError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--devices", type=_counts, default=_counts(_DEVICES), help="of each run")
    add("--seconds", type=float, default=120.0, help="that each run measures kernels alone")
    add("--candidate-s", type=float, default=1.0, help="that a device takes for a candidate")
    add("--model", default="mobilenet_v2", help="a name of bench.models, or an ONNX file")
    add("--invented", action="store_true", help="invent times, and leave the cores to builds")
    add("--simulate", action="store_true", help="with the service times of the last measurement")
    add("--json", type=Path, default=Path("build/scaling.json"), help="what was measured")
    add(
        "--docs",
        type=Path,
        default=Path("docs/operate"),
        help="folder of scaling.md and scaling.svg",
    )
    add("--no-docs", dest="docs", action="store_const", const=None, help="leave them as they are")
    return parser


def _counts(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _measure(options: argparse.Namespace) -> int:
    setting = Setting(
        model_bytes(options.model),
        Path(options.model).stem,
        options.seconds,
        options.candidate_s,
        options.invented,
    )
    runs: list[Run] = []
    for devices in options.devices:
        run = measure(setting, devices)
        runs.append(run)
        print(
            f"{devices} devices: {run.trials:.0f} trials in {run.elapsed_s:.0f} s, "
            f"each busy {min(run.busy):.0%} or more, {run.faults} faults",
            flush=True,
        )
    created = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    measurement = summarized(setting, runs, created)
    measurement.save(options.json)
    table = tables.measured(measurement)
    print(table)
    verdicts = tables.lines(measurement)
    for line, holds in verdicts:
        print(f"{line}{'' if holds else ': FAILED'}")
    if options.docs is not None:
        title = f"{_title(measurement)}\n\n{table}"
        put(options.docs / "scaling.md", "measured", title)
        _draw(options.docs, measurement, ())
    return 0 if all(holds for _, holds in verdicts) else 1


def _title(measurement: Measurement) -> str:
    times = "invented times" if measurement.invented else "real times"
    return (
        f"{measurement.model}, {measurement.candidate_s:g} s a candidate, {times}, "
        f"{measurement.cores} cores, {measurement.measured_at}:"
    )


def _simulate(options: argparse.Namespace) -> int:
    measurement = Measurement.load(options.json)
    times = prediction.service_times(measurement)
    compared = prediction.compared(measurement, times)
    batch = max(1, round(max(measurement.rows, key=lambda row: row.devices).batch_size))
    needs = [prediction.need(times, Size(*size, batch=batch)) for size in _SIZES]
    parts = {
        "service times": prediction.times_table(times),
        "compared": prediction.compared_table(compared),
        "needs": prediction.needs_table(needs),
        "limits": prediction.limits_table(prediction.limits(times, needs[-1])),
    }
    for name, table in parts.items():
        print(f"{name}:\n{table}\n")
        if options.docs is not None:
            put(options.docs / "scaling.md", name, table)
    if options.docs is not None:
        _draw(options.docs, measurement, [(run.devices, run.predicted) for run in compared])
    worst = max(abs(run.error) for run in compared)
    holds = worst <= prediction.MOST_ERROR
    print(
        f"the largest error of the simulation is {worst:.1%}, of {prediction.MOST_ERROR:.0%}"
        f"{'' if holds else ': FAILED'}"
    )
    return 0 if holds else 1


def _draw(docs: Path, measurement: Measurement, predicted: Points) -> None:
    measured = [(row.devices, row.rate) for row in measurement.rows]
    (docs / "scaling.svg").write_text(chart(measured, predicted, measurement.candidate_s))


if __name__ == "__main__":
    sys.exit(main())
