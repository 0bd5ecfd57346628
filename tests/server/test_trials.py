"""Tests of the data that a job's page shows: its tasks, its trials, their records."""

from __future__ import annotations

import dataclasses
import hashlib
import random

import pytest

from farrier.options import CompileOptions
from farrier.progress import TaskSchedule, TasksScheduled
from farrier.records import Context, TuningRecord
from farrier_device.measurement import Status
from tests.farm.indexes import check_indexes


def record(task: str, number: int, ns: int | None = None, context=Context.ALONE) -> TuningRecord:
    return TuningRecord(
        task=task,
        fingerprint="f",
        threads=2,
        rule="tile",
        version=3,
        decisions=(("ti", number),),
        trace="split i 7",
        status=Status.TIMEOUT if ns is None else Status.OK,
        samples_ns=() if ns is None else (ns, ns),
        created=float(number),
        context=context,
    )


@pytest.fixture
def lease(service):
    model = service.farm.blobs.put(b"model")
    service.farm.jobs.submit(model, CompileOptions(verify=False, target="rpi4"))
    return service.farm.jobs.lease("worker", 1)


def pages(http, path: str, what: str, **query) -> list[list]:
    """All pages of a resource."""
    collected = []
    while True:
        page = http.get(path, params=query).json()
        collected.append(page[what])
        if not page["next"]:
            return collected
        query["after"] = page["next"]


def test_trials_come_page_by_page_and_once(service, lease):
    http, records = service.http(), service.farm.records.of_job(lease.item)
    added = [record("ab"[n % 3 == 0], n, None if n == 7 else 1000 + n) for n in range(23)]
    for entry in added:
        records.add(entry)
        records.add(entry)  # The record is added again, as after a lost answer.
    service.farm.records.add(record("a", 99, 5))  # another's
    path = f"/v1/jobs/{lease.item}/trials"
    trial_pages = pages(http, path, "trials", limit=5)
    assert [len(page) for page in trial_pages] == [5, 5, 5, 5, 3]
    trials = [trial for page in trial_pages for trial in page]
    assert [trial["decisions"]["ti"] for trial in trials] == list(range(23))
    assert trials[8]["us"] == pytest.approx(1.008)
    assert (trials[7]["us"], trials[7]["status"]) == (None, "timeout")
    newest = [
        trial for page in pages(http, path, "trials", limit=9, order="newest") for trial in page
    ]
    assert newest == trials[::-1]
    mine = [entry for page in pages(http, path, "trials", limit=3, task="a") for entry in page]
    assert [entry["decisions"]["ti"] for entry in mine] == [n for n in range(23) if n % 3]
    # Whoever follows a job asks for what came after the last trial that it has.
    assert http.get(path, params={"after": trials[-1]["id"]}).json() == {"trials": [], "next": ""}
    records.add(record("a", 50, 9))
    (new,) = http.get(path, params={"after": trials[-1]["id"]}).json()["trials"]
    assert new["decisions"] == {"ti": 50}
    whole = http.get(f"/v1/jobs/{lease.item}/records", params={"limit": 2}).json()["records"]
    assert [TuningRecord.from_line(TuningRecord.to_line(entry)) for entry in added[:2]] == added[:2]
    assert [entry["samples_ns"] for entry in whole] == [[1000, 1000], [1001, 1001]]
    with service.client() as client:
        assert [entry.id for entry in client.trials(lease.item, after=trials[20]["id"])] == [
            *(trial["id"] for trial in trials[21:]),
            new["id"],
        ]
        assert [entry["task"] for entry in client.records(lease.item, task="a")] == ["a"] * 16


def test_the_fastest_trials_come_first_and_failed_ones_last(service, lease):
    http, records = service.http(), service.farm.records.of_job(lease.item)
    draw = random.Random(5)
    times = [None if n % 7 == 3 else draw.randrange(10, 10**12) for n in range(60)]
    added = [record("ab"[n % 3 == 0], n, ns) for n, ns in enumerate(times)]
    for entry in added:
        records.add(entry)
    path = f"/v1/jobs/{lease.item}/trials"
    for task in ("", "a", "b"):
        mine = [entry for entry in added if task in ("", entry.task)]
        due = sorted(
            (entry for entry in mine if entry.samples_ns), key=lambda entry: entry.samples_ns
        )
        trial_pages = pages(http, path, "trials", limit=7, task=task, order="fastest")
        trials = [trial for page in trial_pages for trial in page]
        ran = [trial["decisions"]["ti"] for trial in trials if trial["us"] is not None]
        assert ran == [entry.knobs["ti"] for entry in due]
        assert [trial["us"] is None for trial in trials] == [False] * len(due) + [True] * (
            len(mine) - len(due)
        )
        assert len({trial["id"] for trial in trials}) == len(mine)
    answer = http.get(path, params={"order": "fastest", "after": "1-1"})
    assert (answer.status_code, answer.json()["code"]) == (400, "usage")
    whole = http.get(f"/v1/jobs/{lease.item}/records", params={"order": "fastest", "limit": 1})
    assert whole.json()["records"][0]["samples_ns"] == [min(filter(None, times))] * 2


