"""A variant of the model once more, from what an artifact tells of its schedules."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier.artifact.manifest import KernelReport
from farrier.artifact.schedules import Schedules
from farrier.ir.graph import Graph
from farrier.model_tuning.variant import Variant, make_variant
from farrier.passes import Settings
from farrier.passes.algorithm import Algorithm


def variant_from_artifact(
    prepared: Graph, settings: Settings, given: Schedules, reports: Sequence[KernelReport]
) -> Variant:
    """One form of the model, with the algorithms and schedules that it was given; those that this
    version of Farrier does not know are as they are without measuring."""
    algorithms = {key: Algorithm(way) for key, way in given.algorithms.items()}
    default = make_variant(prepared, dataclasses.replace(settings, algorithms=algorithms))
    told: Mapping[str, KernelReport] = {report.task: report for report in reports}
    choices = dict(default.choices)
    for key, decisions in given.decisions.items():
        own, report = choices.get(key), told.get(key)
        if own is None or not own.space.contains(decisions):
            continue
        choices[key] = dataclasses.replace(own, decisions=dict(decisions))
        if report is not None:
            us = report.measured_us
            choices[key] = dataclasses.replace(
                choices[key], source=report.source, measured_s=None if us is None else us / 1e6
            )
    return dataclasses.replace(default, choices=choices)
