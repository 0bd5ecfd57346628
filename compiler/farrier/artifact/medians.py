"""What a run of an artifact takes, as its report has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def medians(report: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Milliseconds of a run, and of a run of the untuned model: of the race that was won, where one
    was, else of the verification, both alike. None: not measured."""
    if report["tuned_is_faster"]:
        return report["tuned_ms"]["median"], report["untuned_ms"]["median"]
    verified = (report["verification"] or {}).get("latency_ms")
    median = None if verified is None else verified["median"]
    return median, median
