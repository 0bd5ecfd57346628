"""A sign of life: a file that a process's working loop touches, so that a hanging process is
noticed.

    <directory>/<role>.<host>.<process id>   its modification time is that of the last sign

Times are those of the monotonic clock, which all processes of a machine share: setting the wall
clock does not change the age of a sign, and no time passes while the machine sleeps. An observer
that finds an old sign must itself have been running in the meantime.
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
    """The sign-of-life file of this process. A failure to write the file does not stop the
    process."""

    def __init__(self, directory: Path, role: str) -> None:
        self._path = path_of(directory, role, os.getpid())
        self._renewed = 0.0
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _forget(directory)
            self._path.touch()
        except OSError as error:
            _log.warning("cannot write the sign-of-life file to %s: %s", directory, error.strerror)
        self.renew()

    def renew(self) -> None:
        """Update the sign of life. Call this about every second; more frequent calls do nothing."""
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
        """Remove the file, at an orderly end of the process."""
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
    """Return a context during which a task renews the sign of life, as long as the event loop
    runs."""

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
    """Return the time (monotonic clock, seconds) at which a process of this machine last renewed
    its sign of life; None if it has no sign."""
    try:
        return path_of(directory, role, pid).stat().st_mtime
    except OSError:
        return None


def silent_s(directory: Path, role: str) -> dict[int, float]:
    """Return, by process id, the seconds since each running process of the role on this machine
    last renewed its sign of life. The files of processes that no longer run are removed."""
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
    """Remove the signs of life whose files were not changed for `_FORGOTTEN_S` seconds."""
    for path in directory.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_ctime > _FORGOTTEN_S:
                path.unlink()
