"""Create the listing of an artifact's kernels: the operators, time and code of each."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from farrier.compile_pool import BuildInput, lower
from farrier.compile_pool.choose import ScheduledTask
from farrier.frontends.inspection import names_of, shown_extent
from farrier.frontends.onnx.model.file import Model
from farrier.ir.dim import typical
from farrier.ir.graph import Value
from farrier.ir.printer import print_ir
from farrier.listing import archive
from farrier.listing.rebuild import Rebuilt, rebuild
from farrier.model_tuning.compare import total
from farrier.model_tuning.variant import Variant
from farrier.options import CompileOptions
from farrier.partition.program import Call, DriverProgram, Repeat, steps_in
from farrier.runtime.artifact import Artifact
from farrier.targets import Target
from farrier.targets.scheduling import Peaks

_MOST = 10_000  # The most kernels, and calls in the graph.
_MOST_EDGES = 40_000
_LONGEST = 200  # The most characters of a name.


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """A listing as JSON types, and the `texts` of each kernel, compressed (`archive.packed`)."""

    document: Mapping[str, Any]
    texts: Sequence[bytes]

    def write(self, file: IO[bytes]) -> None:
        archive.write(file, self.document, self.texts)


def list_kernels(
    model: Model,
    options: CompileOptions,
    artifact: Artifact,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Listing:
    """Return the listing of an artifact that was compiled from `model` with `options`. `progress`
    is called with the numbers of finished and of all kernels. Raises FarrierError."""

    def texts(variants: tuple[Variant, ...]) -> list[bytes]:
        listed, choices = [], _choices(variants)
        target = variants[0].settings.target
        for number, choice in enumerate(choices.values()):
            progress(number, len(choices))
            listed.append(archive.packed(_texts(choice, target)))
        return listed

    gc_was_enabled = gc.isenabled()
    gc.disable()  # IR consists of trees, and a search for cycles in them takes a sixth of the time.
    try:
        rebuilt, packed = rebuild(model, options, artifact, texts)
    finally:
        if gc_was_enabled:
            gc.enable()
    return Listing(_document(rebuilt), packed)


def _choices(variants: Sequence[Variant]) -> dict[str, ScheduledTask]:
    """Return the kernels of all variants with their schedules, by key. If several variants have the
    same kernel, the schedule is taken from the first of them; variants for hot sizes come before
    the general variant."""
    general, *hot = variants
    ordered = [*hot, general]
    choices: dict[str, ScheduledTask] = {}
    for variant in ordered:
        for key, choice in variant.choices.items():
            choices.setdefault(key, choice)
    return dict(list(choices.items())[:_MOST])


def _texts(choice: ScheduledTask, target: Target) -> dict[str, str]:
    function = lower(BuildInput.of(choice), target)
    machine = target.part(choice.site.space)
    code = machine.backend.texts(function, machine)
    return {
        "schedule": choice.space.trace(choice.decisions),
        "loops": print_ir(function),
        "llvm": code.llvm,
        "assembly": code.assembly,
        "timeline": code.timeline,
    }


def _document(rebuilt: Rebuilt) -> dict[str, Any]:
    shown, settings = rebuilt.shown, rebuilt.shown.settings
    target = settings.target
    peaks = target.backend.peaks(target, settings.threads)
    names = names_of(rebuilt.imported.dims)
    choices = _choices(rebuilt.variants)
    numbers = {key: number for number, key in enumerate(choices)}
    first: dict[str, Call] = {}
    for variant in (shown, *rebuilt.variants):
        for call in variant.calls:
            first.setdefault(call.task, call)
    whole = sum(map(total, shown.choices.values())) or 1.0
    kernels = []
    for key, number in numbers.items():
        own = shown.choices.get(key)
        calls = 0 if own is None else own.calls
        share = 0.0 if own is None else total(own) / whole
        kernels.append(_kernel(number, choices[key], first.get(key), calls, share, peaks))
    return {
        "is_same": rebuilt.is_same,
        "target": _named(f"{target.cpu}, {settings.threads} threads"),
        "sizes": {dim.name: dim.typical * dim.step for dim in rebuilt.imported.dims[:1000]},
        "kernels": kernels,
        "graph": _graph(rebuilt, numbers, names),
    }


def _kernel(
    number: int,
    choice: ScheduledTask,
    call: Call | None,
    calls: int,
    share: float,
    peaks: Peaks,
) -> dict[str, Any]:
    report = choice.report()
    us = report.predicted_us if report.measured_us is None else report.measured_us
    moved = 0 if call is None else sum(_bytes(value) for value in (*call.inputs, *call.outputs))
    operations = report.operations
    return {
        "id": number,
        "task": report.task,
        "name": _named(report.name),
        "symbol": _named(choice.task.symbol),
        "rule": report.rule,
        "source": report.source,
        "decisions": dict(choice.decisions),
        "origin": "" if call is None else _named(call.origin),
        "calls": calls,
        "share": share,
        "slow": choice.slow_reason or "",
        "us": us,
        "predicted_us": report.predicted_us,
        "measured_us": report.measured_us,
        "flops": operations,
        "bytes": moved,
        "roofline": {
            "peak_gflops": peaks.operations / 1e9,
            "bandwidth_gbs": peaks.bandwidth / 1e9,
            "intensity": operations / moved if moved else 0.0,
            "achieved_gflops": operations / us / 1e3 if us else 0.0,
        },
    }


def _bytes(value: Value) -> int:
    return typical(value.type.nbytes)


def _graph(
    rebuilt: Rebuilt, numbers: Mapping[str, int], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the graph of the kernel calls of the variant that the listing shows. Its nodes are the
    inputs, the calls in the order of execution, and the outputs. An edge leads from each writer of
    a buffer to each reader."""
    program = rebuilt.shown.program
    buffers = _Buffers(program)
    nodes: list[dict[str, Any]] = []
    edges: dict[tuple[int, int], None] = {}

    def add(
        kernel: int | None, op: str, name: str, value: Value | None, reads: Sequence[Value]
    ) -> int:
        at = len(nodes)
        for read in reads:
            for writer in buffers.writers(read):
                if writer != at and len(edges) < _MOST_EDGES:
                    edges[writer, at] = None
        nodes.append(
            {
                "id": at,
                "kernel": kernel,
                "op": op,
                "name": _named(name),
                "dtype": "" if value is None else str(value.type.dtype.value),
                "shape": []
                if value is None
                else [shown_extent(extent, names) for extent in value.type.shape],
            }
        )
        return at

    left_out = 0
    imported = rebuilt.imported
    for name, value in zip(imported.input_names, program.inputs, strict=False):
        buffers.write(value, add(None, "input", name, value, ()))
    for call in program.calls:
        if len(nodes) >= _MOST:
            left_out += 1
            continue
        op = _named(rebuilt.shown.choices[call.task].task.name)
        at = add(numbers.get(call.task), op, call.origin, call.outputs[0], call.inputs)
        for value in call.outputs:
            buffers.write(value, at)
    for name, value in zip(imported.output_names, program.outputs, strict=False):
        add(None, "output", name, value, (value,))
    return {"nodes": nodes, "edges": list(edges), "left_out": left_out}


