"""Parse the options of a compilation that are text on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from farrier.options import TYPICAL_ALONE, parse_budget
from farrier.options.shapes import GivenShape, Hot, parse_hot, parse_shapes, parse_sizes
from farrier.options.states import parse_states


class Parsed(TypedDict):
    """The parsed values of the text options, as arguments of `CompileOptions` and
    `Client.submit`."""

    shapes: Mapping[str, GivenShape]
    hot: tuple[Hot, ...]
    typical: Hot
    budget_s: float | None
    states: Mapping[str, str]


def parsed(
    shape: Sequence[str] | None,
    hot: Sequence[str] | None,
    typical: str,
    budget: str | None,
    state: Sequence[str] | None,
) -> Parsed:
    """Return the values of these options. Raises UsageError."""
    return Parsed(
        shapes=parse_shapes(shape or []),
        hot=parse_hot(hot) if hot else TYPICAL_ALONE,
        typical=parse_sizes(typical) if typical else {},
        budget_s=None if budget is None else parse_budget(budget),
        states=parse_states(state or []),
    )
