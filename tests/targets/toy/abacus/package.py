"""A model is placed in the two spaces, and measured on the table alone."""

from __future__ import annotations

import dataclasses

from farrier.partition.model_plan import ModelPlan
from farrier.targets.driven import package


@dataclasses.dataclass(frozen=True)
class Plan(package.Plan):
    """A plan for the table alone, where models are measured, with the plan for both spaces."""

    placed: package.Plan | None = None

    def parts(self, name):
        return ModelPlan.parts(self, name)  # The table calls kernels, as a processor does.


def plan(program, kernels, target, threads):
    """Return the plan of a model."""
    on_table = {key: dataclasses.replace(each, space="host") for key, each in kernels.items()}
    whole = ModelPlan.of(program, on_table, threads)
    placed = package.plan(program, kernels, target, threads, None)
    fields = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
    return Plan(**fields, placed=placed)
