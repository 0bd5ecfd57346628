"""`make bench`: race Farrier against the engines that a user could choose instead; prints one table
per model.

    python -m bench [--models resnet18,bert_base | --quick | --quantized]
                    [--threads 1,2] [--rounds 15] [--target x86-64-v3] [--precision bf16]
                    [--trials N | --budget 5m] [--records FILE] [--peers onnxruntime,openvino,…]
                    [--python tvm=/opt/tvm/bin/python] [--json FILE] [--svg FILE]
    python -m bench --device cuda [--precision f16]     on a GPU of NVIDIA, with engines for it
    python -m bench --operators [--help | …]    models of one operator each (bench/operators)

Each engine runs in its own process. The engines take turns, and a process is stopped while it
waits; outputs are compared first. A ratio is Farrier's latency over the engine's, computed for each
round; the median over the rounds is shown. docs/develop/measuring.md explains the other columns.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import plot, report
from bench.measure import Peer, Result, Settings, measure, ratio
from bench.operators import __main__ as operators
from bench.terminal import open_console, run
from bench.workloads import NAMES, QUANTIZED, QUICK, workload
from farrier.bench.race import ENGINES, Entrant, missing_packages
from farrier.cli.show import ProgressView
from farrier.errors import FarrierError, UsageError
from farrier.options import parse_budget
from farrier.options.precision import Precision
from farrier.records import FileRecords
from farrier.targets.cuda.architectures import ARCHITECTURES
from farrier_device import describe
from farrier_device.adapters import NoAdapterError
from farrier_device.cuda_library import capability
from farrier_device.nvidia import capability_of, open_driver

_QUICK_ROUNDS = 7


def main() -> int:
    if "--operators" in sys.argv[1:]:
        return operators.main()
    arguments = _parser().parse_args()
    return run(lambda console: _main(arguments, console), open_console())


def _main(arguments: argparse.Namespace, console: Console) -> int:
    settings = Settings(
        target=target_of(arguments),
        precision=arguments.precision,
        peers=_peers(arguments, console),
        rounds=arguments.rounds or (_QUICK_ROUNDS if arguments.quick else 15),
        round_s=arguments.round_s,
        calm=arguments.calm,
        trials=arguments.trials,
        budget_s=arguments.budget,
        records=None if arguments.records is None else FileRecords(arguments.records),
        device=arguments.device,
    )
    # Workloads are resolved first, so that a wrong name fails at once.
    workloads = [workload(name) for name in _names(arguments)]
    results: list[Result] = []
    default_threads = "1" if arguments.device else "1,2"
    for source in workloads:
        for threads in map(int, (arguments.threads or default_threads).split(",")):
            with ProgressView(console) as view:
                result = measure(source, threads, settings, view, _teller(console))
            results.append(result)
            console.print(report.headline(result))
            console.print(report.engines_table(result))
            for peer in result.peers:
                if peer.limited:
                    console.print(f"{peer.label} is kept to {settings.target}: {peer.limited}")
            if result.float_form is not None and ratio(result.ours[0], result.float_form) > 1:
                console.print("the model is slower than what it was made of", style="yellow")
            for label in result.lighter:
                console.print(f"{label} takes less memory", style="yellow")
            for label in result.differing:
                console.print(f"the outputs of {label} differ", style="yellow")
            # Written after every model: a run of an hour that is cut short has left something.
            _write(arguments, results, settings)
    console.print(report.summary_table(results))
    for line in report.means(results):
        console.print(line)
    console.print(report.costs_table(results))
    differing = sorted({result.model for result in results if not result.agree})
    if differing:
        console.print(f"outputs differ: {', '.join(differing)}", style="red")
    return 1 if differing else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    names = ", ".join((*NAMES, *QUANTIZED))
    which.add_argument("--models", default=",".join(NAMES), help=f"of {names}")
    which.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)}; fewer rounds")
    which.add_argument(
        "--quantized",
        action="store_true",
        help="models by ONNX Runtime's quantizer, each beside what it was made of",
    )
    which.add_argument(
        "--operators",
        action="store_true",
        help="models of one operator each, with options of their own: --operators --help",
    )
    parser.add_argument("--peers", help="by comma; all for the device by default")
    parser.add_argument(
        "--device",
        choices=["cuda"],
        default="",
        help="run on a GPU of NVIDIA, by its driver, beside engines that do",
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="ENGINE=PATH",
        help="the Python of another environment that has this engine; repeatable",
    )
    parser.add_argument(
        "--target",
        default="host",
        help="x86-64-v3: Farrier compiles for AVX2, and the peers are kept to it",
    )
    parser.add_argument(
        "--precision",
        type=Precision,
        choices=tuple(Precision),
        default=Precision.F32,
        help="bf16: of Farrier and the peers that can be asked for it; errors are against f32",
    )
    parser.add_argument("--threads", help="by comma; one race each; 1,2, or 1 with --device")
    parser.add_argument("--rounds", type=int, help="of each engine, in turn")
    parser.add_argument("--round-s", type=float, default=0.2, help="seconds of a round")
    parser.add_argument(
        "--calm",
        type=float,
        metavar="CORES",
        help="run turns again in which other processes took more than this of the machine",
    )
    parser.add_argument("--trials", type=int, help="tune, measuring so many candidates")
    parser.add_argument("--budget", type=parse_budget, help="tune, for so long: 60s, 5m")
    parser.add_argument("--records", type=Path, help="tuning records to use and extend")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--svg", type=Path, help="write a bar chart to this file")
    return parser


def _names(arguments: argparse.Namespace) -> Sequence[str]:
    if arguments.quantized:
        return QUANTIZED
    return QUICK if arguments.quick else arguments.models.split(",")


def target_of(arguments: argparse.Namespace) -> str:
    """Return the target of Farrier's code. Raises UsageError without the device."""
    if not arguments.device:
        return str(arguments.target)
    try:
        driver = open_driver()
    except NoAdapterError as error:
        raise UsageError(f"there is no CUDA device here: {error}") from None
    has = capability_of(driver, 0)
    usable = [name for name in ARCHITECTURES if capability(name) <= has]
    if not usable:
        raise UsageError(f"the GPU here has compute capability {has[0]}.{has[1]}, which is too old")
    return f"cuda:{max(usable, key=capability)}"


