"""Queries of a space that several tests share."""

from __future__ import annotations

from farrier.space import Space


def slowest(space: Space) -> dict[str, int]:
    """The candidate that the analytic model ranks last."""
    return space.decisions(space.candidates()[space.costs().argmax()])
