"""The outcome of training a cost model, in the form in which processes send, store and display
it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from farrier.records.record import pairs
from farrier_device import codec
from farrier_device.codec import Longest, Natural, Range

SHOWN = 20  # The most records and definitions of each kind that an outcome lists.
# Values of an outcome come from a process that has parsed input of strangers: they are bounded.
_Text: TypeAlias = Annotated[str, codec.encodable, Longest(1000)]
_Figure: TypeAlias = Annotated[float, codec.finite]
_Choice: TypeAlias = Annotated[int, Range(-(1 << 62), 1 << 62)]
_FEW = Longest(SHOWN)
_LEAD = 0.005  # The share of pairs that a better model must put in order beyond the other's.
# The share that a better model may lose by the best of five: few candidates decide it.
_LOSS = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """The quality of a ranking over several tasks: the mean fraction of pairs of candidates that
    are in the right order; the geometric mean of the time of the first choice over the best time,
    minus one; and the mean of the best time over the best of the first five choices."""

    pairs: _Figure
    regret: _Figure
    top5: _Figure

    def leads(self, other: Figures) -> bool:
        """Check whether these figures are better than `other`: more pairs in order, and first
        choices about as good. The time of the very first choice alone is too random to decide."""
        return self.pairs > other.pairs + _LEAD and self.holds_with(other)

    def holds_with(self, other: Figures) -> bool:
        """Check whether these figures are about equal to `other`, or better."""
        return self.pairs > other.pairs - _LEAD and self.top5 > other.top5 - _LOSS

    def __str__(self) -> str:
        return f"{self.pairs:.1%} of the pairs in order, regret {self.regret:.1%}"


_Contest: TypeAlias = Annotated[Mapping[_Text, Figures], _FEW]


@dataclasses.dataclass(frozen=True, slots=True)
class SetAside:
    """A record that is excluded from training, and the reason."""

    task: _Text
    rule: _Text
    decisions: Annotated[tuple[tuple[_Text, _Choice], ...], Longest(100), dict, pairs]
    device_class: _Text
    device: _Text
    reason: _Text


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a training; `is_better` is set if the trained model is to be used, and
    `reason` explains the decision.

    `of` holds figures on the held-out tasks: of the `trained` model, of the `analytic` one, and of
    each rival. `unseen` holds such figures by device class: of a model trained without that class
    (`trained`), and of the `analytic` one. The model learned from `records` records of `tasks`
    tasks; `held_out` tasks were excluded. `set_aside` records were excluded as well; `shown` lists
    some of them with the reasons. `damaged` maps tasks whose definitions are unusable to the
    reasons.
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
        """Return the outcome as a JSON object; `from_dict` is the inverse."""
        fields: dict[str, Any] = codec.encode(self)
        return fields

    @classmethod
    def from_dict(cls, raw: object) -> Outcome:
        """Parse the object that `to_dict` returns. Raises ValueError for any other object: it comes
        from a process that has parsed untrusted input."""
        return codec.decode(cls, raw, name="outcome")