@pytest.mark.parametrize("order", ["oldest", "newest", "fastest"])
def test_trials_by_what_became_of_them_and_where(service, lease, order):
    http, records = service.http(), service.farm.records.of_job(lease.item)
    for number in range(40):
        context = Context.MODEL if number % 3 == 0 else Context.ALONE
        records.add(record("a", number, None if number % 5 == 0 else 100 + number, context))
    # An older version's trial says neither in its entry.
    old = record("a", 99, None)
    records.records.add(old)
    digest = hashlib.sha256(old.to_line().encode()).hexdigest()[:32]
    stream = f"farrier:job:trials:{lease.item}"
    service.farm.client.command("XADD", stream, "*", "record", digest, "task", "a")
    path = f"/v1/jobs/{lease.item}/trials"
    for query, due in (
        ({"status": "timeout"}, {n for n in range(40) if n % 5 == 0} | {99}),
        ({"status": "ok", "context": "model"}, {n for n in range(40) if n % 3 == 0 and n % 5}),
        ({"context": "alone", "status": "timeout"}, {5, 10, 20, 25, 35, 99}),
        ({"status": "wrong"}, set()),
    ):
        trial_pages = pages(http, path, "trials", limit=3, order=order, **query)
        trials = [trial["decisions"]["ti"] for page in trial_pages for trial in page]
        assert len(trials) == len(set(trials))
        assert set(trials) == (due - {99} if order == "fastest" else due)
    assert http.get(path, params={"status": "odd"}).status_code == 400


def test_what_each_choice_brought(service, lease):
    records = service.farm.records.of_job(lease.item)
    for number, (tile, unroll, ns) in enumerate(
        [(1, 4, 9000), (1, 8, 7000), (2, 4, 4000), (2, 8, None), (3, 4, None), (1, 4, 8000)]
    ):
        decisions = (("tile", tile), ("unroll", unroll))
        records.add(dataclasses.replace(record("a", number, ns), decisions=decisions))
    records.add(record("a", 7, 10, Context.MODEL))
    records.add(record("c", 7, 10, Context.MODEL))
    http, path = service.http(), f"/v1/jobs/{lease.item}/tasks"
    shown = http.get(f"{path}/a/choices").json()
    assert (shown["trials"], shown["best_us"]) == (6, pytest.approx(4.0))
    tile, unroll = shown["knobs"]
    assert (tile["knob"], unroll["knob"]) == ("tile", "unroll")
    assert [(value["value"], value["trials"]) for value in tile["values"]] == [
        (1, 3),
        (2, 2),
        (3, 1),
    ]
    assert [value["best_us"] for value in tile["values"]] == [*map(pytest.approx, (7.0, 4.0)), None]
    assert [value["median_us"] for value in tile["values"]] == [
        *map(pytest.approx, (8.0, 4.0)),
        None,
    ]
    # If no trial was measured alone, trials in the model count.
    assert http.get(f"{path}/c/choices").json()["trials"] == 1
    nothing = {"trials": 0, "best_us": None, "knobs": []}
    assert http.get(f"{path}/z/choices").json() == nothing
    assert http.get("/v1/jobs/nothing/tasks/a/choices").status_code == 404


