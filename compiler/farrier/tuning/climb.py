"""The last of tuning: from the schedules that won in the model to their neighbours, in the model.

One run of a variant measures a candidate of every kernel at once, where it stands, so this finds
more in a second than measuring kernels alone, which it cannot replace: what runs in the model is
not compared with a reference. So what wins is, alone, before it is taken.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

import numpy as np

from farrier.choose import Choice
from farrier.errors import CompilerError
from farrier.ir.graph import Graph
from farrier.progress import Listener, Warned
from farrier.records import Context, MemoryRecords, RecordStore
from farrier.records.record import pairs
from farrier.search import Measurer
from farrier.search.trial import DeviceFaultError
from farrier.tuning.compare import Comparison, ComparisonError
from farrier.tuning.finals import Decisions, Finals
from farrier.tuning.variant import Variant

_NEIGHBOURS = 8  # of each kernel, a round
_VARIANT_S = 0.5  # to measure a variant for
_FIRST_ROUND_S = 15.0  # what a round may take, until one has shown it
_WORTH = 0.002  # of the model's time: what a round must bring for another one


class Climb:
    """Rounds of neighbours, from a variant whose schedules were measured in the model."""

    def __init__(
        self,
        prepared: Graph,
        comparison: Comparison,
        measurer: Measurer,
        records: RecordStore,
        seed: int,
    ) -> None:
        self._prepared = prepared
        self._comparison = comparison
        self._measurer = measurer
        self._records = records
        self._seed = seed
        self._seen: dict[str, set[tuple[tuple[str, int], ...]]] = {}

    def run(self, variant: Variant, deadline: float, listener: Listener) -> Variant:
        """The best that was found by `deadline` (of the monotonic clock), or before the rounds
        stopped being worth their time."""
        round_s = _FIRST_ROUND_S
        while (begin := time.monotonic()) + round_s <= deadline:
            tried = {key: self._tried(key, choice) for key, choice in variant.choices.items()}
            if max(map(len, tried.values()), default=1) == 1:
                break
            found = MemoryRecords()
            finals = Finals(self._prepared, [variant], tried, found, self._seed)
            self._comparison.forget()
            try:
                best = self._checked(variant, finals.run(self._comparison, _VARIANT_S, listener))
            except (ComparisonError, CompilerError, DeviceFaultError) as error:
                listener(Warned(f"the search in the model ends early: {error}"))
                break
            gain = self._keep(variant, best, found)
            variant = best
            if gain < _WORTH:
                break
            round_s = time.monotonic() - begin
        return variant

    def _tried(self, key: str, choice: Choice) -> Sequence[Decisions]:
        """The kernel's schedule, and its best neighbours by the analytic model that are new."""
        seen = self._seen.setdefault(key, {pairs(choice.decisions)})
        rows = choice.space.neighbours(choice.space.row(choice.decisions))
        tried = [dict(choice.decisions)]
        for row in rows[np.argsort(choice.space.cost(rows), kind="stable")]:
            decisions = choice.space.decisions(row)
            if len(tried) <= _NEIGHBOURS and pairs(decisions) not in seen:
                seen.add(pairs(decisions))
                if _can_be_scheduled(choice, decisions):
                    tried.append(decisions)
        return tried

    def _checked(self, before: Variant, after: Variant) -> Variant:
        """`after` with the old schedule of each kernel whose new one is not right alone."""
        choices: dict[str, Choice] = {}
        for key, choice in after.choices.items():
            choices[key] = choice
            if choice.decisions != before.choices[key].decisions:
                (result,) = self._measurer.measure(key, choice.space, [choice.decisions])
                if not result.samples_ns:
                    choices[key] = before.choices[key]
        return dataclasses.replace(after, choices=choices)

    def _keep(self, before: Variant, after: Variant, found: MemoryRecords) -> float:
        """Records what the new schedules take and what those before them took, measured side by
        side; gives the share of the kernels' time that they save."""
        old = new = 0.0
        for key, choice in after.choices.items():
            usual = before.choices[key]
            known = {
                record.decisions: record
                for record in found
                if record.task == key and record.context is Context.MODEL
            }
            if pairs(usual.decisions) not in known:
                continue
            was, now = known[pairs(usual.decisions)], known[pairs(choice.decisions)]
            old += was.seconds * choice.calls
            new += now.seconds * choice.calls
            if choice.decisions != usual.decisions:
                self._records.add(was)
                self._records.add(now)
        return 1 - new / old if old else 0.0


def _can_be_scheduled(choice: Choice, decisions: Mapping[str, int]) -> bool:
    try:
        choice.space.schedule(decisions)
    except CompilerError:
        return False
    return True
