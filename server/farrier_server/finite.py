"""Conversion of infinite and NaN numbers for JSON, which has neither: latencies that were not
measured are null in the API."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """Return the JSON value with null in place of every infinite or NaN number."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case _:
            return value