def _peers(arguments: argparse.Namespace, console: Console) -> list[Peer]:
    """Return the engines to race against that are installed, and print the names of the others."""
    pythons = dict(text.split("=", 1) for text in arguments.python if "=" in text)
    if len(pythons) != len(arguments.python):
        raise UsageError("--python needs ENGINE=PATH", hint="--python tvm=/opt/tvm/bin/python")
    fitting = [
        name
        for name, engine in ENGINES.items()
        if name != "farrier" and engine.accelerator == arguments.device
    ]
    peers = []
    for engine in fitting if arguments.peers is None else filter(None, arguments.peers.split(",")):
        if engine not in ENGINES:
            raise UsageError(f"unknown engine {engine!r}", hint=f"engines: {', '.join(ENGINES)}")
        if engine not in fitting:
            where = arguments.device or "the processor"
            raise UsageError(f"{engine} is not for {where}", hint=f"engines: {', '.join(fitting)}")
        missing = [] if engine in pythons else missing_packages(engine)
        if missing:
            console.print(f"without {engine}: not installed ({', '.join(missing)})")
        else:
            peers.append(Peer(engine, pythons.get(engine, sys.executable)))
    return peers


def _teller(console: Console) -> Any:
    def failed(_: Entrant, error: FarrierError) -> None:
        console.print(error.message, markup=False)

    return failed


def _write(arguments: argparse.Namespace, results: list[Result], settings: Settings) -> None:
    if arguments.svg is not None:
        arguments.svg.write_text(plot.chart(results))
    if arguments.json is None:
        return
    facts = {
        "command": " ".join(["python -m bench", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": dataclasses.asdict(describe.describe()),
        "target": settings.target,
        "precision": settings.precision,
        "rounds": settings.rounds,
        "round_s": settings.round_s,
        "results": [result.to_json() for result in results],
    }
    arguments.json.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    sys.exit(main())