class _Buffers:
    """The nodes of the graph that have written each buffer. A buffer has several writers if each of
    them writes a part."""

    def __init__(self, program: DriverProgram) -> None:
        self._program = program
        self._same: dict[str, str] = {}  # The values that a loop carries change places.
        self._writers: dict[str, dict[int, None]] = {}
        for name, other in _carried(program):
            self._same[self._root(name)] = self._root(other)

    def write(self, value: Value, node: int) -> None:
        self._writers.setdefault(self._buffer(value), {})[node] = None

    def writers(self, value: Value) -> Sequence[int]:
        return list(self._writers.get(self._buffer(value), ()))

    def _buffer(self, value: Value) -> str:
        return self._root(self._program.home(value).name)

    def _root(self, name: str) -> str:
        while name in self._same and self._same[name] != name:
            name = self._same[name]
        return name


def _carried(program: DriverProgram) -> Iterator[tuple[str, str]]:
    """Yield pairs of names of buffers that count as one buffer in the graph: a loop exchanges their
    contents after each iteration, or one of them is a slice of the other."""
    for step in steps_in(program.steps):
        if isinstance(step, Repeat):
            for carried in step.carried:
                homes = [
                    program.home(v).name for v in (carried.initial, carried.current, carried.next)
                ]
                yield homes[0], homes[1]
                yield homes[2], homes[1]
            for part in (*step.read, *step.written):
                yield program.home(part.slice).name, program.home(part.whole).name


def _named(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
