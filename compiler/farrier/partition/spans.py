"""Ranges of bytes in a memory, whose ends may contain dims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from farrier.ir.dim import Extent, is_less

Span: TypeAlias = tuple[Extent, Extent]


def are_apart(span: Span, other: Span) -> bool:
    """Check whether two ranges provably do not overlap. That can be decided if their ends are
    numbers, or if the end of one is the same expression as the start of the other."""
    ends = (span, other), (other, span)
    return any(
        end == start or (isinstance(end, int) and isinstance(start, int) and end < start)
        for (_, end), (start, _) in ends
    )


def is_within(span: Span, spans: Iterable[Span], *, if_open: bool = False) -> bool:
    """Check whether the union of the ranges `spans` covers the range `span`. If the answer depends
    on symbols (a Bind may make two of them equal at run time), return `if_open`."""
    spans = tuple(spans)
    reach, end = span
    while reach != end:
        further = [stop for start, stop in spans if _covers(start, stop, reach)]
        if not further:
            return False
        if if_open and any(_is_open(stop, end) for stop in further):
            return True
        reach = end if end in further else _furthest(further)
        if isinstance(reach, int) and isinstance(end, int):
            reach = min(reach, end)
    return True


def in_both(
    spans: Iterable[Span], others: Iterable[Span], *, if_open: bool = False
) -> tuple[Span, ...]:
    """Return the ranges of bytes that are in both unions: each range of `spans` that the union of
    `others` covers, and each of `others` that the union of `spans` covers. `if_open` is as for
    `is_within`."""
    spans, others = tuple(spans), tuple(others)
    covered = [span for span in spans if is_within(span, others, if_open=if_open)]
    covered += [span for span in others if is_within(span, spans, if_open=if_open)]
    return tuple(dict.fromkeys(covered))


def _is_open(stop: Extent, end: Extent) -> bool:
    return not (isinstance(stop, int) and isinstance(end, int))


def _covers(start: Extent, stop: Extent, at: Extent) -> bool:
    """Check whether the range [start, stop) contains the byte `at`. If it can only be proved that
    `at` is at most `stop`, the two count as different unless they are the same expression."""
    if isinstance(start, int) and isinstance(stop, int) and isinstance(at, int):
        return start <= at < stop
    begins = start == at or is_less(start, at + 1)
    return begins and stop != at and is_less(at, stop + 1)


def _furthest(ends: list[Extent]) -> Extent:
    numbers = [end for end in ends if isinstance(end, int)]
    return max(numbers) if numbers else ends[0]
