"""Rebuild a variant of a model from the schedules that are stored in an artifact."""

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
    prepared: Graph, settings: Settings, schedules: Schedules, reports: Sequence[KernelReport]
) -> Variant:
    """Return the variant with the algorithms and schedules that an artifact contains for one form
    of the model. If this version of Farrier does not have the schedule of a kernel, the kernel's
    default is used."""
    algorithms = {key: Algorithm(way) for key, way in schedules.algorithms.items()}
    default = make_variant(prepared, dataclasses.replace(settings, algorithms=algorithms))
    reports_by_task: Mapping[str, KernelReport] = {report.task: report for report in reports}
    choices = dict(default.choices)
    for key, decisions in schedules.decisions.items():
        own, report = choices.get(key), reports_by_task.get(key)
        if own is None or not own.space.contains(decisions):
            continue
        choices[key] = dataclasses.replace(own, decisions=dict(decisions))
        if report is not None:
            us = report.measured_us
            choices[key] = dataclasses.replace(
                choices[key], source=report.source, measured_s=None if us is None else us / 1e6
            )
    return dataclasses.replace(default, choices=choices)
