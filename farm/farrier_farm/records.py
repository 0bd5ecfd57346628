"""Tuning records in the farm: the `RecordStore` that every worker shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Records:
    """`add(record)` and `find(task_key, target_fingerprint)` are the compiler's `RecordStore`."""

    def count(self) -> int:
        raise NotImplementedError

    def export(self) -> Iterator[str]:
        """Every record as one JSON line (without the newline)."""
        raise NotImplementedError

    def load(self, lines: Iterable[str]) -> int:
        """Adds exported records; returns how many were new. UsageError names a malformed line."""
        raise NotImplementedError
