"""Files of JSON lines, read a line at a time however large they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from farrier.errors import StorageError, UsageError
from farrier.records.record import TuningRecord

LONGEST_LINE = 256 << 10  # bytes; a record has some 1,500


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """A line that is no record: `line` counts from 1."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, without their ends, and their numbers from 1; of one that is
    too long, as much as shows that. Raises StorageError."""
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
    """What each line is. Raises StorageError."""
    for number, line in numbered_lines(path):
        try:
            yield record_of(line)
        except ValueError as error:
            yield Damage(number, str(error))


def record_of(line: bytes) -> TuningRecord:
    """The record of a line that may be anything. Raises ValueError with the reason."""
    if len(line) > LONGEST_LINE:
        raise ValueError(f"it is longer than {LONGEST_LINE} bytes")
    return TuningRecord.from_line(line.decode())


def malformed(line: str, reason: ValueError) -> UsageError:
    """What ends an import at a `line` that is no record, by its number and where it stands."""
    return UsageError(
        f"{line} is no tuning record: {reason}; what comes before it is there, and nothing behind "
        "it was looked at",
        hint="mend or remove the line and go on: what is there is not added twice",
    )
