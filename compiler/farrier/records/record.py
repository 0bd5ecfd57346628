"""One measured candidate: a fact about a task on one kind of machine, and its JSON line."""

from __future__ import annotations

import dataclasses
import enum
import json
import time
from collections.abc import Mapping
from typing import Any, TypeAlias

from farrier_device.measurement import CandidateResult, Status, undisturbed

Pairs: TypeAlias = tuple[tuple[str, int], ...]  # decisions, sorted by knob


class Context(enum.StrEnum):
    """Where a candidate was measured."""

    ALONE = "alone"  # by itself, its weights cold
    MODEL = "model"  # as a kernel of a whole model, one of all calls
    SCREENED = "screened"  # there, too briefly to decide by: it shows what to measure once more


@dataclasses.dataclass(frozen=True, slots=True)
class RuleId:
    """What makes schedules of decisions, by name and version.

    The version rises whenever equal decisions no longer make equal code. Records of another version
    are kept but never used.
    """

    name: str
    version: int

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True, slots=True)
class TuningRecord:
    """How one schedule of one task did.

    `task` is the structural hash of the task's region, `fingerprint` that of the target it ran on.
    `decisions` are the knob values from which version `version` of the space rule `rule` builds the
    schedule; `trace` is the schedule as text, empty where the rule failed to make one. `samples_ns`
    holds every timed call; it is empty unless `status` is OK. Times of different contexts do not
    compare. `device_class` and `device` say where on a farm it was measured, "" where on none;
    names of several devices have commas between.
    """

    task: str
    fingerprint: str
    threads: int
    rule: str
    version: int  # of the rule
    decisions: tuple[tuple[str, int], ...]  # sorted by knob
    trace: str
    status: Status
    samples_ns: tuple[int, ...] = ()
    seed: int = 0  # of the search that proposed it
    created: float = 0.0  # seconds since 1970, UTC
    context: Context = Context.ALONE
    device_class: str = ""
    device: str = ""

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
        """Return the record of a result measured just now, by the device that the result names."""
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
        """The devices whose times are in it: of one in a model there may be several."""
        return frozenset(filter(None, self.device.split(",")))

    @property
    def made_by(self) -> RuleId:
        """Whose decisions these are."""
        return RuleId(self.rule, self.version)

    @property
    def seconds(self) -> float:
        """Of an undisturbed call; infinity for a candidate that failed."""
        return undisturbed(self.samples_ns) * 1e-9

    @property
    def knobs(self) -> dict[str, int]:
        """The decisions by name."""
        return dict(self.decisions)

    def to_line(self) -> str:
        """One JSON object without a newline, the same text for equal records, of every version that
        could write them."""
        raw = dataclasses.asdict(self)
        for name in ("device_class", "device"):
            if not raw[name]:
                del raw[name]
        return json.dumps(raw, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> TuningRecord:
        """The inverse of `to_line`. Raises ValueError that names the field at fault.

        Lines written when one version stood for all rules read as records of every rule in that
        version, from which each rule has counted on.
        """
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from None
        if not isinstance(raw, dict):
            raise ValueError(f"a record is a JSON object, this is a {type(raw).__name__}")
        for name, usual in _ADDED.items():
            raw.setdefault(name, usual)
        fields = {f.name: f for f in dataclasses.fields(cls)}
        if unknown := sorted(set(raw) - set(fields)):
            raise ValueError(f"unknown field {unknown[0]!r}")
        if missing := sorted(set(fields) - set(raw)):
            raise ValueError(f"missing field {missing[0]!r}")
        return cls(**{name: _READERS[str(f.type)](name, raw) for name, f in fields.items()})


_LONGEST_NS = (1 << 63) - 1
# What records did not always say, and what it was then.
_ADDED = {"context": Context.ALONE.value, "device_class": "", "device": ""}


def pairs(decisions: Mapping[str, int]) -> Pairs:
    """Decisions in the canonical form of `TuningRecord.decisions`."""
    return tuple(sorted((name, int(value)) for name, value in decisions.items()))


def _scalar(kind: type) -> Any:
    def read(name: str, raw: Mapping[str, Any]) -> Any:
        value = raw[name]
        if kind is float and type(value) is int and abs(value) < 1 << 53:
            value = float(value)
        if type(value) is not kind:
            raise ValueError(f"{name} is {value!r}, not a {kind.__name__}")
        if isinstance(value, float) and not 0 <= value < float("inf"):
            raise ValueError(f"{name} is {value!r}, not a time")
        if isinstance(value, str):
            value.encode()  # half of a pair of surrogates is no text
        return value

    return read


def _status(name: str, raw: Mapping[str, Any]) -> Status:
    return Status(raw[name])


def _context(name: str, raw: Mapping[str, Any]) -> Any:
    return Context(raw[name])


def _integers(name: str, raw: Mapping[str, Any]) -> tuple[int, ...]:
    values = raw[name]
    if not isinstance(values, list) or any(
        type(v) is not int or not 0 <= v <= _LONGEST_NS for v in values
    ):
        raise ValueError(f"{name} is {values!r}, not a list of counts")
    return tuple(values)


def _decisions(name: str, raw: Mapping[str, Any]) -> Pairs:
    values = raw[name]
    try:
        found = dict(values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {values!r}, not a list of pairs") from None
    if any(type(k) is not str or type(v) is not int for k, v in found.items()):
        raise ValueError(f"{name} is {values!r}, not pairs of knob and integer")
    return pairs(found)


_READERS = {
    "str": _scalar(str),
    "int": _scalar(int),
    "float": _scalar(float),
    "Status": _status,
    "Context": _context,
    "tuple[int, ...]": _integers,
    "tuple[tuple[str, int], ...]": _decisions,
}
