"""Read the median run time of an artifact from its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def medians(report: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return two median times in milliseconds: of a run of the model, and of a run of the model
    before tuning. If the tuned model won the race, both are from the race, else both are from the
    verification. None stands for a time that was not measured."""
    if report["tuned_is_faster"]:
        return report["tuned_ms"]["median"], report["untuned_ms"]["median"]
    verified = (report["verification"] or {}).get("latency_ms")
    median = None if verified is None else verified["median"]
    return median, median
