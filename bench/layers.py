"""`python -m bench.layers MODEL`: layer by layer, the floor, Farrier's time and the peers'.

Each engine's own profiler says how long its steps take: Farrier's kernels run one by one on the
memory of the whole model, ONNX Runtime writes a profile, OpenVINO counts. Steps are matched by the
nodes of the model that they name; what shares a node stands in one row, since engines fuse
differently. A step that names none, such as a change of layout, counts with the next one that does.
Rows whose kernels are the same are summed; a row without a kernel is what Farrier does elsewhere.

The floor is operations over peak or bytes over bandwidth, whichever is longer, of what Farrier's
kernels do (Winograd's products, not the sum's) with cold memory. Times are medians, microseconds.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx
from rich.table import Table

from bench import ort_profile
from bench.terminal import open_console
from bench.workloads import NAMES, QUANTIZED, Workload, workload
from farrier.bench.profile import profile
from farrier.bench.race import missing_packages
from farrier.errors import FarrierError
from farrier.options import CompileOptions
from farrier.packaging.draws import random_inputs
from farrier.pipeline import compile_model
from farrier.runtime.artifact import Artifact

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One step of an engine: `nodes` of the model that it names, `kernel` how it calls itself."""

    kernel: str
    nodes: frozenset[str]
    seconds: float
    floor_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Groups of steps that Farrier runs with the same kernels: seconds by engine, summed."""

    label: str
    count: int
    floor_s: float
    seconds: Mapping[str, float]


def rows(steps: Mapping[str, Sequence[Step]]) -> list[Row]:
    """Match the engines' steps; `steps` are by engine, `farrier` among them, in the order of
    execution. The longest of Farrier's come first."""
    merged: dict[str, list[list[tuple[str, Step]]]] = {}
    for group in _groups({engine: _attached(found) for engine, found in steps.items()}):
        kernels = sorted({step.kernel for engine, step in group if engine == "farrier"})
        merged.setdefault(", ".join(kernels) or _elsewhere(group), []).append(group)
    made = []
    for label, groups in merged.items():
        seconds: dict[str, float] = collections.defaultdict(float)
        for engine, step in (one for group in groups for one in group):
            seconds[engine] += step.seconds
        floor = sum(step.floor_s for group in groups for _, step in group)
        made.append(Row(label, len(groups), floor, dict(seconds)))
    return sorted(made, key=lambda row: -row.seconds.get("farrier", 0.0))


def _attached(steps: Sequence[Step]) -> list[Step]:
    """The steps that name a node, each with the time of those before it that name none."""
    attached: list[Step] = []
    waiting = 0.0
    for step in steps:
        waiting += step.seconds
        if step.nodes:
            attached.append(dataclasses.replace(step, seconds=waiting))
            waiting = 0.0
    if attached and waiting:
        last = attached[-1]
        attached[-1] = dataclasses.replace(last, seconds=last.seconds + waiting)
    return attached


def _groups(steps: Mapping[str, Sequence[Step]]) -> list[list[tuple[str, Step]]]:
    """The connected components of steps that share a node."""
    every = [(engine, step) for engine, found in steps.items() for step in found]
    leaders = list(range(len(every)))

    def leader(at: int) -> int:
        while leaders[at] != at:
            leaders[at] = at = leaders[leaders[at]]
        return at

    seen: dict[str, int] = {}
    for at, (_, step) in enumerate(every):
        for node in step.nodes:
            leaders[leader(at)] = leader(seen.setdefault(node, at))
    groups: dict[int, list[tuple[str, Step]]] = collections.defaultdict(list)
    for at, one in enumerate(every):
        groups[leader(at)].append(one)
    return list(groups.values())


def _elsewhere(group: Iterable[tuple[str, Step]]) -> str:
    return "no kernel: " + ", ".join(sorted({step.kernel for _, step in group}))


# What each engine's profiler says ----------------------------------------------------------------


def farrier_steps(artifact: Artifact, threads: int, seconds: float) -> list[Step]:
    """By `farrier profile`. The order does not matter: every kernel names its nodes."""
    found = profile(artifact, threads=threads, seconds=seconds, by_call=True)
    return [
        Step(kernel.name, frozenset(kernel.origin.split(",")), kernel.seconds, kernel.floor_s)
        for kernel in found.kernels
    ]


def onnxruntime_steps(data: bytes, inputs: Arrays, threads: int, seconds: float) -> list[Step]:
    """By the profile that ONNX Runtime writes, its nodes found in the model by their names and
    their outputs: fused nodes keep the name of a value or of a node that they replace."""
    known = _Names(data)
    return [
        Step(
            node.op,
            known.nodes((node.name, *node.outputs)),
            statistics.median(node.samples_us) / 1e6,
        )
        for node in ort_profile.run(data, inputs, threads, seconds).nodes
    ]


