"""Records in one file of JSON lines that is only ever appended to."""

from __future__ import annotations

import dataclasses
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from farrier.errors import StorageError, UsageError
from farrier.records.record import TuningRecord
from farrier.records.store import MemoryRecords


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """A line that is no record: `line` counts from 1."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class FileRecords:
    """A store in the file `path`, created when the first record is added.

    A record is on the disk when `add` returns. A line that a crash cut short, or that something
    else damaged, is skipped and listed in `damaged`; the file is never rewritten. Several processes
    may append to one file; each sees the others' records when it opens the file.
    """

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises StorageError where it cannot be read, UsageError where it holds
        something else: records would damage it."""
        self.path = path
        self.damaged: tuple[Damage, ...] = ()
        self._records = MemoryRecords()
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"cannot read the records in {path}: {error.strerror}") from error
        damaged = []
        lines = data.split(b"\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                self._records.add(TuningRecord.from_line(line.decode()))
            except ValueError as error:
                damaged.append(Damage(number, str(error)))
        self.damaged = tuple(damaged)
        # What a crash cut short begins as a record does.
        if damaged and not self._records and not any(line.startswith(b"{") for line in lines):
            raise UsageError(
                f"{path} holds no tuning records: {damaged[0]}",
                hint="name a file that --records made, or a new one",
            )

    def add(self, record: TuningRecord) -> None:
        if record in self._records:
            return
        try:
            self._append(record.to_line().encode())
        except OSError as error:
            raise StorageError(
                f"cannot add to the records in {self.path}: {error.strerror}",
                hint="free some space, or name another file",
            ) from error
        self._records.add(record)

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        return self._records.find(task, fingerprint)

    def __iter__(self) -> Iterator[TuningRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            # A line that was cut short stays damaged, but must not swallow this one.
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            data = (b"\n" if torn else b"") + line + b"\n"
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
