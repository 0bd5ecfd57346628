"""`farrier records` on files, and the same verbs on a service."""

from __future__ import annotations

import pytest

from farrier.model_tuning.known_rules import known_rules
from farrier.records import Context, FileRecords, TuningRecord
from farrier_device.measurement import Status
from tests.records.record_store_contract import a_record

RULE = next(rule for rule in known_rules() if rule.name == "rows")


def _records() -> list[TuningRecord]:
    ours = {"rule": RULE.name, "version": RULE.version}
    return [
        a_record(**ours, created=1e9, decisions=(("nb", 1),)),
        a_record(**ours, created=1.5e9, decisions=(("nb", 2),), samples_ns=(500,)),
        a_record(**ours, created=1.5e9, context=Context.MODEL, device_class="a76"),
        a_record(**ours, created=1.6e9, task="b2", status=Status.WRONG, samples_ns=()),
        a_record(created=1.6e9, rule="gone", device_class="[red]a76"),
    ]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "records.jsonl"
    FileRecords(path).add_all(_records())
    return path


@pytest.fixture(params=["a file", "a service", "a user's own"])
def place(request, farrier, file):
    """Run a verb on a file, on a service, or on a user's private records, which are the same."""
    if request.param == "a file":
        return lambda *words, **env: farrier("records", *words, "--file", file, **env)
    service = request.getfixturevalue("service")
    is_private = request.param == "a user's own"
    store = service.farm.private_records("default") if is_private else service.farm.records
    store.add_all(_records())
    environment = {"FARRIER_SERVER": service.url, "FARRIER_TOKEN": service.token}
    options = ["--private"] if is_private else []
    return lambda *words: farrier("records", *words, *options, **environment)


def _lines(path) -> list[TuningRecord]:
    return list(FileRecords(path))


@pytest.mark.long
def test_show_export_and_prune(place, tmp_path):
    shown = place("show")
    assert shown.returncode == 0, shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines()]
    oldest, newest = ["2001-09-09", "01:46"], ["2020-09-13", "12:26"]
    assert rows[0] == ["class", "rule", "records", "tasks", "failed", "oldest", "newest"]
    assert ["(none)", "rows", "3", "2", "1", *oldest, *newest] in rows
    assert ["[red]a76", "gone", "1", "1", "0", *newest, *newest] in rows
    fastest = place("show", "--task", "a1", "--limit", "1").stdout
    assert [line.split()[1:3] for line in fastest.splitlines()[1:]] == [
        ["alone", "0.500"],
        ["alone", "1.000"],
        ["model", "1.000"],
    ]
    for options, due in (
        (["--since", "2017-07-14T02:40"], _records()[1:]),
        (["--device-class", "a76", "--task", "a1"], _records()[2:3]),
    ):
        done = place("export", "-o", "out.jsonl", *options)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == f"{len(due)} records in out.jsonl"
        assert _lines(tmp_path / "out.jsonl") == due
    nothing = place("prune")
    assert nothing.returncode == 2
    assert "--older-than" in nothing.stderr
    dry = place("prune", "--other-versions", "--dry-run")
    assert dry.stdout.strip() == "1 records would go"
    for options in (["--other-versions"], ["--failed"], ["--keep", "1", "--device-class", ""]):
        assert place("prune", *options).stdout.strip() == "1 records removed"
    done = place("export", "-o", "out.jsonl")
    assert _lines(tmp_path / "out.jsonl") == _records()[1:3]
    assert place("prune", "--older-than", "1d").stdout.strip() == "2 records removed"
    assert place("prune", "--older-than", "soon").returncode == 2


@pytest.mark.long
def test_import_into_a_service_and_into_a_file(farrier, service, file, tmp_path):
    environment = {"FARRIER_SERVER": service.url, "FARRIER_TOKEN": service.token}
    for options in (["--into", "other.jsonl"], []):
        for expected in ("5 records added, 0", "0 records added, 5"):
            done = farrier("records", "import", file, *options, **environment)
            assert done.returncode == 0, done.stderr
            assert done.stdout.strip() == f"{expected} were there already"
    assert list(service.farm.records) == _lines(tmp_path / "other.jsonl") == _records()
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], "", '{"task": 7}', *lines[2:]]))
    for options in (["--into", "new.jsonl"], []):
        done = farrier("records", "import", file, *options, **environment)
        assert done.returncode == 2
        assert "line 4 " in done.stderr
        assert "and the others are not" in done.stderr
        assert not done.stdout
    assert _lines(tmp_path / "new.jsonl") == _records()[:2]


@pytest.mark.long
def test_what_cannot_be_read_or_written_is_told(farrier, file, tmp_path):
    for words in (
        ["show", "--file", "none.jsonl"],
        ["export", "--file", "none.jsonl", "-o", "out.jsonl"],
        ["prune", "--failed", "--file", "none.jsonl"],
        ["import", "none.jsonl", "--into", "out.jsonl"],
        ["export", "--file", file, "-o", tmp_path],
    ):
        done = farrier("records", *words)
        assert done.returncode == 9, words
    assert not (tmp_path / "out.jsonl").exists()
    assert farrier("records", "export", "--since", "then", "-o", "x").returncode == 2
    done = farrier("records", "import", file, "--into", "out.jsonl", "--private")
    assert done.returncode == 2
    assert "leave out --private" in done.stderr
    with file.open("a") as records:
        records.write('{"task":')
    done = farrier("records", "show", "--file", file)
    assert f"1 lines of {file} are not records: line 6" in done.stderr
