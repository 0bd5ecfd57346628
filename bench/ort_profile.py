"""Read ONNX Runtime's own profile: the time of each node, and the memory of its arena."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

_SUFFIX = "_kernel_time"
_LEAST_RUNS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node of the optimized graph, with the microseconds of each of its runs."""

    name: str
    op: str
    outputs: tuple[str, ...]
    samples_us: tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """A profile: `nodes` in the order of execution, and the arena's maximum of requested bytes and
    of bytes obtained from the system, both without the packed weights that existed before the first
    run."""

    nodes: tuple[Node, ...]
    requested_bytes: int
    held_bytes: int


def run(
    data: bytes, inputs: Mapping[str, npt.NDArray[Any]], threads: int, seconds: float
) -> Profile:
    """Run a model repeatedly for about `seconds`, with open dims fixed to the inputs' shapes, and
    return its profile."""
    import onnxruntime as ort

    from farrier_device.baseline.engines.onnxruntime import symbols

    with tempfile.TemporaryDirectory(prefix="farrier-ort-") as name:
        folder = Path(name)
        options = ort.SessionOptions()
        options.log_severity_level = 4  # It warns about saving optimized graphs.
        options.intra_op_num_threads = threads
        plain = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        for dim, size in symbols(plain, dict(inputs)).items():
            options.add_free_dimension_override_by_name(dim, size)
        del plain
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        options.optimized_model_filepath = str(folder / "optimized.onnx")
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        session.run(None, inputs)
        repeat(lambda: session.run(None, inputs), seconds)
        events = json.loads(Path(session.end_profiling()).read_text())
        optimized = onnx.load(folder / "optimized.onnx", load_external_data=False)
    outputs = {node.name: tuple(node.output) for node in optimized.graph.node}
    samples: dict[str, list[float]] = {}
    ops: dict[str, str] = {}
    requested: list[int] = []
    held: list[int] = []
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith(_SUFFIX):
            node, facts = event["name"].removesuffix(_SUFFIX), event["args"]
            samples.setdefault(node, []).append(event["dur"])
            ops[node] = facts["op_name"]
            for figures, total, delta in (
                (requested, "mem_bytes_requested_in_use", "mem_requested_in_use_delta"),
                (held, "mem_arena_held", "mem_arena_held_delta"),
            ):
                if not figures:  # The first node's memory existed before it.
                    figures.append(int(facts[total]) - int(facts[delta]))
                figures.append(int(facts[total]))
    nodes = tuple(
        Node(name, ops[name], outputs.get(name, ()), tuple(times[1:]))
        for name, times in samples.items()
    )
    return Profile(nodes, max(requested) - requested[0], max(held) - held[0])


def repeat(action: Callable[[], Any], seconds: float) -> None:
    """Call `action` repeatedly for `seconds`, but at least `_LEAST_RUNS` times."""
    end, count = time.perf_counter() + seconds, 0
    while count < _LEAST_RUNS or time.perf_counter() < end:
        action()
        count += 1
