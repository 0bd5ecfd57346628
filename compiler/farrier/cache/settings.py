"""The settings of the cache, read from environment variables that no other module reads:

FARRIER_CACHE        its directory, or `off` (default: farrier in XDG_CACHE_HOME, or in ~/.cache)
FARRIER_CACHE_BYTES  what its entries may take together; 0: no limit (default: 8 GiB)
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from farrier.errors import UsageError

DEFAULT_BYTES = 8 << 30
OFF = "off"


@dataclasses.dataclass(frozen=True, slots=True)
class CacheSettings:
    """The folder and the size limit of the cache. `folder` is None if the cache is off;
    `limit_bytes` 0 means no limit."""

    folder: Path | None
    limit_bytes: int = DEFAULT_BYTES

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> CacheSettings:
        """Read the environment. Raises UsageError for a limit that is not a number."""
        environ = os.environ if environ is None else environ
        limit = environ.get("FARRIER_CACHE_BYTES") or str(DEFAULT_BYTES)
        if not (limit.isascii() and limit.isdecimal()):
            raise UsageError(
                f"FARRIER_CACHE_BYTES is {limit!r}", hint="FARRIER_CACHE_BYTES=8589934592"
            )
        chosen = environ.get("FARRIER_CACHE") or ""
        if chosen == OFF:
            return cls(None, int(limit))
        home = environ.get("XDG_CACHE_HOME") or "~/.cache"
        return cls(Path(chosen or f"{home}/farrier").expanduser().absolute(), int(limit))
