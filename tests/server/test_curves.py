"""The curve of a job over REST, and the events that go on where it ends."""

from __future__ import annotations

import json

import pytest

from farrier.progress import TrialsMeasured
from tests.server.test_trials import lease, record

__all__ = ["lease"]


def test_a_curve_and_the_events_after_it_are_all_that_was_measured(service, lease):
    http, say = service.http(), service.farm.jobs.say
    say(lease, 1, TrialsMeasured(16, None, 9.0, None, "conv"))
    say(lease, 2, TrialsMeasured(32, None, 8.0, None, "conv"))
    service.farm.records.of_job(lease.item).add(record("a", 1, 5000))
    curve = http.get(f"/v1/jobs/{lease.item}/curve").json()
    assert [(point["trial"], point["ms"]) for point in curve["points"]] == [(16, 9.0), (32, 8.0)]
    assert curve["trials"] == 32
    [task] = curve["tasks"]
    assert (task["task"], task["name"]) == ("a", "a")
    assert [(point["trial"], point["us"]) for point in task["points"]] == [(1, pytest.approx(5.0))]
    say(lease, 3, TrialsMeasured(48, None, 7.0, None, "conv"))
    service.farm.jobs.cancel(lease.item)
    path = f"/v1/jobs/{lease.item}/events"
    streams = [
        http.get(path, params={"after": curve["event"]}).text,
        http.get(path, headers={"Last-Event-ID": curve["event"]}).text,
        http.get(path, params={"after": "1-1"}, headers={"Last-Event-ID": curve["event"]}).text,
    ]
    assert len(set(streams)) == 1
    events_after = [
        json.loads(line[6:]) for line in streams[0].splitlines() if line.startswith("data: ")
    ]
    assert [(event["kind"], event.get("trial")) for event in events_after] == [
        ("trials-measured", 48),
        ("state", None),
    ]
    assert events_after[0]["seconds"] >= curve["points"][-1]["seconds"]


def test_curves_of_what_is_not_there(service, lease):
    http = service.http()
    assert http.get("/v1/jobs/nothing/curve").status_code == 404
    path = f"/v1/jobs/{lease.item}/curve"
    assert http.get(path, params={"points": 2}).status_code == 400
    curve = http.get(path).json()
    assert (curve["points"], curve["tasks"], curve["trials"]) == ([], [], 0)
    answer = http.get(f"/v1/jobs/{lease.item}/events", params={"after": "x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "usage")
