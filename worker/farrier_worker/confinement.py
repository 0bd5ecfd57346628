"""The sandbox of a job's process: a minimal environment, and access to only a few files.

The process parses untrusted models, so it can reach none of the farm's tokens and secrets, its
Redis, or files of other jobs. The process may read the Python installation, the system's libraries
and the files of the model, and write to one folder for temporary files.
"""

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

# The variables that are passed on from the supervisor: they control how programs find libraries and
# show text, and how the compiler is watched. All others are withheld, as they may hold secrets.
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
# These variables are passed on too; relative paths are resolved against the supervisor's folder.
_PATHS = ("PYTHONPATH", "FARRIER_CRASHES")

_SINK = "/dev/null"

_log = logging.getLogger(__name__)


def environment(scratch: Path, ours: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a job's process, a selection of the variables `ours` of
    its supervisor. `scratch` is the process's folder for temporary files."""
    variables = {name: ours[name] for name in _HANDED_ON if name in ours}
    for name in _PATHS:
        if ours.get(name):
            parts = ours[name].split(os.pathsep)
            variables[name] = os.pathsep.join(os.path.abspath(part) for part in parts)
    return {**variables, "TMPDIR": str(scratch), "HOME": str(scratch), "PYTHONUNBUFFERED": "1"}


def enter(model: Iterable[Path], scratch: Path, secrets: Iterable[Path]) -> str:
    """Permanently confine the calling process, which must have only one thread, and all processes
    that it starts. Return the sandbox level that was reached, an element of `LEVELS`.

    The process can read the files of the `model` and of the compiler's installation, but nothing at
    or below the paths of `secrets`; it can write below `scratch` only.
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
    """Log the sandbox level of a process, as a warning if a layer is missing."""
    how = logging.INFO if level == ALL_WALLS else logging.WARNING
    _log.log(how, "%s is enclosed by %s", what, level or "nothing")


def _writable(scratch: Path) -> Iterator[str]:
    yield from (str(scratch), _SINK)
    if crashes := os.environ.get("FARRIER_CRASHES"):
        with contextlib.suppress(OSError):  # A folder has to exist before it can be allowed.
            os.makedirs(crashes, exist_ok=True)
        yield crashes
