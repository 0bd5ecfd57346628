"""The storage of an exploration's results, one JSON line each, from which a later run continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from farrier.errors import StorageError


class Kept:
    """A persistent mapping from keys to JSON objects, in the file `path`. `add` returns once the
    object is on disk. A line truncated by a crash is skipped, and the newest line of a key
    counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, dict[str, Any]] = {}
        try:
            lines = path.read_bytes().splitlines() if path.exists() else []
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from error
        for line in lines:
            try:
                entry = json.loads(line)
                self._values[entry["key"]] = entry["value"]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue

    def get(self, key: str) -> dict[str, Any] | None:
        return self._values.get(key)

    def add(self, key: str, value: dict[str, Any]) -> None:
        """Append an object to the file. Raises StorageError."""
        line = json.dumps({"key": key, "value": value})
        try:
            with self._path.open("a+b") as file:
                # A line that a crash truncated is ended, so that the next object starts on a new
                # line.
                torn = file.seek(0, 2) and (file.seek(-1, 2), file.read(1))[1] != b"\n"
                file.write(b"\n" * bool(torn) + line.encode() + b"\n")
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}") from error
        self._values[key] = value
