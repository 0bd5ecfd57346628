"""Files that are made or fetched once, in the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def folder(name: str) -> Path:
    """Return the folder of the files of that name; it may not exist yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "farrier" / "models" / name


def keep(data: bytes, path: Path) -> None:
    """Move the file into place whole, so that a cut run leaves no half model behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)
