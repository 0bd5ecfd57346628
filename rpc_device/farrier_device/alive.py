"""A sign of life that a process which hangs cannot give: a file that its working loop renews.

    <directory>/<role>.<host>.<process id>   modified at its process's last sign

The time is that of the monotonic clock, which is one for all processes of a machine: no clock that
is set makes a sign older or newer, and a machine that sleeps ages none. Whoever looks must have
been able to run itself meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

SIGNS = "alive"  # the directory's name
RENEWED_S = 1.0
_FORGOTTEN_S = 86400.0  # by processes that are gone, of this machine or another
_log = logging.getLogger(__name__)


class SignOfLife:
    """Of this process. A disk that refuses it is no reason to stop working."""

    def __init__(self, directory: Path, role: str) -> None:
        self._path = path_of(directory, role, os.getpid())
        self._renewed = 0.0
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _forget(directory)
            self._path.touch()
        except OSError as error:
            _log.warning("no sign of life in %s: %s", directory, error.strerror)
        self.renew()

    def renew(self) -> None:
        """To be called about every second; costs nothing where it is called more often."""
        now = time.monotonic()
        if now - self._renewed < RENEWED_S / 2:
            return
        self._renewed = now
        with contextlib.suppress(OSError):
            if not self._path.exists():  # forgotten, after a day's stop
                self._path.touch()
            os.utime(self._path, (now, now))

    def end(self) -> None:
        """Of a process that ends in order."""
        with contextlib.suppress(OSError):
            self._path.unlink()


@contextlib.contextmanager
def sign_of_life(directory: Path, role: str) -> Iterator[SignOfLife]:
    sign = SignOfLife(directory, role)
    try:
        yield sign
    finally:
        sign.end()


@contextlib.asynccontextmanager
async def renewed(directory: Path, role: str) -> AsyncIterator[None]:
    """A sign that this event loop renews as long as it goes round."""

    async def renew(sign: SignOfLife) -> None:
        while True:
            sign.renew()
            await asyncio.sleep(RENEWED_S)

    with sign_of_life(directory, role) as sign:
        task = asyncio.create_task(renew(sign))
        try:
            yield
        finally:
            task.cancel()


def path_of(directory: Path, role: str, pid: int) -> Path:
    return directory / f"{role}.{socket.gethostname()}.{pid}"


def last_sign(directory: Path, role: str, pid: int) -> float | None:
    """When a process of this machine gave its last sign, by the monotonic clock; None where it has
    given none."""
    try:
        return path_of(directory, role, pid).stat().st_mtime
    except OSError:
        return None


def silent_s(directory: Path, role: str) -> dict[int, float]:
    """For how many seconds each process of the role on this machine has given no sign, by process
    id. What a process left that is gone is removed."""
    found = {}
    for path in directory.glob(f"{role}.{socket.gethostname()}.*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.suffix.removeprefix("."))
            if Path(f"/proc/{pid}").exists():
                found[pid] = max(0.0, time.monotonic() - path.stat().st_mtime)
            else:
                path.unlink()
    return found


def _forget(directory: Path) -> None:
    """Remove signs that nobody has renewed for long, by the time at which the file was changed."""
    for path in directory.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_ctime > _FORGOTTEN_S:
                path.unlink()
