"""The machines that a job's target may name."""

from __future__ import annotations

from farrier.targets import known_machines, parse_target


def test_every_named_machine_is_listed_as_a_target_takes_it(service):
    listed = service.http().get("/v1/targets").json()["targets"]
    assert [target["name"] for target in listed] == list(known_machines())
    for target in listed:
        assert known_machines()[target["name"]].description.cores == target["cores"] > 0
        assert parse_target(target["name"]).arch == target["arch"]
        assert known_machines()[target["name"]].description.arch == target["arch"]
        assert target["source"]
