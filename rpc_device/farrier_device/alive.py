"""A sign of life that a hanging process cannot give: a file that its working loop renews.

    <directory>/<role>.<host>.<process id>   modified at its process's last sign

The time is by the monotonic clock, which all processes of a machine share: setting the clock does
not change the age of a sign, and a sleeping machine does not age it. An observer must have been
able to run itself meanwhile.
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
# The age at which signs of processes that are gone, on this machine or another, are removed.
_FORGOTTEN_S = 86400.0
_log = logging.getLogger(__name__)


class SignOfLife:
    """The sign of life of this process. A disk that refuses it does not stop the process."""

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
        """Renew the sign; call this about every second. More frequent calls cost nothing."""
        now = time.monotonic()
        if now - self._renewed < RENEWED_S / 2:
            return
        self._renewed = now
        with contextlib.suppress(OSError):
            # The file was removed, after the process had been stopped for a day.
            if not self._path.exists():
                self._path.touch()
            os.utime(self._path, (now, now))

    def end(self) -> None:
        """Remove the sign, when the process ends in order."""
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
    """Return a context with a sign that this event loop renews as long as it runs."""

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
    """Return the time of the last sign of a process of this machine, by the monotonic clock, or
    None."""
    try:
        return path_of(directory, role, pid).stat().st_mtime
    except OSError:
        return None


def silent_s(directory: Path, role: str) -> dict[int, float]:
    """Return for how many seconds each process of the role on this machine has given no sign, by
    process id. Signs of processes that are gone are removed."""
    silences = {}
    for path in directory.glob(f"{role}.{socket.gethostname()}.*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.suffix.removeprefix("."))
            if Path(f"/proc/{pid}").exists():
                silences[pid] = max(0.0, time.monotonic() - path.stat().st_mtime)
            else:
                path.unlink()
    return silences


def _forget(directory: Path) -> None:
    """Remove signs that were not renewed for long, by the time at which the file was changed."""
    for path in directory.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_ctime > _FORGOTTEN_S:
                path.unlink()
