"""/v1/records: what the farm has learned, carried to another farm, and forgotten."""

from __future__ import annotations

import dataclasses
import json

import pytest

from farrier.errors import ForbiddenError, ServiceError
from farrier.files.atomic import write_atomically
from farrier.records import TuningRecord
from farrier.sdk.client import Client
from farrier.sdk.records import Imported
from farrier_device.describe import describe
from farrier_farm.access.users import Role, Users
from farrier_farm.records import records as records_module
from farrier_farm.records.entry import RecordEntry
from tests.here import CLASS
from tests.sdk.conftest import cut
from tests.server.test_trials import record

__all__ = ["cut"]


def test_records_by_class(service, device_side):
    http = service.http()
    assert http.get("/v1/records").json() == {"count": 0, "classes": [], "model": None}
    device_side.connect("board", dataclasses.asdict(describe()))
    for number, device_class in enumerate([CLASS.id, CLASS.id, "gone-4c-12345678", ""], start=1):
        record_of_class = dataclasses.replace(
            record("ab"[number % 2], number, 5), device_class=device_class
        )
        service.farm.records.add(record_of_class)
    shown = http.get("/v1/records").json()
    assert shown["count"] == 4
    classes = {entry.pop("device_class"): entry for entry in shown["classes"]}
    here = classes[CLASS.id]
    assert here["name"].endswith(f"with {describe().cores} cores")
    assert {name: here[name] for name in ("records", "tasks", "oldest", "newest")} == {
        "records": 2,
        "tasks": 2,
        "oldest": 1.0,
        "newest": 2.0,
    }
    assert classes["gone-4c-12345678"]["name"] == "gone-4c-12345678"
    assert classes[""]["records"] == 1


def test_records_by_rule(service):
    for number, ns in enumerate([5, None, 7]):
        service.farm.records.add(record("a", number, ns))
    (device_class,) = service.http().get("/v1/records").json()["classes"]
    assert device_class["rules"] == [
        {"rule": "tile", "records": 3, "tasks": 1, "failed": 1, "oldest": 0.0, "newest": 2.0}
    ]


def test_export_goes_through_all_pages(service):
    records = [record("ab"[number % 2], number, 5) for number in range(25)]
    service.farm.records.add_all(records)
    service.farm.records._add_entries([RecordEntry.of_line("{")])  # No version can read this line.
    http, after, lines = service.http(), "", []
    while True:
        page = http.get("/v1/records/export", params={"limit": 10, "after": after}).json()
        lines += [json.dumps(raw) for raw in page["records"]]
        after = page["next"]
        if not after:
            break
    assert [TuningRecord.from_line(line) for line in lines] == records
    shown = http.get("/v1/records/export", params={"task": "b", "since": 20, "limit": 1}).json()
    assert [raw["created"] for raw in shown["records"]] == [21.0]
    assert http.get("/v1/records/export", params={"task": "none"}).json() == {
        "records": [],
        "next": "",
    }


def test_a_page_whose_records_are_all_gone_or_unselected_is_not_the_last(service, monkeypatch):
    monkeypatch.setattr(records_module, "_LOOKED_AT", 4)
    service.farm.records.add_all(record("a", number, 5) for number in range(20))
    with service.client() as client:
        assert len(list(client.export_records(since=18.0))) == 2
        assert len(list(client.export_records(task="a"))) == 20


def test_import_tells_what_is_new_and_names_a_line(service):
    lines = [record("a", number, 5).to_line() for number in range(3)]
    http = service.http()
    sent = http.post("/v1/records/import", content="\n".join(lines[:2]))
    assert sent.json() == {"added": 2, "known": 0}
    sent = http.post("/v1/records/import?first=7", content="\n".join([*lines, "", "{}", lines[0]]))
    assert sent.status_code == 400
    assert "line 11 is not a tuning record: record: it has no field" in sent.json()["detail"]
    assert service.farm.records.count() == 3
    assert http.post("/v1/records/import", content=b"\xff\n").status_code == 400
    assert http.post("/v1/records/import", content=b"\n" * (1 << 21)).status_code == 413


