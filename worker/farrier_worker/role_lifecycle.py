"""The life of a role's process: it works until a signal, then drains."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from farrier_device.alive import SignOfLife
from farrier_farm.farm import Farm
from farrier_farm.settings import Settings


class Draining(Protocol):
    """The loop of a role."""

    def run(self) -> None:
        """Work until `drain` was called and nothing is left to do."""
        ...

    def drain(self) -> None:
        """Begin nothing more; a second call ends the work in progress. Signal handlers call it."""
        ...


def run_role(
    name: str, settings: Settings, make: Callable[[Farm, Callable[[], None]], Draining]
) -> int:
    """Run a role until SIGTERM or SIGINT, then drain. `make` creates its loop from the farm and the
    function that renews the role's sign of life. Returns the exit code.

    Raises ServiceError if Redis is out of reach at the start."""
    farm = Farm.open(settings)
    sign = SignOfLife(settings.signs, name)
    role = make(farm, sign.renew)

    def drain(_number: int, _frame: FrameType | None) -> None:
        role.drain()

    previous = {n: signal.signal(n, drain) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        with farm.announcing(name):
            role.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        sign.end()
        farm.close()
    return 0
