"""Jobs as the API sees them: submit, list, cancel, progress, results."""

from __future__ import annotations

import json

import pytest

from farrier import progress
from farrier.errors import ConflictError, NotFoundError, UnsupportedOperatorError, UsageError
from farrier.options import CompileOptions
from farrier_farm.errors import StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from tests.here import CLASS, TARGET

MODEL, OTHER = "5e" * 32, "7c" * 32
OPTIONS = CompileOptions(target=TARGET, shapes={"x": (1, 3, 127, 197)}, trials=64, seed=11)


def test_a_submitted_job_is_found_again(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, OPTIONS, name="resnet ü")
    assert farm.jobs.get(job.id) == job
    assert (job.state, job.model, job.compile_options, job.name) == (
        State.QUEUED,
        MODEL,
        OPTIONS,
        "resnet ü",
    )
    assert (job.attempts, job.started, job.finished, job.artifact) == (0, None, None, None)


def test_the_same_key_and_request_is_the_same_job(farm: Farm) -> None:
    assert farm.jobs.find_submitted(MODEL, OPTIONS, name="a", idempotency_key="k") is None
    first = farm.jobs.submit(MODEL, OPTIONS, name="a", idempotency_key="k")
    assert farm.jobs.find_submitted(MODEL, OPTIONS, name="a", idempotency_key="k") == first
    assert farm.jobs.find_submitted(MODEL, OPTIONS, name="a") is None
    assert farm.jobs.submit(MODEL, OPTIONS, name="a", idempotency_key="k") == first
    assert farm.jobs.submit(MODEL, OPTIONS, name="a", idempotency_key="other").id != first.id
    assert len(farm.jobs.list()[0]) == 2


@pytest.mark.parametrize(
    ("model", "options", "name"),
    [(OTHER, OPTIONS, "a"), (MODEL, CompileOptions(target=TARGET), "a"), (MODEL, OPTIONS, "b")],
)
def test_the_same_key_for_another_request_is_refused(farm: Farm, model, options, name) -> None:
    first = farm.jobs.submit(MODEL, OPTIONS, name="a", idempotency_key="k")
    for ask in (farm.jobs.submit, farm.jobs.find_submitted):
        with pytest.raises(ConflictError, match=first.id):
            ask(model, options, name=name, idempotency_key="k")


def test_a_key_stays_with_a_job_that_ended(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, OPTIONS, idempotency_key="k")
    farm.jobs.cancel(job.id)
    assert farm.jobs.submit(MODEL, OPTIONS, idempotency_key="k").state is State.CANCELLED


def test_pages_hold_every_job_once_newest_first(farm: Farm) -> None:
    ids = [farm.jobs.submit(MODEL, OPTIONS).id for _ in range(23)]
    seen, after = [], ""
    while True:
        page, after = farm.jobs.list(limit=5, after=after)
        seen += [job.id for job in page]
        if not after:
            break
        farm.jobs.submit(MODEL, OPTIONS)  # A new job does not shift the pages.
    assert seen == sorted(ids, reverse=True)


def test_the_list_by_state(farm: Farm) -> None:
    ids = sorted(farm.jobs.submit(MODEL, OPTIONS).id for _ in range(3))
    farm.jobs.cancel(ids[1])
    assert [job.id for job in farm.jobs.list(state=State.CANCELLED)[0]] == [ids[1]]
    assert [job.id for job in farm.jobs.list(state=State.QUEUED)[0]] == [ids[2], ids[0]]


def test_cancelling_what_has_ended_otherwise_is_refused(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, OPTIONS)
    lease = farm.jobs.lease("w", 0)
    farm.jobs.succeed(lease, OTHER, {"latency_ms": 1.25})
    with pytest.raises(ConflictError, match="succeeded"):
        farm.jobs.cancel(job.id)
    done = farm.jobs.get(job.id)
    assert (done.artifact, done.report, done.worker) == (OTHER, {"latency_ms": 1.25}, "w")
    assert done.created <= done.started <= done.finished


def test_progress_is_the_newest_of_each_kind(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, OPTIONS)
    lease = farm.jobs.lease("w", 0)
    said = [
        progress.StageStarted("import"),
        progress.TasksFound(tasks=7, kernels=12),
        progress.StageStarted("tune"),
        progress.TrialsMeasured(16, 64, float("inf"), None, "conv"),
        progress.TrialsMeasured(32, 64, 1.75, 8.0, "conv", failed=3),
    ]
    for number, event in enumerate(said, start=1):
        farm.jobs.say(lease, number, event)
    job = farm.jobs.get(job.id)
    assert (job.stage, job.tasks, job.trials, job.planned) == ("tune", 7, 32, 64)
    assert (job.best_ms, job.seconds_left, job.cost_model) == (1.75, 8.0, None)
    stored = [e.data for e in farm.events.read(job.id) if e.data["kind"] != "state"]
    assert [progress.from_dict(data) for data in stored[:3]] == said[:3]
    assert stored[3]["best_ms"] is None  # JSON has no infinity
    assert progress.from_dict(stored[4]) == said[4]


