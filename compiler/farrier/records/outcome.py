"""What came of training, as it is told between processes, kept, and shown."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.records.record import pairs

SHOWN = 20  # of what is set aside
_LONGEST = 1000  # characters of a text
_LEAD = 0.005  # of the pairs, that a better model puts in order beyond the other's
_LOSS = 0.05  # of the best of five, that it may lose by: few candidates decide these


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """Over tasks: the mean share of pairs of candidates that are put in order; the geometric mean
    of what the first choice takes over the best known, less one; and the mean of the best over the
    best of the first five."""

    pairs: float
    regret: float
    top5: float

    def leads(self, other: Figures) -> bool:
        """Whether it is better: more pairs in order, and its first choices about as good. What the
        very first takes is left to chance too much to decide."""
        return self.pairs > other.pairs + _LEAD and self.holds_with(other)

    def holds_with(self, other: Figures) -> bool:
        """Whether it is about as good, or better."""
        return self.pairs > other.pairs - _LEAD and self.top5 > other.top5 - _LOSS

    def __str__(self) -> str:
        return f"{self.pairs:.1%} of the pairs in order, regret {self.regret:.1%}"


@dataclasses.dataclass(frozen=True, slots=True)
class SetAside:
    """A record that is not learned from, and why."""

    task: str
    rule: str
    decisions: tuple[tuple[str, int], ...]
    device_class: str
    device: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """`is_better` says whether what was trained is to be used, and `reason` why.

    `of` are figures on the tasks that were held out: of the model that was `trained`, of the
    `analytic` one, and of each rival. `unseen` are the same by the class of devices: of a `trained`
    model that has not seen it, and of the `analytic` one. `records` of `tasks` were learned from,
    and `held_out` tasks were not. Of the `set_aside` records some are `shown`, and `damaged` names
    definitions of which no space can be made: by task, why.
    """

    is_better: bool
    reason: str
    of: Mapping[str, Figures] = dataclasses.field(default_factory=dict)
    unseen: Mapping[str, Mapping[str, Figures]] = dataclasses.field(default_factory=dict)
    records: int = 0
    tasks: int = 0
    held_out: int = 0
    set_aside: int = 0
    shown: Sequence[SetAside] = ()
    damaged: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; `from_dict` reads it back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, raw: Any) -> Outcome:
        """Raises ValueError, TypeError, KeyError or AttributeError for what no training gives: it
        comes from a process that reads what strangers wrote."""
        return cls(
            is_better=_exactly(bool, raw["is_better"]),
            reason=_text(raw["reason"]),
            of=_figures(raw["of"]),
            unseen={_text(name): _figures(each) for name, each in _few(raw["unseen"]).items()},
            **{name: _count(raw[name]) for name in ("records", "tasks", "held_out", "set_aside")},
            shown=tuple(map(_set_aside, _few(raw["shown"]))),
            damaged={_text(task): _text(why) for task, why in _few(raw["damaged"]).items()},
        )


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.100} is no {kind.__name__}")
    return value


def _text(value: Any) -> str:
    text: str = _exactly(str, value)
    text.encode()
    if len(text) > _LONGEST:
        raise ValueError(f"a text of more than {_LONGEST} characters")
    return text


def _count(value: Any) -> int:
    if _exactly(int, value) < 0:
        raise ValueError(f"{value} is no count")
    return int(value)


def _few(value: Any) -> Any:
    if len(value) > SHOWN:
        raise ValueError(f"{len(value)} of what there are {SHOWN} at most")
    return value


def _figures(raw: Any) -> dict[str, Figures]:
    return {_text(name): Figures(**_numbers(each)) for name, each in _few(raw).items()}


def _numbers(raw: Mapping[str, Any]) -> dict[str, float]:
    if not all(type(value) in (int, float) and math.isfinite(value) for value in raw.values()):
        raise ValueError(f"{raw!r:.100} are no figures")
    return {name: float(value) for name, value in raw.items()}


def _set_aside(raw: Mapping[str, Any]) -> SetAside:
    texts = {name: _text(raw[name]) for name in ("task", "rule", "device_class", "device")}
    decisions = {_text(knob): _exactly(int, value) for knob, value in raw["decisions"]}
    if len(decisions) > 100 or any(abs(value) > 1 << 62 for value in decisions.values()):
        raise ValueError("decisions that no space has")
    return SetAside(**texts, decisions=pairs(decisions), reason=_text(raw["reason"]))
