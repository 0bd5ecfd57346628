"""Train a cost model on many tasks' records, and say whether it is better than what there is.

A part of the tasks, by their hashes, is never learned from, by no version: on these all versions
compare. A model has to rank their candidates better than the analytic model does, and than each of
its rivals. Where there are several classes of devices, models that have seen all but one show what
a device of a new class may expect: no less than the analytic ranking.
"""

from __future__ import annotations

import collections
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence

from farrier.cost_model.figures import figures
from farrier.cost_model.model import ENOUGH, CostModel
from farrier.cost_model.samples import DefinitionError, Samples, samples_of
from farrier.records import TaskDefinition, TuningRecord
from farrier.records.outcome import SHOWN, Figures, Outcome, SetAside
from farrier.space.space import Floats

OF_A_TASK = 256  # candidates that are learned from, at most
_HELD_OUT = 4  # one of so many tasks
_CLASSES = 4  # that are left out in turn: those with the most candidates


class Training:
    """Collects what is to be learned, up to `most` candidates, then trains."""

    def __init__(self, most: int, seed: int = 0) -> None:
        self._most = most
        self._seed = seed
        self._seen: list[Samples] = []
        self._held_out: list[Samples] = []
        self._candidates = 0
        self._set_aside = 0
        self._shown: list[SetAside] = []
        self._damaged: dict[str, str] = {}

    @property
    def is_full(self) -> bool:
        return self._candidates >= self._most

    def add(self, definition: TaskDefinition, records: Iterable[TuningRecord]) -> None:
        """Take the records of a task; a definition of which no space can be made is noted."""
        most = min(OF_A_TASK, self._most - self._candidates)
        try:
            found, aside = samples_of(definition, records, most)
        except DefinitionError as error:
            if len(self._damaged) < SHOWN:
                self._damaged[definition.task] = str(error)
            return
        self._set_aside += len(aside)
        self._shown += aside[: SHOWN - len(self._shown)]
        self._candidates += sum(map(len, found))
        (self._held_out if is_held_out(definition.task) else self._seen).extend(found)

    def outcome(self, rivals: Mapping[str, CostModel]) -> tuple[Outcome, CostModel | None]:
        """Train, and compares with `rivals`, by what they are called: each of them is to be
        beaten. The model is None where it is not better."""
        records = sum(map(len, self._seen))
        model: CostModel | None = None
        of: dict[str, Figures] = {}
        unseen: dict[str, dict[str, Figures]] = {}
        reason = "there are too few measurements to learn from"
        if records >= ENOUGH:
            trained = _trained(self._seen, self._seed)
            of = _compared(self._held_out, {"trained": trained, "analytic": None, **rivals})
            unseen = self._unseen()
            reason = _objection(of, unseen)
            if not reason:
                model = trained
                reason = f"it has {of['trained']} on tasks that no version has seen"
        outcome = Outcome(
            is_better=model is not None,
            reason=reason,
            of=of,
            unseen=unseen,
            records=records,
            tasks=len({samples.task for samples in self._seen}),
            held_out=len({samples.task for samples in self._held_out}),
            set_aside=self._set_aside,
            shown=self._shown,
            damaged=self._damaged,
        )
        return outcome, model

    def _unseen(self) -> dict[str, dict[str, Figures]]:
        """Figures by class of models that have seen the others alone."""
        counts: collections.Counter[str] = collections.Counter()
        for samples in self._seen:
            counts[samples.device_class] += len(samples)
        found = {}
        for left_out, _ in counts.most_common(_CLASSES) if len(counts) > 1 else ():
            others = [one for one in self._seen if one.device_class != left_out]
            its_own = [one for one in self._held_out if one.device_class == left_out]
            model = _trained(others, self._seed)
            if compared := _compared(its_own, {"trained": model, "analytic": None}):
                found[left_out] = compared
        return found


def is_held_out(task: str) -> bool:
    """Whether no version learns from a task."""
    return int(hashlib.sha256(task.encode()).hexdigest()[:8], 16) % _HELD_OUT == 0


def _trained(samples: Sequence[Samples], seed: int) -> CostModel:
    model = CostModel(seed)
    for number, one in enumerate(samples):
        model.add(str(number), one.features, one.analytic, one.seconds)
    model.fit()
    return model


def _compared(
    held_out: Sequence[Samples], rankings: Mapping[str, CostModel | None]
) -> dict[str, Figures]:
    """The figures of each ranking, the analytic one's where there is no model; none at all where
    nothing can be compared."""
    found = {}
    for name, model in rankings.items():
        one = figures(functools.partial(_predicted, model), held_out)
        if one is not None:
            found[name] = one
    return found


def _predicted(model: CostModel | None, samples: Samples) -> Floats:
    if model is None:
        return samples.analytic
    return model.predict(samples.features, samples.analytic)


def _objection(of: Mapping[str, Figures], unseen: Mapping[str, Mapping[str, Figures]]) -> str:
    """Why what was trained is not to be used; "" where nothing is against it."""
    if "trained" not in of:
        return "none of the tasks that are held out has candidates to compare by"
    mine = of["trained"]
    for name, other in of.items():
        if name != "trained" and not mine.leads(other):
            return f"it is not better than {name}: {mine}, against {other}"
    for device_class, each in unseen.items():
        if not each["trained"].holds_with(each["analytic"]):
            return (
                f"one that has not seen devices of class {device_class} ranks worse there than "
                f"analytic: {each['trained']}, against {each['analytic']}"
            )
    return ""
