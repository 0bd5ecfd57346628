"""Read files of JSON lines one line at a time, however large they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from farrier.errors import StorageError, UsageError
from farrier.records.record import TuningRecord

LONGEST_LINE = 256 << 10  # In bytes; a record has about 1,500.


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """A line that is not a valid record: its number, counted from 1, and the reason."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number, counted from 1, and the content of each line that is not blank. A line that
    is too long is cut to `LONGEST_LINE + 2` bytes, by which the caller detects it. Raises
    StorageError."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 2):
                number += 1
                if text := line.strip():
                    yield number, text
                while line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST_LINE)
    except OSError as error:
        raise StorageError(f"cannot read the records in {path}: {error.strerror}") from error


def read_lines(path: Path) -> Iterator[TuningRecord | Damage]:
    """Yield for each line its record, or the damage if it is not a valid record. Raises
    StorageError."""
    for number, line in numbered_lines(path):
        try:
            yield record_of(line)
        except ValueError as error:
            yield Damage(number, str(error))


def record_of(line: bytes) -> TuningRecord:
    """Parse a line with arbitrary content as a record. Raises ValueError with the reason."""
    if len(line) > LONGEST_LINE:
        raise ValueError(f"it is longer than {LONGEST_LINE} bytes")
    return TuningRecord.from_line(line.decode())


def malformed(line: str, reason: ValueError) -> UsageError:
    """Return the error that aborts an import at a malformed line; `line` describes the line by file
    and number."""
    return UsageError(
        f"{line} is not a tuning record: {reason}; the records before it are added, and the others "
        "are not",
        hint="mend or remove the line and import again: records are not added twice",
    )
