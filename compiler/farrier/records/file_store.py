"""A record store in one file of JSON lines, to which several processes may append."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO

from farrier.errors import StorageError, UsageError
from farrier.files.atomic import write_atomically
from farrier.records.lines import Damage, numbered_lines, record_of
from farrier.records.record import TuningRecord
from farrier.records.store import MemoryRecords
from farrier_device.storage import durable


class FileRecords:
    """A store in the file `path`, which is created when the first record is added.

    A record is on the disk when `add` returns. A line that is damaged, for example cut short by a
    crash, or longer than `LONGEST_LINE` is skipped and listed in `damaged`, and stays in the file.
    Several processes may append to one file, even while `remove` replaces it; each of them reads
    the others' records only when it opens the file.
    """

    def __init__(self, path: Path) -> None:
        """Read the file. Raises StorageError if it cannot be read, and UsageError if it contains
        something other than records, which appending would damage."""
        self.path = path
        self.damaged: tuple[Damage, ...] = ()
        self._records = MemoryRecords()
        damaged = []
        is_ours = False
        try:
            for number, line in numbered_lines(path):
                is_ours |= line.startswith(b"{")  # A record that a crash cut short begins so, too.
                try:
                    self._records.add(record_of(line))
                except ValueError as error:
                    damaged.append(Damage(number, str(error)))
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return
            raise
        self.damaged = tuple(damaged)
        if damaged and not is_ours:
            raise UsageError(
                f"{path} holds no tuning records: {damaged[0]}",
                hint="name a file that --records made, or a new one",
            )

    def add(self, record: TuningRecord) -> None:
        self.add_all([record])

    def add_all(self, records: Iterable[TuningRecord]) -> int:
        """Add the records together, and return the number of new ones. Raises as `add` does; a
        repeated call does not add records again that reached the disk before an error."""
        new = [record for record in dict.fromkeys(records) if record not in self._records]
        if not new:
            return 0
        try:
            self._append("".join(f"{record.to_line()}\n" for record in new).encode())
        except OSError as error:
            raise StorageError(
                f"cannot add to the records in {self.path}: {error.strerror}",
                hint="free some space, or name another file",
            ) from error
        for record in new:
            self._records.add(record)
        return len(new)

    def remove(self, records: Collection[TuningRecord]) -> None:
        """Replace the file atomically by one without these records. Raises StorageError."""
        gone = set(records)

        def write_to(file: IO[bytes]) -> None:
            with self.path.open("rb") as lines:
                file.writelines(line for line in lines if not _is_one_of(line, gone))

        try:
            with self._locked():
                write_atomically(self.path, write_to)
        except OSError as error:
            raise StorageError(
                f"cannot remove records from {self.path}: {error.strerror}"
            ) from error
        self._records = MemoryRecords(record for record in self._records if record not in gone)

    def find(self, task: str, fingerprint: str) -> list[TuningRecord]:
        return self._records.find(task, fingerprint)

    def __iter__(self) -> Iterator[TuningRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def _append(self, data: bytes) -> None:
        with self._locked() as descriptor:
            size = os.fstat(descriptor).st_size
            # A line that was cut short stays damaged, but must not swallow this one.
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            data = (b"\n" if torn else b"") + data
            durable.write_all(descriptor, data)
            os.fsync(descriptor)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file and lock it against writes by other processes; yield the descriptor."""
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if not self._is_replaced(descriptor):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)

    def _is_replaced(self, descriptor: int) -> bool:
        """Check whether another process has replaced the file since it was opened as
        `descriptor`."""
        try:
            return not os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return True


def _is_one_of(line: bytes, records: Collection[TuningRecord]) -> bool:
    try:
        return record_of(line.strip()) in records
    except ValueError:
        return False
