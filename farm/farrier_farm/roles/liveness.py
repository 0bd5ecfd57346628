"""The detection of roles that hang: their processes exist, but no longer renew their sign of life
(`farrier_device.alive`)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from farrier.errors import FarrierError, ServiceError
from farrier_device.alive import silent_s
from farrier_farm.redis.connection import connect
from farrier_farm.redis.retry import PROBE
from farrier_farm.roles import process_state
from farrier_farm.roles.process_state import Glimpse
from farrier_farm.roles.supervisor import Role

STOPPED_S = 2.0
"""The time in seconds for which a role may be stopped by a signal before it is replaced."""
MOST_LIMITS = 10
"""A role hangs if its last sign of life is older than this many times the limit, whatever it is
waiting for."""
_PROBED_S = 1.0


@dataclasses.dataclass(slots=True)
class _Doubt:
    """A role without a recent sign of life. `kept_waiting_s` is the time since then for which the
    role could not run because of the machine's load."""

    pid: int
    glimpse: Glimpse
    kept_waiting_s: float = 0.0

    def look(self) -> None:
        glimpse = process_state.glimpse(self.pid)
        self.kept_waiting_s += glimpse.kept_waiting_s(self.glimpse)
        self.glimpse = glimpse


class Liveness:
    """Decides which roles hang, from the age of their signs of life and from the state of their
    processes in the kernel: a process that is stopped by a signal hangs. The time for which a role
    could not work for other reasons does not count: because the machine was suspended (then this
    process did not run either), because Redis or the server that the role needs was unavailable, or
    because other processes used the processors or the disk."""

    def __init__(self, limit_s: float, redis_answers: Callable[[], bool]) -> None:
        self._limit_s = limit_s
        self._doubt_s = limit_s / 3
        self._redis_answers = redis_answers
        self._since: dict[str, float] = {}  # The time at which judging each role began again.
        self._stopped: dict[int, float] = {}  # The time since which each process is stopped.
        self._doubts: dict[str, _Doubt] = {}
        self._looked = time.monotonic()

    def hung(self, roles: Sequence[Role]) -> list[tuple[Role, str]]:
        """Return the roles that hang, each with a description of the evidence. Call this method
        often, because it measures times between calls."""
        now = time.monotonic()
        is_late = now - self._looked > self._doubt_s
        try:
            stopped = self._stopped_for_long(roles, now, anew=is_late)
            return stopped + self._silent_for_long(roles, now, anew=is_late)
        finally:
            self._looked = time.monotonic()

    def _stopped_for_long(
        self, roles: Sequence[Role], now: float, *, anew: bool
    ) -> list[tuple[Role, str]]:
        pids = [role.pid for role in roles if role.pid is not None and not role.ended]
        before = {} if anew else self._stopped
        self._stopped = {pid: before.get(pid, now) for pid in pids if process_state.is_stopped(pid)}
        return [
            (role, f"a signal stopped it {now - self._stopped[role.pid]:.0f} s ago")
            for role in roles
            if role.pid in self._stopped and now - self._stopped[role.pid] >= STOPPED_S
        ]

    def _silent_for_long(
        self, roles: Sequence[Role], now: float, *, anew: bool
    ) -> list[tuple[Role, str]]:
        roles = [role for role in roles if role.pid not in self._stopped]
        silent = {role.name: role.silent_s(self._since.get(role.name, 0.0)) for role in roles}
        doubtful = {name for name, seconds in silent.items() if seconds > self._doubt_s}
        if anew or (doubtful and not self._redis_answers()):
            self._since = dict.fromkeys(silent, now)
            self._doubts = {}
            return []
        kept_waiting = [role.name for role in roles if role.needs in doubtful]
        self._since |= dict.fromkeys(kept_waiting, now)
        self._look_at([role for role in roles if role.name in doubtful])
        return [
            (role, f"no sign of life for {silent[role.name]:.0f} s")
            for role in roles
            if role.name not in kept_waiting and self._is_past_limit(role, silent[role.name])
        ]

    def _look_at(self, doubtful: Sequence[Role]) -> None:
        before, self._doubts = self._doubts, {}
        for role in doubtful:
            doubt = before.get(role.name)
            pid = role.pid or 0
            if doubt is None or doubt.pid != pid:
                doubt = _Doubt(pid, process_state.glimpse(pid))
            doubt.look()
            self._doubts[role.name] = doubt

    def _is_past_limit(self, role: Role, silent: float) -> bool:
        doubt = self._doubts.get(role.name)
        kept_waiting_s = 0.0 if doubt is None else doubt.kept_waiting_s
        return silent - kept_waiting_s > self._limit_s or silent > MOST_LIMITS * self._limit_s


def answers(url: str) -> bool:
    """Return whether Redis answers within the time of `PROBE`."""
    try:
        connect(url, PROBE).close()
    except FarrierError:
        return False
    return True


def check(role: str, signs: Path, limit_s: float) -> list[int]:
    """Return the process ids of a role on this machine. Raises ServiceError if a process of the
    role hangs, or none exists."""
    silent = silent_s(signs, role)
    for pid, seconds in silent.items():
        if process_state.is_stopped(pid):
            raise ServiceError(
                f"{role} (process {pid}) was stopped by a signal",
                hint=f"kill -CONT {pid} continues it, kill -KILL {pid} ends it",
            )
        if seconds > limit_s and _hangs(role, pid, signs, limit_s):
            raise ServiceError(
                f"{role} (process {pid}) has given no sign of life for {seconds:.0f} s",
                hint=f"kill -KILL {pid} ends it; its supervisor, if any, restarts it",
            )
    if not silent:
        raise ServiceError(f"no {role} writes signs of life in {signs}")
    return sorted(silent)


def _hangs(role: str, pid: int, signs: Path, limit_s: float) -> bool:
    """Return whether a process hangs: its last sign of life is older than `limit_s`, or than
    `MOST_LIMITS` times as long if the machine keeps the process from running."""
    before = process_state.glimpse(pid)
    time.sleep(_PROBED_S)
    kept_waiting_s = process_state.glimpse(pid).kept_waiting_s(before)
    seconds = silent_s(signs, role).get(pid, 0.0)
    is_busy = kept_waiting_s > _PROBED_S / 2
    return seconds > (MOST_LIMITS if is_busy else 1) * limit_s
