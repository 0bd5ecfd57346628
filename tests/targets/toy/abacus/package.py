"""A model is placed in the two spaces, and its driver is a program for the interpreter."""

from __future__ import annotations

import dataclasses
import json

from abacus.devices import FRAME
from abacus.program import KIND, joined, written
from farrier.artifact.code import CodeObject, ModelCode
from farrier.ir.types import DType
from farrier.partition.model_plan import ModelPlan
from farrier.partition.placement import Site, place
from farrier.targets.linked import LinkedModel
from farrier_device.program import program_to_json

ENTRY = "count"
PATH = "code/beads.json"


@dataclasses.dataclass(frozen=True)
class Plan(ModelPlan):
    """A plan for the table alone, where models are measured, with the plan for both spaces."""

    placed: ModelPlan | None = None

    def measured_entry(self, target, name):
        return _object(self, name)


def plan(program, kernels, target, threads):
    """Return the plan of a model; kernels of floats alone run on the frame."""

    def site_of(call):
        floats = all(param.dtype is DType.F32 for param in kernels[call.task].params)
        return Site(FRAME if floats else "host")

    placed = place(program, site_of)
    whole = Plan.of(program, kernels, threads)
    alignments = {space.name: space.alignment for space in target.spaces}
    placed = ModelPlan.of(placed, kernels, threads, alignments=alignments)
    return dataclasses.replace(whole, placed=placed)


def assemble(planned, objects):
    """Return the library of a model. Code for single sizes would be the same as that for all."""
    placed = planned.placed
    program, checks = placed.executable()
    kernels, whole = (joined([*objects, *rest]) for rest in ((), (_object(placed, ENTRY),)))
    names = tuple(json.loads(kernels)["kernels"])
    most = placed.memory.most_bytes
    part = {"workspace": most if isinstance(most, int) else str(most)}
    return LinkedModel(
        code=ModelCode((CodeObject(PATH, KIND, names, kernels),), part, program),
        library=CodeObject(PATH, KIND, (ENTRY,), whole),
        params=placed.arena.pack(),
        bytes_of=placed.arena.bytes_of,
        memories=(placed.memory,),
        dims=placed.dims,
        capacities=placed.capacities,
        counted=placed.counted,
        checks=checks,
        sizes=placed.sizes,
        calls=placed.calls,
        entries=(ENTRY,),
        driver=placed.program,
    )


def _object(planned, name):
    program, _ = planned.executable()
    return written((), {name: program_to_json(program)})
