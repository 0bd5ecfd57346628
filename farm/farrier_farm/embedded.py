"""The embedded Valkey: one command runs the farm, and its state survives `kill -9`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from farrier_farm.settings import Settings


@dataclasses.dataclass(slots=True)
class Embedded:
    """A running server of this home. `owned` says whether this process started it and stops it."""

    url: str
    pid: int
    owned: bool

    def stop(self) -> None:
        """Stops the server cleanly where this process started it; idempotent."""
        raise NotImplementedError


def start(settings: Settings) -> Embedded:
    """Starts Valkey on `<home>/valkey.sock`, or finds the one that runs there. ServiceError where it
    does not come up, with the end of its log. (Only meant for `settings.redis_url` None.)"""
    raise NotImplementedError


def socket_path(home: Path) -> Path:
    return home / "valkey.sock"
