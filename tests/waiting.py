"""Wait for conditions that other threads or processes bring about."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

# Only a test that fails waits so long, on a busy machine too. A whole test may take 300 s, so the
# failure names the condition.
PATIENCE_S = 250.0
_INTERVAL_S = 0.01

Value = TypeVar("Value")


def wait_until(
    look: Callable[[], Value | Literal[False] | None], failure: str = "it did not happen in time"
) -> Value:
    """Call `look` until its value is true, and return that value.

    Raises AssertionError with the text `failure` after `PATIENCE_S`.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not (value := look()):
        assert time.monotonic() < deadline, failure
        time.sleep(_INTERVAL_S)
    return value
