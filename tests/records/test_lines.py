"""Tests of files of records, read line by line: a malformed line is named, and the reader's memory
is bounded by a line."""

from __future__ import annotations

import json

import pytest

from farrier.errors import StorageError
from farrier.records import LONGEST_LINE, Damage, TuningRecord, read_lines, record_of
from tests.records.record_store_contract import a_record


def test_what_each_line_is(tmp_path):
    path = tmp_path / "records.jsonl"
    good, long = a_record().to_line().encode(), b'{"trace":"' + b"a" * 3 * LONGEST_LINE + b'"}'
    path.write_bytes(b"\n".join([good, b"", long, b"\xff", good + b"\r", b'{"task":']))
    first, second, third, fourth, fifth = read_lines(path)
    assert first == fourth == a_record()
    assert second == Damage(3, f"it is longer than {LONGEST_LINE} bytes")
    assert (third.line, fifth.line) == (4, 6)


def test_a_file_that_is_not_there_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match=r"none\.jsonl: No such file"):
        list(read_lines(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("created", "Infinity", "not a finite number"),
        ("created", "NaN", "not a finite number"),
        ("created", "-1.0", "not in the range 0 to inf"),
        ("created", "9" * 400, "not of type float"),
        ("samples_ns", f"[{10**30}]", r"samples_ns\[0\]: .* is not in the range"),
        ("task", '"\\ud800"', "surrogates"),
        ("decisions", "[" * 100_000, "not JSON"),
    ],
)
def test_what_no_store_could_keep_is_no_record(field, value, reason):
    raw = json.loads(a_record().to_line())
    line = json.dumps({**raw, field: "here"}).replace('"here"', value)
    with pytest.raises(ValueError, match=reason):
        record_of(line.encode())


def test_times_in_whole_seconds_are_read():
    assert TuningRecord.from_line(a_record().to_line().replace("1.5,", "2,")).created == 2.0
