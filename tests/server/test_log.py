"""The log of a job: every event but trials, as a sentence."""

from __future__ import annotations

import dataclasses
import json

import pytest

from farrier import progress
from farrier.errors import UsageError
from farrier.progress import events
from farrier_farm.farm import Farm
from tests.server.test_trials import lease, pages

__all__ = ["lease"]

SAID = {
    "import begins": progress.StageStarted("import"),
    "import took 1.2 s: 3 operators": progress.StageFinished("import", 1.25, "3 operators"),
    "sizes stay open: batch; taken for granted: batch < 9": progress.SizesSettled(
        ["batch"], ["batch < 9"]
    ),
    "3 distinct kernels in 5 calls": progress.TasksFound(3, 5),
    "tuning begins, its cost model is version 3": progress.TuningStarted("version 3"),
    "4 variants ran in turns: 2 schedules changed": progress.VariantsCompared("schedules", 4, 2),
    "tuning is over: race 5 s, search 60 s": progress.TimeSpent(
        65.0, {"search": 60.0, "race": 5.0}, {}
    ),
    "verified on board: error 1.0e-06 of the output's range, 2.500 ms, untuned 7.000 ms": (
        progress.Verified(1e-6, 2.5, 7.0, "board")
    ),
    "onnxruntime 1.20 on board: ours takes 0.80 of its time": progress.Raced(
        "onnxruntime", "1.20", "board", 4, {"median": 5.0}, {"median": 4.0}, 0.8, 1e-6
    ),
    "openvino 2026 on board: it refuses the model": progress.Raced(
        "openvino", "2026", "board", 4, note="it refuses the model"
    ),
    "version 2 of the artifact: 2.500 ms, untuned 7.000 ms": progress.VersionAdded(2, 2.5, 7.0),
    "version 1 of the artifact: 7.000 ms": progress.VersionAdded(1, 7.0, 7.0),
    "version 1 of the artifact": progress.VersionAdded(1, None, None),
    "rolled back to version 1 of the artifact": progress.RolledBack(1),
    "<b>hot</b>\x00": progress.Warned("<b>hot</b>\x00"),
}


def test_a_log_has_a_sentence_for_each_event_and_none_for_trials(service, lease):
    number = 0
    for event in SAID.values():
        for said in (event, progress.TrialsMeasured(16, None, 9.0, None, "conv")):
            number += 1
            service.farm.jobs.say(lease, number, said)
    service.farm.jobs.fail(lease, UsageError("no"))
    http, path = service.http(), f"/v1/jobs/{lease.item}/log"
    log_pages = pages(http, path, "lines", limit=4)
    lines = [line for page in log_pages for line in page]
    assert [line["text"] for line in lines] == ["queued", "running, attempt 1", *SAID, "failed: no"]
    assert {type(event) for event in SAID.values()} == (
        set(events._KINDS.values()) - {progress.TrialsMeasured, progress.TasksScheduled}
    )
    newest = [line for page in pages(http, path, "lines", order="newest") for line in page]
    assert newest == lines[::-1]
    assert lines[-1]["state"] == "failed"
    assert lines[-1]["error"]["code"] == "usage"
    assert (lines[2]["stage"], lines[3]["seconds"]) == ("import", 1.25)
    assert lines[0]["time"] <= lines[-1]["time"]
    # The ids are those of the stream of events.
    kept = {event.id for event in service.farm.events.read(lease.item)}
    assert {line["id"] for line in lines} <= kept
    assert http.get(path, params={"after": lines[-1]["id"]}).json() == {"lines": [], "next": ""}


def test_no_number_of_trials_pushes_a_line_out(farm_settings, start_service):
    from farrier.options import CompileOptions

    service = start_service(dataclasses.replace(farm_settings, events_kept=50))
    farm: Farm = service.farm
    farm.jobs.submit(farm.blobs.put(b"model"), CompileOptions(verify=False, target="rpi4"))
    lease = farm.jobs.lease("w", 1)
    farm.jobs.say(lease, 1, progress.Warned("first"))
    for number in range(2, 600):
        measured = progress.TrialsMeasured(number, None, 5.0, None, "conv")
        farm.jobs.say(lease, number, measured)
    assert "first" not in [stored.data.get("message") for stored in farm.events.read(lease.item)]
    lines = service.http().get(f"/v1/jobs/{lease.item}/log").json()["lines"]
    assert [line["text"] for line in lines] == ["queued", "running, attempt 1", "first"]


def test_a_job_of_an_older_version_has_the_lines_among_its_events(service, lease):
    service.farm.jobs.say(lease, 1, progress.Warned("one"))
    service.farm.jobs.say(lease, 2, progress.TrialsMeasured(16, None, 9.0, None, "conv"))
    service.farm.jobs.say(lease, 3, progress.Warned("two"))
    service.farm.client.command("DEL", f"farrier:job:log:{lease.item}")
    http, path = service.http(), f"/v1/jobs/{lease.item}/log"
    log_pages = pages(http, path, "lines", limit=2)
    assert [[line["text"] for line in page] for page in log_pages] == [
        ["queued", "running, attempt 1"],
        ["one", "two"],
    ]


def test_events_that_only_a_newer_version_knows_are_told_as_they_are(service, lease):
    write = service.farm.jobs.leases.write
    for number, event in enumerate([{"kind": "danced", "turns": 3}, {"kind": "verified"}], 1):
        write(lease, number, json.dumps(event), {}, "log")
    log = service.http().get(f"/v1/jobs/{lease.item}/log").json()["lines"]
    assert [line["text"] for line in log[2:]] == ['{"turns": 3}', "verified"]


@pytest.mark.parametrize(("job", "status"), [("nothing", 404), (None, 400)])
def test_logs_of_what_is_not_there(service, lease, job, status):
    params = {"after": "x"} if job is None else {}
    answer = service.http().get(f"/v1/jobs/{job or lease.item}/log", params=params)
    assert answer.status_code == status
