"""`python -m bench.layers MODEL`: a lower bound, Farrier's time and other engines' times, layer by
layer.

Each engine's own profiler measures its steps: Farrier's kernels run one by one on the memory of the
entire model, ONNX Runtime writes a profile, OpenVINO has counters. Steps of different engines are
matched by the nodes of the model that they name. Steps that share a node are in the same row, since
engines fuse differently. A step without nodes, such as a change of layout, is added to the next
step with nodes. Rows with the same kernels are summed; a row without a kernel is a layer that
Farrier computes in another row's kernel.

The lower bound is the greater of operations / peak rate and bytes / bandwidth, for the operations
of Farrier's algorithms (for example Winograd's products instead of the direct sum's) and cold
memory. Times are medians, in microseconds.
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
    """A step of an engine: the `nodes` of the model that it computes, and its own name,
    `kernel`."""

    kernel: str
    nodes: frozenset[str]
    seconds: float
    floor_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: the layers for which Farrier runs the same kernels, with the sum of
    seconds by engine."""

    label: str
    count: int
    floor_s: float
    seconds: Mapping[str, float]


def rows(steps: Mapping[str, Sequence[Step]]) -> list[Row]:
    """Match the engines' steps to rows. `steps` are by engine, including `farrier`, in the order of
    execution. The rows with Farrier's longest times come first."""
    merged: dict[str, list[list[tuple[str, Step]]]] = {}
    for group in _groups({engine: _attached(of_engine) for engine, of_engine in steps.items()}):
        kernels = sorted({step.kernel for engine, step in group if engine == "farrier"})
        merged.setdefault(", ".join(kernels) or _elsewhere(group), []).append(group)
    merged_rows = []
    for label, groups in merged.items():
        seconds: dict[str, float] = collections.defaultdict(float)
        for engine, step in (pair for group in groups for pair in group):
            seconds[engine] += step.seconds
        floor = sum(step.floor_s for group in groups for _, step in group)
        merged_rows.append(Row(label, len(groups), floor, dict(seconds)))
    return sorted(merged_rows, key=lambda row: -row.seconds.get("farrier", 0.0))


def _attached(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that have nodes, each with the time of preceding steps without nodes
    added."""
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
    """Return the connected components of the steps, where two steps are connected if they share a
    node."""
    every = [(engine, step) for engine, of_engine in steps.items() for step in of_engine]
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
    for at, pair in enumerate(every):
        groups[leader(at)].append(pair)
    return list(groups.values())


def _elsewhere(group: Iterable[tuple[str, Step]]) -> str:
    return "no kernel: " + ", ".join(sorted({step.kernel for _, step in group}))


# What each engine's profiler says ----------------------------------------------------------------


def farrier_steps(artifact: Artifact, threads: int, seconds: float) -> list[Step]:
    """Return the steps that `farrier profile` measures, in any order, because every kernel names
    its nodes."""
    profiled = profile(artifact, threads=threads, seconds=seconds, by_call=True)
    return [
        Step(kernel.name, frozenset(kernel.origin.split(",")), kernel.seconds, kernel.floor_s)
        for kernel in profiled.kernels
    ]


def onnxruntime_steps(data: bytes, inputs: Arrays, threads: int, seconds: float) -> list[Step]:
    """Return the steps of ONNX Runtime's profile. They are matched with the model's nodes by names
    of nodes and outputs, since a fused node keeps the name of a value or node that it replaces."""
    names = _Names(data)
    return [
        Step(
            node.op,
            names.nodes((node.name, *node.outputs)),
            statistics.median(node.samples_us) / 1e6,
        )
        for node in ort_profile.run(data, inputs, threads, seconds).nodes
    ]


def openvino_steps(data: bytes, inputs: Arrays, threads: int, seconds: float) -> list[Step]:
    """Return the steps of OpenVINO's performance counters; its runtime graph names the layers that
    a step fuses."""
    import openvino as ov

    names = _Names(data)
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
            names.nodes(origins.get(name, "").split(",")),
            statistics.median(times),
        )
        for name, times in samples.items()
    ]


_PEERS: dict[str, Callable[[bytes, Arrays, int, float], list[Step]]] = {
    "onnxruntime": onnxruntime_steps,
    "openvino": openvino_steps,
}


class _Names:
    """An index of the model's nodes by the names that other engines use for them."""

    def __init__(self, data: bytes) -> None:
        graph = onnx.load_from_string(data).graph
        self._nodes: dict[str, str] = {}  # Nodes by their own names and by those of their outputs.
        for node in graph.node:
            name = node.name or node.output[0]  # Farrier uses the same name.
            self._nodes |= dict.fromkeys((name, *node.output), name)

    def nodes(self, words: Iterable[str]) -> frozenset[str]:
        """Return the nodes that any of `words` names: by node or output name, unchanged or with a
        suffix that an engine adds (`Conv_3_output_0_nchwc`, `MatMul_4/MatMulAddFusion`)."""
        forms = (
            form
            for word in words
            for form in (word, word.removesuffix("_nchwc"), word.rstrip("/").rpartition("/")[0])
        )
        return frozenset(self._nodes[form] for form in forms if form in self._nodes)


# The command -------------------------------------------------------------------------------------


def measure(source: Workload, threads: int, seconds: float, trials: int | None = None) -> list[Row]:
    """Compile a model, and profile it with every installed engine for `seconds` each."""
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


def table(measured: Sequence[Row], top: int) -> Table:
    rendered = Table(box=None)
    engines = [
        "farrier",
        *(peer for peer in _PEERS if any(peer in row.seconds for row in measured)),
    ]
    for name in ("us: floor", *engines, "times"):
        rendered.add_column(name, justify="right", no_wrap=True)
    rendered.add_column("kernels", overflow="fold")
    rest = measured[top:]
    for row in measured[:top]:
        rendered.add_row(*_cells(row, engines), str(row.count), row.label)
    if rest:
        rendered.add_row(*_cells(_sum(rest), engines), "", f"{len(rest)} more rows")
    rendered.add_row(*_cells(_sum(measured), engines), "", "all")
    return rendered


def _sum(measured: Sequence[Row]) -> Row:
    engines = {engine for row in measured for engine in row.seconds}
    seconds = {engine: sum(row.seconds.get(engine, 0.0) for row in measured) for engine in engines}
    return Row("", 1, sum(row.floor_s for row in measured), seconds)


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
        measured = measure(source, arguments.threads, arguments.seconds, arguments.trials)
    except FarrierError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return error.exit_code
    console.print(table(measured, arguments.top))
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps([dataclasses.asdict(row) for row in measured], indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
