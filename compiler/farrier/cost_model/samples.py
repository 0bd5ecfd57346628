"""The training data of a cost model: a task's records as arrays, in the space that the task's
definition describes.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence

import numpy as np

from farrier.cost_model.plausible import outliers
from farrier.ir.loop import Function
from farrier.ir.parser import parse_ir
from farrier.ir.tensor import TensorProgram
from farrier.records import Context, TaskDefinition, TuningRecord, latest
from farrier.records.outcome import SetAside
from farrier.space import Features, Space
from farrier.space.space import Floats
from farrier.targets import read_target
from farrier.targets.siting import site_of


@dataclasses.dataclass(frozen=True, slots=True)
class Samples:
    """Candidates of a task, each measured alone on a device of one class: their features, the
    analytic model's seconds, and the measured seconds, infinite for a failure."""

    task: str
    device_class: str
    features: Features
    analytic: Floats
    seconds: Floats

    def __len__(self) -> int:
        return len(self.seconds)


class DefinitionError(ValueError):
    """An error: no space can be built from a task definition; the message contains the reason."""


def space_of(definition: TaskDefinition) -> Space:
    """Return the space of a definition's records. Raises DefinitionError, because a third party's
    process may have written the definition."""
    try:
        target = read_target(json.loads(definition.target))
        program = parse_ir(definition.program)
        if not isinstance(program, TensorProgram | Function):
            raise DefinitionError("its program is a graph")
        if target.fingerprint != definition.fingerprint:
            raise DefinitionError("its target is another one")
        machine = target.part(site_of(program, target).space)
        return machine.backend.space(program, machine, definition.threads)
    except DefinitionError:
        raise
    except Exception as error:
        said = str(error) or type(error).__name__
        raise DefinitionError(said if len(said) <= 300 else f"{said[:300]}…") from error


def samples_of(
    definition: TaskDefinition, records: Iterable[TuningRecord], most: int
) -> tuple[list[Samples], list[SetAside]]:
    """Return the samples of a task for each class of devices, made from the newest record of each
    schedule, at most `most` in total; and the records that are set aside. Raises DefinitionError.
    """
    space = space_of(definition)
    by_class: dict[str, list[TuningRecord]] = {}
    for record in records:
        if _is_usable(record, definition, space):
            by_class.setdefault(record.device_class, []).append(record)
    samples, aside = [], []
    for device_class, of_class in sorted(by_class.items()):
        if most <= 0:
            break
        kept, doubted = _believed(space, of_class, definition.threads)
        aside += doubted
        newest = sorted(latest(kept).values(), key=lambda record: record.created)[-most:]
        most -= len(newest)
        if newest:
            rows = np.stack([space.row(record.knobs) for record in newest])
            seconds = np.array([record.seconds for record in newest])
            samples.append(
                Samples(definition.task, device_class, *space.described(rows), seconds=seconds)
            )
    return samples, aside


def _is_usable(record: TuningRecord, definition: TaskDefinition, space: Space) -> bool:
    return (
        record.context is Context.ALONE
        and (record.task, record.fingerprint) == (definition.task, definition.fingerprint)
        and record.threads == definition.threads
        and record.made_by in space.rules
        and space.contains(record.knobs)
    )


def _believed(
    space: Space, records: Sequence[TuningRecord], threads: int
) -> tuple[list[TuningRecord], list[SetAside]]:
    """Split the records of one device class into two lists. The model learns from the first; the
    second is set aside, because `outliers` considers its times implausible."""
    rows = np.stack([space.row(record.knobs) for record in records])
    seconds = np.array([record.seconds for record in records])
    kept, aside = [], []
    reasons = outliers(rows, seconds, space.bounds(rows) / threads)
    for record, reason in zip(records, reasons, strict=True):
        if reason:
            where = record.device_class, record.device
            aside.append(SetAside(record.task, record.rule, record.decisions, *where, reason))
        else:
            kept.append(record)
    return kept, aside
