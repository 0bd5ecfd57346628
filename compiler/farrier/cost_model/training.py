"""Train a cost model on the records of many tasks, and decide whether it is better than the current
one.

A fixed part of the tasks, selected by hash, is never trained on by any version, so all versions are
compared on these tasks. A new model has to rank their candidates better than the analytic model and
each rival model. If there are several classes of devices, models trained without one class show how
the model would do on a device of a new class: not worse than the analytic ranking.
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

OF_A_TASK = 256  # The most candidates of one task.
_HELD_OUT = 4  # One of 4 tasks is held out.
_CLASSES = 4  # The number of classes that are left out in turn: the ones with the most candidates.


class Training:
    """A collection of samples of at most `most` candidates, on which a model is then trained."""

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
        """Add the records of a task; a definition from which no space can be built is recorded as
        damaged."""
        most = min(OF_A_TASK, self._most - self._candidates)
        try:
            samples, aside = samples_of(definition, records, most)
        except DefinitionError as error:
            if len(self._damaged) < SHOWN:
                self._damaged[definition.task] = str(error)
            return
        self._set_aside += len(aside)
        self._shown += aside[: SHOWN - len(self._shown)]
        self._candidates += sum(map(len, samples))
        (self._held_out if is_held_out(definition.task) else self._seen).extend(samples)

    def outcome(self, rivals: Mapping[str, CostModel]) -> tuple[Outcome, CostModel | None]:
        """Train a model, and compare it with the existing models `rivals`, by name. Return the
        outcome, and the trained model, or None unless it beats each of them."""
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
        """Return, by device class, the evaluation of a model trained only on the other classes."""
        counts: collections.Counter[str] = collections.Counter()
        for samples in self._seen:
            counts[samples.device_class] += len(samples)
        by_class = {}
        for left_out, _ in counts.most_common(_CLASSES) if len(counts) > 1 else ():
            others = [samples for samples in self._seen if samples.device_class != left_out]
            its_own = [samples for samples in self._held_out if samples.device_class == left_out]
            model = _trained(others, self._seed)
            if compared := _compared(its_own, {"trained": model, "analytic": None}):
                by_class[left_out] = compared
        return by_class


def is_held_out(task: str) -> bool:
    """Check whether a task is excluded from the training of all versions."""
    return int(hashlib.sha256(task.encode()).hexdigest()[:8], 16) % _HELD_OUT == 0


def _trained(samples: Sequence[Samples], seed: int) -> CostModel:
    model = CostModel(seed)
    for number, of_task in enumerate(samples):
        model.add(str(number), of_task.features, of_task.analytic, of_task.seconds)
    model.fit()
    return model


def _compared(
    held_out: Sequence[Samples], rankings: Mapping[str, CostModel | None]
) -> dict[str, Figures]:
    """Return the evaluation of each ranking on the held-out tasks; a ranking without a model is the
    analytic one. Empty if nothing can be compared."""
    compared = {}
    for name, model in rankings.items():
        of_ranking = figures(functools.partial(_predicted, model), held_out)
        if of_ranking is not None:
            compared[name] = of_ranking
    return compared


def _predicted(model: CostModel | None, samples: Samples) -> Floats:
    if model is None:
        return samples.analytic
    return model.predict(samples.features, samples.analytic)


def _objection(of: Mapping[str, Figures], unseen: Mapping[str, Mapping[str, Figures]]) -> str:
    """Return the reason not to use the trained model; "" if there is none."""
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
