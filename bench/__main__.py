"""`make bench`: Farrier beside ONNX Runtime and OpenVINO, one table a model.

    python -m bench [--models resnet18,bert_base] [--threads 2] [--trials N | --budget 5m]
                    [--json FILE]

Each engine runs in its own process, in turn with the others; outputs are compared first. The ratio
is Farrier's latency over the engine's, round by round, and the median of those.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from pathlib import Path

from rich.console import Console

import farrier
from bench import models
from farrier.bench.race import Entrant, race
from farrier.cli.local import figures_table
from farrier.cli.show import ProgressView
from farrier.options import parse_budget
from farrier.verify import random_inputs

MODELS = ("resnet18", "resnet50", "mobilenet_v2", "bert_base", "vit_b16")
PEERS = ("onnxruntime", "openvino")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="by comma")
    parser.add_argument("--peers", default=",".join(PEERS), help="by comma")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--budget", type=parse_budget)
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    report = {}
    for name in arguments.models.split(","):
        report[name] = measure(name, arguments, console)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=1))


def measure(name: str, arguments: argparse.Namespace, console: Console) -> list[dict[str, object]]:
    """Compiles one model and races it; prints the table and returns its rows."""
    with tempfile.TemporaryDirectory(prefix="farrier-bench-") as folder:
        onnx, path = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}.farrier"
        onnx.write_bytes(models.build(name))
        start = time.perf_counter()
        with ProgressView(console) as view:
            artifact = farrier.compile(
                onnx,
                trials=arguments.trials,
                budget_s=arguments.budget,
                threads=arguments.threads,
                verify=False,
                listener=view,
            )
        seconds = time.perf_counter() - start
        artifact.save(path)
        entrants = [Entrant("farrier", path)]
        entrants += [Entrant(peer, onnx) for peer in arguments.peers.split(",") if peer]
        figures = race(
            entrants,
            random_inputs(artifact.manifest.inputs),
            threads=arguments.threads,
            rounds=arguments.rounds,
        )
        size = path.stat().st_size / onnx.stat().st_size
        console.print(f"{name}: compiled in {seconds:.2f} s; artifact {size:.2f} of the ONNX file")
        console.print(figures_table(figures))
    return [{**dataclasses.asdict(one), "compile_s": seconds} for one in figures]


if __name__ == "__main__":
    main()
