"""Ranges of bytes of a memory, whose ends may be over dims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from farrier.ir.dim import Extent

Span: TypeAlias = tuple[Extent, Extent]


def are_apart(span: Span, other: Span) -> bool:
    """Check whether two ranges are disjoint, as far as numbers or equal ends show it."""
    ends = (span, other), (other, span)
    return any(
        end == start or (isinstance(end, int) and isinstance(start, int) and end < start)
        for (_, end), (start, _) in ends
    )


def is_within(span: Span, spans: Iterable[Span]) -> bool:
    """Check whether ranges cover a range, one behind the other."""
    spans = tuple(spans)
    reach, end = span
    while reach != end:
        further = [stop for start, stop in spans if _covers(start, stop, reach)]
        if not further:
            return False
        reach = end if end in further else _furthest(further)
        if isinstance(reach, int) and isinstance(end, int):
            reach = min(reach, end)
    return True


def in_both(spans: Iterable[Span], others: Iterable[Span]) -> tuple[Span, ...]:
    """Return the ranges of either side that the other one covers."""
    spans, others = tuple(spans), tuple(others)
    covered = [span for span in spans if is_within(span, others)]
    covered += [span for span in others if is_within(span, spans)]
    return tuple(dict.fromkeys(covered))


def _covers(start: Extent, stop: Extent, at: Extent) -> bool:
    """Check whether a range has the byte `at`; if symbols are in the way, it has to begin there."""
    if isinstance(start, int) and isinstance(stop, int) and isinstance(at, int):
        return start <= at < stop
    return start == at and stop != at


def _furthest(ends: list[Extent]) -> Extent:
    numbers = [end for end in ends if isinstance(end, int)]
    return max(numbers) if numbers else ends[0]