def openvino_steps(data: bytes, inputs: Arrays, threads: int, seconds: float) -> list[Step]:
    """By OpenVINO's counters; its runtime graph names the layers that became one."""
    import openvino as ov

    known = _Names(data)
    core = ov.Core()
    network = core.read_model(data)
    network.reshape({name: list(array.shape) for name, array in inputs.items()})
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "PERF_COUNT": True,
    }
    compiled = core.compile_model(network, "CPU", settings)
    origins = {
        op.get_friendly_name(): str(op.get_rt_info()["originalLayersNames"].value)
        for op in compiled.get_runtime_model().get_ordered_ops()
    }
    request = compiled.create_infer_request()
    samples: dict[str, list[float]] = collections.defaultdict(list)
    kinds: dict[str, str] = {}

    def infer() -> None:
        request.infer(inputs)
        for info in request.get_profiling_info():
            if info.status == ov.ProfilingInfo.Status.EXECUTED:
                samples[info.node_name].append(info.real_time.total_seconds())
                kinds[info.node_name] = info.node_type

    request.infer(inputs)
    ort_profile.repeat(infer, seconds)
    return [
        Step(
            kinds[name],
            known.nodes(origins.get(name, "").split(",")),
            statistics.median(times),
        )
        for name, times in samples.items()
    ]


_PEERS: dict[str, Callable[[bytes, Arrays, int, float], list[Step]]] = {
    "onnxruntime": onnxruntime_steps,
    "openvino": openvino_steps,
}


class _Names:
    """The model's nodes as engines call them."""

    def __init__(self, data: bytes) -> None:
        graph = onnx.load_from_string(data).graph
        self._nodes: dict[str, str] = {}  # by their names and by those of their outputs
        for node in graph.node:
            name = node.name or node.output[0]  # as Farrier names it
            self._nodes |= dict.fromkeys((name, *node.output), name)

    def nodes(self, words: Iterable[str]) -> frozenset[str]:
        """The nodes that `words` stand for: the name of a node or of its output, as it is or with
        what peers append (`Conv_3_output_0_nchwc`, `MatMul_4/MatMulAddFusion`)."""
        forms = (
            form
            for word in words
            for form in (word, word.removesuffix("_nchwc"), word.rstrip("/").rpartition("/")[0])
        )
        return frozenset(self._nodes[form] for form in forms if form in self._nodes)


# The command -------------------------------------------------------------------------------------


def measure(source: Workload, threads: int, seconds: float, trials: int | None = None) -> list[Row]:
    """Compile a model and profile every engine that is installed, `seconds` each."""
    data = source.build()
    options = CompileOptions(shapes=source.shapes, threads=threads, trials=trials, verify=False)
    artifact = compile_model(data, options, name=source.name)
    inputs = random_inputs(artifact.manifest.inputs)
    steps = {"farrier": farrier_steps(artifact, threads, seconds)}
    artifact.session(threads).close()
    for peer, profiled in _PEERS.items():
        if not missing_packages(peer):
            steps[peer] = profiled(data, inputs, threads, seconds)
    return rows(steps)


def table(found: Sequence[Row], top: int) -> Table:
    made = Table(box=None)
    engines = ["farrier", *(peer for peer in _PEERS if any(peer in row.seconds for row in found))]
    for name in ("us: floor", *engines, "times"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("kernels", overflow="fold")
    rest = found[top:]
    for row in found[:top]:
        made.add_row(*_cells(row, engines), str(row.count), row.label)
    if rest:
        made.add_row(*_cells(_sum(rest), engines), "", f"{len(rest)} more rows")
    made.add_row(*_cells(_sum(found), engines), "", "all")
    return made


def _sum(found: Sequence[Row]) -> Row:
    engines = {engine for row in found for engine in row.seconds}
    seconds = {engine: sum(row.seconds.get(engine, 0.0) for row in found) for engine in engines}
    return Row("", 1, sum(row.floor_s for row in found), seconds)


def _cells(row: Row, engines: Sequence[str]) -> list[str]:
    times = [row.floor_s, *(row.seconds.get(engine, 0.0) for engine in engines)]
    return [f"{1e6 * seconds:.0f}" if seconds else "-" for seconds in times]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.layers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help=f"of {', '.join((*NAMES, *QUANTIZED))}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each engine")
    parser.add_argument("--trials", type=int, help="tune first, measuring so many candidates")
    parser.add_argument("--top", type=int, default=25, help="rows of the table")
    parser.add_argument("--json", type=Path, help="write every row to this file")
    arguments = parser.parse_args()
    console = open_console()
    try:
        source = workload(arguments.model)
        found = measure(source, arguments.threads, arguments.seconds, arguments.trials)
    except FarrierError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return error.exit_code
    console.print(table(found, arguments.top))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([dataclasses.asdict(row) for row in found], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
