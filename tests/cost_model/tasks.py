"""Real tasks, matrix products of many sizes, and records of them whose times follow a law."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from onnx import helper, numpy_helper

from farrier.compile_pool.choose import default_schedules
from farrier.cost_model.samples import space_of
from farrier.frontends.onnx.importer import import_model
from farrier.partition import extract_tasks
from farrier.passes import Settings, optimize
from farrier.progress import ignore
from farrier.records import TaskDefinition, TuningRecord
from farrier.space import Space
from farrier.targets import Target, parse_target
from farrier_device.measurement import CandidateResult, Status

THREADS = 1
MACHINES = ("x86-64-v3", "x86-64-v4")
# A function of analytic seconds and decisions that returns seconds.
Law = Callable[[float, dict[str, int]], float]


def target_of(machine: str) -> Target:
    return parse_target(machine)


@functools.cache
def definitions(machine: str = MACHINES[0], count: int = 48) -> tuple[TaskDefinition, ...]:
    """Return the definitions of products of distinct sizes."""
    nodes, inputs, outputs, weights = [], [], [], []
    rng = np.random.default_rng(0)
    for n in range(count):
        rows, depth, columns = 8 + 4 * (n % 5), 32 + 16 * n, 64 + 32 * (n % 7)
        array = rng.standard_normal((depth, columns)).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"w{n}"))
        inputs.append(helper.make_tensor_value_info(f"x{n}", 1, [rows, depth]))
        outputs.append(helper.make_tensor_value_info(f"y{n}", 1, [rows, columns]))
        nodes.append(helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"y{n}"]))
    graph = helper.make_graph(nodes, "products", inputs, outputs, weights)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    imported = import_model(model.SerializeToString(), {}, ())
    target = target_of(machine)
    tasks, program = extract_tasks(optimize(imported.graph, Settings(target, THREADS)))
    choices = default_schedules(tasks, program.calls, target, THREADS, ignore)
    collected = [choice.definition(target, THREADS) for choice in choices.values()]
    assert len(collected) == count
    return tuple(definition for definition in collected if definition is not None)


@functools.cache
def space(definition: TaskDefinition) -> Space:
    return space_of(definition).built_in


def records(
    definition: TaskDefinition, law: Law, device_class: str = "c1", count: int = 24, seed: int = 0
) -> list[TuningRecord]:
    """Return records of random candidates."""
    its = space(definition)
    rows = its.candidates()
    rng = np.random.default_rng(seed)
    picked = rows[rng.permutation(len(rows))[:count]]
    collected = []
    for number, (row, analytic) in enumerate(zip(picked, its.cost(picked), strict=True)):
        decisions = its.decisions(row)
        nanoseconds = max(1, round(law(float(analytic), decisions) * 1e9))
        result = CandidateResult(Status.OK, (nanoseconds,) * 3)
        record = TuningRecord.of(
            its.rule,
            decisions,
            result,
            task=definition.task,
            fingerprint=definition.fingerprint,
            threads=definition.threads,
        )
        where = {"device_class": device_class, "device": f"{device_class}-1"}
        collected.append(dataclasses.replace(record, created=float(number), **where))
    return collected


def as_said(analytic: float, decisions: dict[str, int]) -> float:
    """The analytic model is right."""
    return analytic


def unlike(analytic: float, decisions: dict[str, int]) -> float:
    """It is wrong by what one of the knobs decides."""
    return analytic * (1.0 + 2.0 * (decisions["vectors"] == 1) + 0.5 * (decisions["rows"] > 4))
