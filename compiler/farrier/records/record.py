"""Tuning records: the measurement of one candidate of a task on one kind of machine, and its form
as a JSON line.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import time
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from farrier_device import codec
from farrier_device.measurement import CandidateResult, Status, fast_quartile_mean

Pairs: TypeAlias = tuple[tuple[str, int], ...]  # The decisions, sorted by knob.


def pairs(decisions: Mapping[str, int]) -> Pairs:
    """Return decisions in the canonical form that `TuningRecord.decisions` has: sorted pairs."""
    return tuple(sorted((name, int(value)) for name, value in decisions.items()))


# Texts, times and counts that every store can hold.
_Text: TypeAlias = Annotated[str, codec.encodable]
_Time: TypeAlias = Annotated[float, codec.finite, codec.Range(0, float("inf"))]
_Nanoseconds: TypeAlias = Annotated[int, codec.Range(0, (1 << 63) - 1)]


class Context(enum.StrEnum):
    """The circumstances in which a candidate was measured: alone, in a model, or in a model too
    briefly to decide (screening)."""

    ALONE = "alone"  # Only this kernel ran, with cold weights.
    MODEL = "model"  # It ran as a kernel of the whole model, at one of its calls.
    # As MODEL, but too briefly to decide by: it selects candidates to measure again.
    SCREENED = "screened"


@dataclasses.dataclass(frozen=True, slots=True)
class RuleId:
    """The name and version of a rule, which turns decisions into schedules.

    The version is incremented whenever equal decisions lead to different code. Records of another
    version are preserved but not used.
    """

    name: str
    version: int

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True, slots=True)
class TuningRecord:
    """The measurement of one schedule of one task.

    `task` is the structural hash of the task's region, `fingerprint` that of the target on which it
    ran. `decisions` are the knob values from which version `version` of the space rule `rule`
    builds the schedule; `trace` is the schedule as text, empty if the rule failed to build one.
    `samples_ns` holds the time of every timed call, in nanoseconds; it is empty unless `status` is
    OK. Times of different contexts are not comparable. `device_class` and `device` name the farm
    device that measured, "" if none did; several names are separated by commas.
    """

    task: _Text
    fingerprint: _Text
    threads: int
    rule: _Text
    version: int  # The version of the rule.
    decisions: Annotated[Pairs, dict, pairs]  # They are sorted by knob.
    trace: _Text
    status: Status
    samples_ns: tuple[_Nanoseconds, ...] = ()
    seed: int = 0  # The seed of the search that proposed it.
    created: _Time = 0.0  # Seconds since 1970, UTC.
    context: Context = Context.ALONE
    device_class: _Text = dataclasses.field(default="", metadata=codec.OMIT_EMPTY)
    device: _Text = dataclasses.field(default="", metadata=codec.OMIT_EMPTY)

    @classmethod
    def of(
        cls,
        rule: RuleId,
        decisions: Mapping[str, int],
        result: CandidateResult,
        *,
        task: str,
        fingerprint: str,
        threads: int,
        trace: str = "",
        seed: int = 0,
        context: Context = Context.ALONE,
    ) -> TuningRecord:
        """Return the record of a result that has just been measured. The result contains the name
        of the device."""
        return cls(
            task=task,
            fingerprint=fingerprint,
            threads=threads,
            rule=rule.name,
            version=rule.version,
            decisions=pairs(decisions),
            trace=trace,
            status=result.status,
            samples_ns=result.samples_ns,
            seed=seed,
            created=time.time(),
            context=context,
            device=result.device,
        )

    @property
    def measured_by(self) -> frozenset[str]:
        """Return the names of the devices that contributed times: in a model, there may be
        several."""
        return frozenset(filter(None, self.device.split(",")))

    @property
    def made_by(self) -> RuleId:
        """The rule to which the decisions belong."""
        return RuleId(self.rule, self.version)

    @property
    def seconds(self) -> float:
        """The time of an undisturbed call in seconds; infinity for a candidate that failed."""
        return fast_quartile_mean(self.samples_ns) * 1e-9

    @property
    def knobs(self) -> dict[str, int]:
        """Return the decisions as a mapping from knob to value."""
        return dict(self.decisions)

    def to_line(self) -> str:
        """Return the record as one JSON object without a newline. Equal records have the same text
        in every version of Farrier that could write them."""
        return json.dumps(codec.encode(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> TuningRecord:
        """Parse the text that `to_line` returns. Raises ValueError that names the invalid field.

        Old versions of Farrier had a single version number for all rules. A record of such a
        version is read as a record of that version of its rule; the version numbers of each rule
        continue from there.
        """
        return codec.loads(cls, line, unknown=codec.Unknown.REFUSED, name="record")
