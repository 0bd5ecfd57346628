"""The lifecycle of a role's process (worker, builder or trainer): it works until a signal, then
drains."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from farrier_device.alive import SignOfLife
from farrier_farm.farm import Farm
from farrier_farm.settings import Settings


class Draining(Protocol):
    """The main loop of a role, which can be drained."""

    def run(self) -> None:
        """Work until `drain` has been called and no work is left."""
        ...

    def drain(self) -> None:
        """Start no new work; a second call aborts the work in progress. Signal handlers call this
        method."""
        ...


def run_role(
    name: str, settings: Settings, make: Callable[[Farm, Callable[[], None]], Draining]
) -> int:
    """Run a role until SIGTERM or SIGINT, then drain. `make` creates the role's loop from the farm
    and from the function that renews the role's sign of life. Returns the exit code.

    Raises ServiceError if Redis cannot be reached at the start.
    """
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
