"""JSON has no infinity: unknown latencies leave the API as null."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """The JSON value with every number that is not finite replaced by None."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case _:
            return value