def test_prune_wants_to_know_what(service):
    http = service.http()
    for body in ({}, {"dry_run": True}, {"keep": 0}, {"before": -1}, {"colour": 1}):
        assert http.post("/v1/records/prune", json=body).status_code == 400
    service.farm.records.add_all(record("a", number, [5, None][number % 2]) for number in range(6))
    dry = http.post("/v1/records/prune", json={"failed": True, "dry_run": True}).json()
    assert dry == {"pruned": 3, "next": ""}
    assert http.post("/v1/records/prune", json={"failed": True}).json() == dry
    assert service.farm.records.count() == 3
    for version, count in ((3, 0), (4, 3)):
        rules = [{"name": "tile", "version": version}]
        pruned = http.post("/v1/records/prune", json={"rules": rules}).json()
        assert pruned == {"pruned": count, "next": ""}


def test_shared_records_are_operators(service, tmp_path):
    """Users have records of their own; a setting is needed to let them read the shared ones."""
    users = Users(service.settings.home)
    path = tmp_path / "records.jsonl"
    path.write_text(record("b", 1, 5).to_line() + "\n")
    service.farm.records.add(record("a", 1, 5))
    with Client(service.url, users.add("ann")) as ann:
        assert [summary.records for summary in ann.show_records()] == [1]
        for refused in (
            lambda: ann.prune_records(before=1e9),
            lambda: ann.import_records(path),
            lambda: [*ann.export_records()],
            lambda: ann.fastest_schedules("a"),
        ):
            with pytest.raises(ForbiddenError, match="needs the role operator") as caught:
                refused()
            assert "--private" in caught.value.hint
        assert ann.import_records(path, private=True).added == 1
    with Client(service.url, users.add("bob", Role.OPERATOR)) as bob:
        assert len([*bob.export_records()]) == 1
        assert bob.prune_records(keep=1) == 0
        assert bob.prune_records(before=1e9) == 1


def test_users_read_shared_records_by_a_setting(farm_settings, start_service):
    service = start_service(dataclasses.replace(farm_settings, open_results=True))
    service.farm.records.add(record("a", 1, 5))
    with Client(service.url, Users(service.settings.home).add("ann")) as ann:
        assert len([*ann.export_records()]) == 1
        with pytest.raises(ForbiddenError):
            ann.prune_records(before=1e9)


def test_the_sdk_carries_records_from_one_farm_to_another(service, tmp_path, cut):
    records = [record("abc"[number % 3], number, 5 + number) for number in range(4500)]
    path, copy = tmp_path / "records.jsonl", tmp_path / "copy.jsonl"
    path.write_text("".join(f"{entry.to_line()}\n\n" for entry in records))
    proxy = cut(700_000, 400_000)
    parts = []
    with Client(proxy.url, service.token) as client:
        done = client.import_records(path, listener=parts.append)
        assert done.added + done.present == len(records)
        assert parts[-1] == done
        assert len(parts) > 3
    assert list(service.farm.records) == records
    proxy = cut(400_000, 100_000)
    with Client(proxy.url, service.token) as client:
        copy.write_text("".join(f"{line}\n" for line in client.export_records()))
        assert proxy.connections == 3
        assert copy.read_text() == path.read_text().replace("\n\n", "\n")
        assert client.import_records(copy) == Imported(0, len(records))
        schedules = client.fastest_schedules("b", 2)
        assert [entry.decisions["ti"] for entry in schedules] == [1, 4]
        (summary,) = client.show_records()
        assert (summary.rule, summary.records, summary.tasks) == ("tile", 4500, 3)
        steps = []
        assert client.prune_records(keep=2, listener=steps.append) == 4494
        assert steps == sorted(steps)
        assert service.farm.records.count() == 6


def test_an_export_that_is_cut_for_good_leaves_no_file(service, tmp_path, cut):
    service.farm.records.add_all(record("a", number, 5) for number in range(3000))
    proxy = cut(300_000, *[50_000] * 50)  # A page has about 200,000 bytes.
    with (
        Client(proxy.url, service.token, patience_s=0.5) as client,
        pytest.raises(ServiceError, match="broke"),
    ):
        write_atomically(
            tmp_path / "records.jsonl",
            lambda file: file.writelines(line.encode() for line in client.export_records()),
        )
    assert not list(tmp_path.iterdir())
