"""Which roles hang: they live, and give no sign of it (`farrier_device.alive`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from farrier.errors import FarrierError, ServiceError
from farrier_device.alive import silent_s
from farrier_farm.connection import connect
from farrier_farm.patience import PROBE
from farrier_farm.roles import Role


class Liveness:
    """Judges roles by their silence. A role is not judged for time in which others kept it waiting:
    this process, which did not look because the machine stood still, say; Redis; the server that it
    needs."""

    def __init__(self, limit_s: float, redis_answers: Callable[[], bool]) -> None:
        self._limit_s = limit_s
        self._doubt_s = limit_s / 3
        self._redis_answers = redis_answers
        self._since: dict[str, float] = {}  # when judging each role began anew
        self._looked = time.monotonic()

    def hung(self, roles: Sequence[Role]) -> list[tuple[Role, float]]:
        """The roles that hang, and for how many seconds each was silent. To be called often."""
        now = time.monotonic()
        late, self._looked = now - self._looked > self._doubt_s, now
        silent = {role.name: role.silent_s(self._since.get(role.name, 0.0)) for role in roles}
        doubtful = {name for name, seconds in silent.items() if seconds > self._doubt_s}
        if late or (doubtful and not self._redis_answers()):
            self._since = dict.fromkeys(silent, now)
            return []
        kept_waiting = [role.name for role in roles if role.needs in doubtful]
        self._since |= dict.fromkeys(kept_waiting, now)
        return [
            (role, silent[role.name])
            for role in roles
            if silent[role.name] > self._limit_s and role.name not in kept_waiting
        ]


def answers(url: str) -> bool:
    """Whether Redis does, soon."""
    try:
        connect(url, PROBE).close()
    except FarrierError:
        return False
    return True


def check(role: str, signs: Path, limit_s: float) -> list[int]:
    """The process ids of a role's processes on this machine, all of which are alive. Raises
    ServiceError where one hangs, or there is none."""
    silent = silent_s(signs, role)
    for pid, seconds in silent.items():
        if seconds > limit_s:
            raise ServiceError(
                f"{role} (process {pid}) has given no sign of life for {seconds:.0f} s",
                hint=f"kill -KILL {pid} ends it; whoever started it may start it anew",
            )
    if not silent:
        raise ServiceError(f"no {role} gives signs of life in {signs}")
    return sorted(silent)