def test_a_failed_job_says_why(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, OPTIONS)
    lease = farm.jobs.lease("w", 0)
    farm.jobs.fail(lease, UnsupportedOperatorError("no Einsum", hint="use MatMul"))
    failed = farm.jobs.get(job.id)
    assert failed.state is State.FAILED
    assert failed.error == {
        "code": "unsupported-operator",
        "message": "no Einsum",
        "hint": "use MatMul",
    }
    last = farm.events.read(job.id)[-1]
    assert last.last
    assert last.data["error"] == failed.error


def test_a_cancelled_attempt_stores_nothing_more(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, OPTIONS)
    lease = farm.jobs.lease("w", 0)
    farm.jobs.cancel(job.id)
    before = farm.events.read(job.id)
    with pytest.raises(StaleLeaseError):
        farm.jobs.say(lease, 1, progress.StageStarted("import"))
    with pytest.raises(StaleLeaseError):
        farm.jobs.succeed(lease, OTHER, {})
    assert farm.events.read(job.id) == before


@pytest.fixture
def device_goes(farm: Farm):
    """Have a device look as if it had been silent for long."""

    def go(device_id: str) -> None:
        key = f"farrier:device:{device_id}"
        device_class = farm.client.command("HGET", key, "class")
        farm.client.command("HSET", key, "seen", 0)
        farm.client.command("ZADD", f"farrier:connected:{device_class}", 0, device_id)

    return go


def test_a_job_waits_in_the_queue_for_a_device(farm: Farm, connect_device, device_goes) -> None:
    waiting = farm.jobs.submit(MODEL, CompileOptions(target=TARGET), wait_for_device=True)
    assert waiting.wait_for_device
    [queued] = farm.events.read(waiting.id)
    assert queued.data["reason"] == f"no device for class:{CLASS.id} is connected"
    connect_device("pi", arch="aarch64", cpu="cortex-a72", features=["asimd", "fp"])
    other = farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    assert farm.jobs.lease("w", 0).item == other.id  # The waiting job does not delay others.
    assert farm.jobs.lease("w", 0) is None
    connect_device("d")
    lease = farm.jobs.lease("w", 0)
    assert (lease.item, lease.attempt) == (waiting.id, 1)
    device_goes("d")
    farm.jobs.give_back(lease, crashed=False, reason="it is away")
    again = farm.jobs.get(waiting.id)
    assert (again.state, again.crashes, again.wait_for_device) == (State.QUEUED, 0, True)
    assert farm.events.read(waiting.id)[-1].data["reason"] == "it is away"
    assert farm.jobs.lease("w", 0) is None
    connect_device("d")
    assert farm.jobs.lease("w", 0).attempt == 2


def test_a_device_in_quarantine_is_waited_for(farm: Farm, connect_device, device_side) -> None:
    _, session = connect_device("d")
    for fence in range(farm.settings.quarantine_faults):
        device_side.settle("d", session, "b", fence, fault=True)
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET), wait_for_device=True)
    assert "quarantine" in farm.events.read(job.id)[0].data["reason"]
    assert farm.jobs.lease("w", 0) is None
    farm.devices.release("d")
    assert farm.jobs.lease("w", 0).item == job.id


def test_a_lost_worker_loses_a_job_whose_device_is_away(
    farm: Farm, connect_device, device_goes, expire
) -> None:
    connect_device("d")
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET), wait_for_device=True)
    assert "reason" not in farm.events.read(job.id)[0].data
    expire(farm.jobs.leases, farm.jobs.lease("w", 0))
    device_goes("d")
    assert farm.jobs.lease("w2", 0) is None
    assert farm.jobs.get(job.id).state is State.QUEUED


def test_a_job_that_runs_no_code_waits_for_no_device(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET, verify=False), wait_for_device=True)
    assert not job.wait_for_device
    assert farm.jobs.lease("w", 0).item == job.id


def test_a_target_of_a_newer_worker_is_left_to_it(farm: Farm, connect_device) -> None:
    connect_device("d")
    newer = farm.jobs.submit(MODEL, CompileOptions(target=TARGET), wait_for_device=True)
    fields = farm.jobs.leases.fields(newer.id)
    asked = {name: fields[name] for name in ("model", "options", "name")}
    farm.jobs.leases.put("0" * 20, "device:x86-64-v9", asked)
    assert farm.jobs.lease("w", 0).item == newer.id
    assert farm.jobs.lease("w", 0) is None


def test_a_job_with_an_option_of_a_newer_server_is_listed(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, OPTIONS)
    newer = json.dumps({**OPTIONS.to_dict(), "warp": 9})
    farm.client.command("HSET", f"farrier:job:item:{job.id}", "options", newer)
    [listed] = farm.jobs.list()[0]
    assert listed.options["warp"] == 9
    with pytest.raises(UsageError, match="warp"):
        _ = listed.compile_options


def test_unknown_jobs(farm: Farm) -> None:
    for call in (farm.jobs.get, farm.jobs.cancel, farm.events.read):
        with pytest.raises(NotFoundError, match="nothing"):
            call("nothing")
