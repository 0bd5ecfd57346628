"""The machines that a job's target may name."""

from __future__ import annotations

from farrier.targets import known_machines, parse_target


def test_every_named_machine_is_listed_as_a_target_takes_it(service):
    found = service.http().get("/v1/targets").json()["targets"]
    assert [one["name"] for one in found] == list(known_machines())
    for one in found:
        assert known_machines()[one["name"]].description.cores == one["cores"] > 0
        assert parse_target(one["name"]).arch == one["arch"]
        assert known_machines()[one["name"]].description.arch == one["arch"]
        assert one["source"]
