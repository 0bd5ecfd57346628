"""What came of training, as it is told between processes, kept, and shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from farrier.records.record import pairs
from farrier_device import codec
from farrier_device.codec import Longest, Natural, Range

SHOWN = 20  # of what is set aside
# Values of an outcome come from a process that reads what strangers wrote: they are bounded.
_Text: TypeAlias = Annotated[str, codec.encodable, Longest(1000)]
_Figure: TypeAlias = Annotated[float, codec.finite]
_Choice: TypeAlias = Annotated[int, Range(-(1 << 62), 1 << 62)]
_FEW = Longest(SHOWN)
_LEAD = 0.005  # of the pairs, that a better model puts in order beyond the other's
_LOSS = 0.05  # of the best of five, that it may lose by: few candidates decide these


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """Over tasks: the mean share of pairs of candidates that are put in order; the geometric mean
    of what the first choice takes over the best known, less one; and the mean of the best over the
    best of the first five."""

    pairs: _Figure
    regret: _Figure
    top5: _Figure

    def leads(self, other: Figures) -> bool:
        """Whether it is better: more pairs in order, and its first choices about as good. What the
        very first takes is left to chance too much to decide."""
        return self.pairs > other.pairs + _LEAD and self.holds_with(other)

    def holds_with(self, other: Figures) -> bool:
        """Whether it is about as good, or better."""
        return self.pairs > other.pairs - _LEAD and self.top5 > other.top5 - _LOSS

    def __str__(self) -> str:
        return f"{self.pairs:.1%} of the pairs in order, regret {self.regret:.1%}"


_Contest: TypeAlias = Annotated[Mapping[_Text, Figures], _FEW]


@dataclasses.dataclass(frozen=True, slots=True)
class SetAside:
    """A record that is not learned from, and why."""

    task: _Text
    rule: _Text
    decisions: Annotated[tuple[tuple[_Text, _Choice], ...], Longest(100), dict, pairs]
    device_class: _Text
    device: _Text
    reason: _Text


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
    reason: _Text
    of: _Contest = dataclasses.field(default_factory=dict)
    unseen: Annotated[Mapping[_Text, _Contest], _FEW] = dataclasses.field(default_factory=dict)
    records: Natural = 0
    tasks: Natural = 0
    held_out: Natural = 0
    set_aside: Natural = 0
    shown: Annotated[Sequence[SetAside], _FEW] = ()
    damaged: Annotated[Mapping[_Text, _Text], _FEW] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; `from_dict` reads it back."""
        fields: dict[str, Any] = codec.encode(self)
        return fields

    @classmethod
    def from_dict(cls, raw: object) -> Outcome:
        """Return the inverse of `to_dict`. Raises ValueError for anything that no training returns:
        it comes from a process that reads what strangers wrote."""
        return codec.decode(cls, raw, name="outcome")
