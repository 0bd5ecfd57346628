"""What a job's process sees of the machine: an environment that is made for it, and few files.

It parses what strangers wrote. So nothing of the farm is in its reach: no token, no secret, no
Redis, no file of another job. What the compiler needs is: the Python installation, the system's
libraries, the files of the model, for reading; a folder for temporary files, for writing."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from farrier_device import denials, installation, landlock
from farrier_device.landlock import Access

ALL_WALLS = "seccomp+landlock"
LEVELS = ("", "landlock", "seccomp", ALL_WALLS)

_PR_SET_NO_NEW_PRIVS = 38

# What the supervisor's environment may hand on: how programs find libraries, and show text, and how
# the compiler is watched. All else stays behind, whatever its name.
_HANDED_ON = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
    "PYTHONHASHSEED",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "FARRIER_DEBUG",
    "FARRIER_CHECK",
)
_PATHS = ("PYTHONPATH", "FARRIER_CRASHES")  # handed on, too: relative ones are the supervisor's

_SINK = "/dev/null"

_log = logging.getLogger(__name__)


def environment(scratch: Path, ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of a job's process, whose temporary files lie in `scratch`; `ours` is that of
    its supervisor."""
    made = {name: ours[name] for name in _HANDED_ON if name in ours}
    for name in _PATHS:
        if ours.get(name):
            parts = ours[name].split(os.pathsep)
            made[name] = os.pathsep.join(os.path.abspath(part) for part in parts)
    return {**made, "TMPDIR": str(scratch), "HOME": str(scratch), "PYTHONUNBUFFERED": "1"}


def enter(model: Iterable[Path], scratch: Path, secrets: Iterable[Path]) -> str:
    """Enclose the calling process, which must have one thread, and all that it starts, for good;
    return the level reached, one of `LEVELS`.

    It reads the files of the `model` and what the compiler is made of, but nothing at or below the
    paths of `secrets`; it writes below `scratch` alone.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return ""
    allowed = installation.readable(secrets)
    allowed |= dict.fromkeys(model, Access.READ)
    allowed |= dict.fromkeys(map(Path, _writable(scratch)), Access.WRITE)
    level = []
    if landlock.restrict(libc, allowed):
        level.append("landlock")
    if denials.restrict(libc):
        level.insert(0, "seccomp")
    return "+".join(level)


def log_level(what: str, level: str) -> None:
    """Say what encloses a process; as a warning where it has not all walls."""
    how = logging.INFO if level == ALL_WALLS else logging.WARNING
    _log.log(how, "%s is enclosed by %s", what, level or "nothing")


def _writable(scratch: Path) -> Iterator[str]:
    yield from (str(scratch), _SINK)
    if crashes := os.environ.get("FARRIER_CRASHES"):
        with contextlib.suppress(OSError):  # what is not there cannot be allowed
            os.makedirs(crashes, exist_ok=True)
        yield crashes
