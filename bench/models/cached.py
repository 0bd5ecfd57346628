"""Files that are created or downloaded once, in the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def folder(name: str) -> Path:
    """Return the path of the cache folder `name`, which may not exist yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "farrier" / "models" / name


def keep(data: bytes, path: Path) -> None:
    """Write a file atomically, so that an interrupted run does not leave an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)
