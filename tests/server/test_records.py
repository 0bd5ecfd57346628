"""GET /v1/records: what the farm has learned, by device class."""

from __future__ import annotations

import dataclasses

from farrier_device.describe import describe
from tests.here import CLASS
from tests.server.test_trials import record


def test_records_by_class(service, device_side):
    http = service.http()
    assert http.get("/v1/records").json() == {"count": 0, "classes": [], "model": None}
    device_side.connect("board", dataclasses.asdict(describe()))
    for number, device_class in enumerate([CLASS.id, CLASS.id, "gone-4c-12345678", ""], start=1):
        made = dataclasses.replace(record("ab"[number % 2], number, 5), device_class=device_class)
        service.farm.records.add(made)
    found = http.get("/v1/records").json()
    assert found["count"] == 4
    classes = {one.pop("device_class"): one for one in found["classes"]}
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