def test_tasks_have_the_schedules_of_now_and_the_best_of_their_trials(service, lease):
    first = TaskSchedule(
        "a", "conv", 2, 0.9, "tile", 3, 700, {"ti": 1}, 8.0, {"ti": 1}, "default", 8.0
    )
    tasks = [dataclasses.replace(first, task=f"k{n}", name=f"conv {n}") for n in range(5)]
    say = service.farm.jobs.say
    say(lease, 1, TasksScheduled([first, *tasks], {}))
    say(lease, 2, TasksScheduled([first], {"n": 4}))
    better = dataclasses.replace(first, decisions={"ti": 7}, source="tuned", measured_us=3.5)
    say(lease, 3, TasksScheduled([better], {}))
    records = service.farm.records.of_job(lease.item)
    for number, ns in enumerate([5000, 4000, None, 6000]):
        records.add(record("a", number, ns))
    records.add(record("a", 9, 4500, Context.MODEL))
    http, path = service.http(), f"/v1/jobs/{lease.item}/tasks"
    page = http.get(path, params={"limit": 4}).json()
    assert [task["name"] for task in page["tasks"]] == ["conv", "conv 0", "conv 1", "conv 2"]
    task = page["tasks"][0]
    assert (task["decisions"], task["source"], task["measured_us"]) == ({"ti": 7}, "tuned", 3.5)
    assert (task["default"], task["default_us"], task["space"]) == ({"ti": 1}, 8.0, 700)
    assert (task["trials"], task["failed"]) == (5, 1)
    assert task["best_us"] == pytest.approx(4.0)
    assert task["best_in_model_us"] == pytest.approx(4.5)
    assert task["first_us"] == pytest.approx(5.0)
    assert task["first_in_model_us"] == pytest.approx(4.5)
    rest = http.get(path, params={"first": page["next"]}).json()
    assert [task["sizes"] for task in rest["tasks"]] == [{}, {}, {"n": 4}]
    assert rest["next"] is None
    with service.client() as client:
        assert [task_now.name for task_now in client.tasks(lease.item)][:2] == ["conv", "conv 0"]


def test_an_attempt_that_is_over_adds_no_trial_and_all_is_forgotten_with_the_events(service, lease):
    records, command = service.farm.records.of_job(lease.item), service.farm.client.command
    records.add(record("a", 1, 5))
    service.farm.jobs.say(lease, 1, TasksScheduled([], {}))
    service.farm.jobs.cancel(lease.item)
    records.add(record("a", 2, 4))
    assert service.farm.records.count() == 2
    (trial,) = service.http().get(f"/v1/jobs/{lease.item}/trials").json()["trials"]
    assert trial["decisions"] == {"ti": 1}
    for name in ("trials", "found"):
        assert command("TTL", f"farrier:job:{name}:{lease.item}") > 0


def test_a_deleted_job_leaves_nothing_of_its_tasks_and_trials(service, lease):
    task = TaskSchedule("a", "conv", 1, 1.0, "t", 3, 7, {}, 8.0, {}, "default", 8.0)
    service.farm.records.of_job(lease.item).add(record("a", 1, 5))
    service.farm.jobs.say(lease, 1, TasksScheduled([task], {}))
    command = service.farm.client.command
    assert len(command("KEYS", f"farrier:job:*:{lease.item}")) == 9
    service.farm.delete(lease.item)
    assert command("KEYS", f"farrier:job:*:{lease.item}") == []


def test_pages_of_what_is_not_there(service, lease):
    http = service.http()
    for what in ("tasks", "trials", "records"):
        assert http.get(f"/v1/jobs/nothing/{what}").status_code == 404
        assert http.get(f"/v1/jobs/{lease.item}/{what}", params={"limit": 0}).status_code == 400
        assert http.get(f"/v1/jobs/{lease.item}/{what}").json()[what] == []
    answer = http.get(f"/v1/jobs/{lease.item}/trials", params={"after": "x"})
    assert answer.status_code == 400
    assert "after" in answer.json()["detail"]


def test_the_list_of_trials_is_bounded(farm_settings, start_service):
    service = start_service(dataclasses.replace(farm_settings, trials_kept=10))
    service.farm.jobs.submit(
        service.farm.blobs.put(b"model"), CompileOptions(verify=False, target="rpi4")
    )
    lease = service.farm.jobs.lease("worker", 1)
    for number in range(400):
        service.farm.records.of_job(lease.item).add(record("a", number, 5))
    length = service.farm.client.command("XLEN", f"farrier:job:trials:{lease.item}")
    assert length <= 110
    # What was dropped is in no order.
    assert service.farm.client.command("ZCARD", f"farrier:job:fastest:{lease.item}") == 2 * length
    path = f"/v1/jobs/{lease.item}/trials"
    newest, fastest = (
        {
            trial["id"]
            for page in pages(service.http(), path, "trials", order=order)
            for trial in page
        }
        for order in ("newest", "fastest")
    )
    assert newest == fastest
    check_indexes(service.farm)
    assert service.farm.records.count() == 400
