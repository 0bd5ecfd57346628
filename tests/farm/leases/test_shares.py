"""Fair shares between the owners of jobs, and how many may wait."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from farrier.errors import ConflictError, QueueFullError
from farrier.options import CompileOptions
from farrier_farm.errors import StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.jobs.priorities import Priority
from farrier_farm.leases import leases as lease_layer
from farrier_farm.leases.leases import Lease
from farrier_farm.leases.states import State
from farrier_farm.storage.references import REFERENCES
from tests.device_side import BlockingDeviceSide
from tests.farm.indexes import check_indexes
from tests.farm.measurements.test_confirmation import REQUEST
from tests.here import HERE, TARGET

MODEL, ARTIFACT = "5e" * 32, "a7" * 32
OLDER = Path(__file__).parent / "older" / "leases.lua"


def _submit(farm: Farm, owner: str, **changes: object) -> str:
    return farm.jobs.submit(MODEL, CompileOptions(target=TARGET), owner=owner, **changes).id


def _owners(farm: Farm, count: int) -> list[str]:
    leases = [farm.jobs.lease("w", 0) for _ in range(count)]
    return [farm.jobs.get(lease.item).owner for lease in leases]


def test_who_has_less_running_comes_first(farm: Farm) -> None:
    for _ in range(100):
        _submit(farm, "ann")
    _submit(farm, "bob")
    assert _owners(farm, 3) == ["ann", "bob", "ann"]
    for _ in range(3):
        _submit(farm, "cat")
    assert _owners(farm, 5) == ["cat", "cat", "ann", "cat", "ann"]


def test_who_was_served_longest_ago_comes_first_of_equals(farm: Farm) -> None:
    for owner in ("ann", "ann", "ann", "bob", "bob", "cat"):
        _submit(farm, owner)
    served = []
    for _ in range(6):
        lease = farm.jobs.lease("w", 0)
        served.append(farm.jobs.get(lease.item).owner)
        farm.jobs.succeed(lease, ARTIFACT, {})
    assert served == ["ann", "bob", "cat", "ann", "bob", "ann"]


def test_a_device_measures_for_owners_in_turn(farm: Farm, audit: Callable[[Farm], None]) -> None:
    """A user whose batches come one by one waits for one batch of another, however many wait."""
    leases = farm.measurements.leases
    owners: dict[str, str] = {}

    def submit(owner: str) -> str:
        batch = farm.measurements.submit(REQUEST, HERE, owner=owner)
        owners[batch] = owner
        return batch

    for _ in range(20):
        submit("ann")
    served = []
    submit("bob"), submit("cat")
    for _ in range(8):
        lease = leases.take("device", [HERE.queue], 0.0)
        assert lease is not None
        owner = owners[lease.item]
        served.append(owner)
        leases.finish(lease, State.SUCCEEDED, {})
        if owner != "ann":
            submit(owner)
        audit(farm)
    assert served == ["ann", "bob", "cat", "ann", "bob", "cat", "ann", "bob"]
    probe = submit("")
    lease = leases.take("device", [HERE.queue], 0.0)
    assert lease is not None
    assert lease.item == probe
    assert farm.client.command("ZCARD", "farrier:batch:share:ann") == 17


def test_a_priority_orders_the_jobs_of_one_owner_alone(
    farm: Farm, audit: Callable[[Farm], None]
) -> None:
    for priority in (Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.LOW, Priority.HIGH):
        _submit(farm, "ann", priority=priority)
    for _ in range(2):
        _submit(farm, "bob", priority=Priority.LOW)
    served = []
    for _ in range(7):
        lease = farm.jobs.lease("w", 0)
        audit(farm)
        job = farm.jobs.get(lease.item)
        served.append((job.owner, str(job.priority)))
        farm.jobs.succeed(lease, ARTIFACT, {})
    assert [owner for owner, _ in served[:4]] == ["ann", "bob", "ann", "bob"]
    assert [priority for owner, priority in served if owner == "ann"] == [
        "high",
        "high",
        "normal",
        "low",
        "low",
    ]


def test_a_job_that_comes_back_keeps_its_priority(farm: Farm) -> None:
    high = _submit(farm, "ann", priority=Priority.HIGH)
    lease = farm.jobs.lease("w", 0)
    low, normal = _submit(farm, "ann", priority=Priority.LOW), _submit(farm, "ann")
    farm.jobs.give_back(lease, crashed=False, reason="")
    assert [farm.jobs.lease("w", 0).item for _ in range(3)] == [high, normal, low]


def test_a_key_is_of_one_priority(farm: Farm) -> None:
    job = _submit(farm, "ann", idempotency_key="k", priority=Priority.LOW)
    assert _submit(farm, "ann", idempotency_key="k", priority=Priority.LOW) == job
    with pytest.raises(ConflictError):
        _submit(farm, "ann", idempotency_key="k")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_calls_leases_the_job_whose_turn_it_is(
    farm: Farm,
    expire: Callable[..., None],
    audit: Callable[[Farm], None],
    device_side: BlockingDeviceSide,
    seed: int,
) -> None:
    """Against a model that goes through all jobs. Some wait in another queue, for a device. No
    lease ends and no device goes by itself."""
    choose = random.Random(seed)
    leases = farm.jobs.leases
    farm = Farm.open(dataclasses.replace(farm.settings, lease_s=1000.0, device_expiry_s=1000.0))
    device_side.connect("d", _description())
    queued: list[tuple[str, str]] = []  # (job, owner), the oldest first
    running: dict[str, tuple[str, Lease]] = {}  # by job
    queue_of: dict[str, bool] = {}
    rank: dict[str, int] = {}  # The jobs by priority, the highest first.
    served: dict[str, int] = {}
    crashes: dict[str, int] = {}
    ended: list[str] = []

    def due() -> tuple[str, str]:
        def turn(entry: tuple[str, str]) -> tuple[int, int, int]:
            job, owner = entry
            busy = sum(who == owner for who, _ in running.values())
            return busy, served.get(owner, 0), rank[job]

        return min(queued, key=turn)

    def owners_left() -> set[str]:
        here = [*(owner for _, owner in queued), *(owner for owner, _ in running.values())]
        return {farm.jobs.get(job).owner for job in ended}.union(here)

    for step in range(150):
        action = choose.choice(["submit"] * 5 + ["lease"] * 4 + ["end"] * 6)
        if action == "submit":
            owner = choose.choice(["ann", "bob", "cat", "dan", "default"])
            waits = choose.random() < 0.3
            priority = choose.choice(list(Priority))
            job = _submit(farm, owner, wait_for_device=waits, priority=priority)
            queued.append((job, owner))
            rank[job] = -list(Priority).index(priority)
            queue_of[job] = waits
        elif action == "lease":
            lease = farm.jobs.lease("w", 0)
            if not queued:
                assert lease is None
                continue
            for _, owner in sorted(queued, key=lambda entry: queue_of[entry[0]]):
                # The order is that in which they are sorted.
                served.setdefault(owner, len(served) + 1000 * step - 10**9)
            job, owner = due()
            assert lease is not None
            assert lease.item == job
            queued.remove((job, owner))
            running[job] = owner, lease
            served[owner] = step + 1
        else:
            held = ["finish", "finish", "back", "crash", "lose"] if running else []
            how = choose.choice(["cancel", "delete", *held])
            if how in ("cancel", "delete"):
                existing = [job for job, _ in queued] + list(running)
                if not existing:
                    continue
                job = choose.choice(existing)
                queued = [entry for entry in queued if entry[0] != job]
                owner, _ = running.pop(job, ("", None))
                if how == "cancel":
                    farm.cancel(job)
                    ended.append(job)
                else:
                    farm.delete(job)
            else:
                job = choose.choice(list(running))
                owner, lease = running.pop(job)
                if how == "finish":
                    farm.jobs.succeed(lease, ARTIFACT, {}, artifact_bytes=choose.randrange(3))
                    ended.append(job)
                else:
                    crashes[job] = crashes.get(job, 0) + (how != "back")
                    if how == "lose":
                        expire(leases, lease)
                        assert farm.jobs.reap() == 1
                    else:
                        farm.jobs.give_back(lease, crashed=how == "crash", reason="boom")
                    if crashes[job] == farm.settings.job_crashes:
                        ended.append(job)
                    else:
                        queued.append((job, owner))
            served = {owner: n for owner, n in served.items() if owner in owners_left()}
        if step % 10 == 0:
            audit(farm)
    audit(farm)
    assert len(ended) > 20
    farm.close()


def _description() -> dict[str, object]:
    from farrier_device.describe import describe

    return dataclasses.asdict(describe())


def test_a_full_queue_takes_no_more_but_knows_what_it_has(lease_settings) -> None:
    settings = dataclasses.replace(lease_settings, max_queued_jobs=5, max_queued_jobs_of_owner=3)
    farm = Farm.open(settings)
    farm.client.command("FLUSHALL")
    first = _submit(farm, "ann", idempotency_key="k")
    for _ in range(2):
        _submit(farm, "ann")
    with pytest.raises(QueueFullError, match="3 jobs of ann") as full:
        _submit(farm, "ann")
    assert full.value.retry_after_s > 0
    assert "FARRIER_MAX_QUEUED_JOBS_OF_OWNER is the limit" in full.value.hint
    assert _submit(farm, "ann", idempotency_key="k") == first
    for _ in range(2):
        _submit(farm, "bob")
    with pytest.raises(QueueFullError, match="5 jobs are waiting"):
        _submit(farm, "bob")
    lease = farm.jobs.lease("w", 0)
    assert lease.item == first
    _submit(farm, "ann")  # Running jobs do not count as waiting.
    farm.jobs.give_back(lease, crashed=False, reason="drain")  # A returned job is not refused.
    check_indexes(farm)
    farm.close()


def test_a_key_is_its_owner_s(farm: Farm) -> None:
    jobs = [_submit(farm, owner, idempotency_key="k") for owner in ("ann", "bob", "default")]
    assert len(set(jobs)) == 3
    assert [
        _submit(farm, owner, idempotency_key="k") for owner in ("ann", "bob", "default")
    ] == jobs
    with pytest.raises(ConflictError, match=f"key 'k' belongs to job {jobs[0]}"):
        _submit(farm, "ann", name="another", idempotency_key="k")


def test_the_list_by_owner(farm: Farm) -> None:
    jobs = [_submit(farm, owner) for owner in ("ann", "bob", "ann")]
    farm.cancel(jobs[0])
    newest_first = sorted([jobs[0], jobs[2]], reverse=True)
    assert [job.id for job in farm.jobs.list(owner="ann")[0]] == newest_first
    assert [job.id for job in farm.jobs.list(owner="ann", state=State.QUEUED)[0]] == [jobs[2]]
    assert farm.jobs.list(owner="nobody") == ([], "")


@pytest.fixture
def older(farm: Farm) -> Callable[..., list[object]]:
    """The script of the version before shares, on the same farm."""
    constants = lease_layer.script(farm.jobs.leases._policy).split("\n")[:2]
    script = farm.client.script("\n".join([*constants, OLDER.read_text()]))

    def call(*words: str | int) -> list[object]:
        answer: list[object] = script(["farrier:job", REFERENCES], words)
        return answer

    return call


def _put_before(older: Callable[..., list[object]], job: str, key: str = "") -> str:
    fields = {"model": MODEL, "options": "{}", "name": ""}
    flat = [word for pair in fields.items() for word in pair]
    assert older("put", job, "compile", "all", key, "", "", *flat) == ["created", job]
    return job


def test_jobs_of_an_older_version_are_served_and_shared(farm: Farm, older) -> None:
    before = [_put_before(older, f"{n:020x}", f"k{n}") for n in range(3)]
    _submit(farm, "ann")
    assert _owners(farm, 4) == ["default", "ann", "default", "default"]
    assert {job.id for job in farm.jobs.list(owner="default")[0]} == set(before)
    farm.adoption.run()
    check_indexes(farm)


def test_roles_of_an_older_version_beside_this_one_lose_nothing(farm: Farm, older) -> None:
    """A server that cancels and puts, and a worker that leases, do not know of shares."""
    jobs = [_submit(farm, "ann") for _ in range(3)]
    assert older("cancel", jobs[0]) == ["cancelled"]  # in its line
    lease = farm.jobs.lease("w", 0)
    assert lease.item == jobs[1]
    assert older("cancel", jobs[1]) == ["cancelled"]  # running
    with pytest.raises(StaleLeaseError):
        farm.jobs.renew(lease)
    theirs = _put_before(older, f"{0:020x}")
    word, taken, fence, _ = older("take", "older", "call", "compile")
    assert (word, taken) == ("granted", theirs)
    assert older("renew", theirs, fence) == ["ok"]
    _submit(farm, "bob")
    assert _owners(farm, 2) == ["bob", "ann"]  # Bob was served before.
    assert older("finish", theirs, fence, "succeeded") == ["ok"]
    assert farm.jobs.lease("w", 0) is None
    ours = _submit(farm, "cat")
    assert older("take", "older", "another call", "compile")[:2] == ["granted", ours]
    farm.adoption.run()
    check_indexes(farm)
