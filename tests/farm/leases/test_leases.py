"""One class holds jobs, batches and builds, all kinds of leased items, to the promises of the
layer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import pytest

from farrier.errors import NotFoundError
from farrier.options import CompileOptions
from farrier_device.measurement import MeasureRequest
from farrier_farm.errors import StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.leases.leases import Lease, Leases, new_id
from farrier_farm.leases.states import CHANGES, State
from tests.here import HERE, TARGET

MODEL = "5e" * 32


class LeaseConformance:
    """Subclasses say how items of their kind are put and taken."""

    crashes: int

    @pytest.fixture
    def leases(self, farm: Farm) -> Leases:
        raise NotImplementedError

    @pytest.fixture
    def put(self, farm: Farm) -> Callable[[], str]:
        raise NotImplementedError

    @pytest.fixture
    def take(self, farm: Farm, leases: Leases) -> Callable[..., Lease | None]:
        """Take an item as one of several holders; wait 0 s by default."""

        def take_one(owner: str = "holder-1", wait_s: float = 0.0) -> Lease | None:
            return leases.take(owner, leases.queues(), wait_s)

        return take_one

    def test_an_item_is_leased_to_one_holder(self, put, take) -> None:
        item = put()
        lease = take()
        assert lease is not None
        assert (lease.item, lease.attempt, lease.owner) == (item, 1, "holder-1")
        assert take("holder-2") is None

    def test_an_answer_that_is_lost_and_asked_for_again_leases_once(
        self, farm: Farm, put, take, monkeypatch
    ) -> None:
        items, command = [put(), put()], farm.client.command

        def twice(*words: str | int) -> object:
            command(*words)  # The answer of this call never arrives.
            return command(*words)

        with monkeypatch.context() as patch:
            patch.setattr(farm.client, "command", twice)
            first = take()
        assert (first.item, first.fence, first.attempt) == (items[0], 1, 1)
        assert take().item == items[1]

    def test_the_oldest_comes_first(self, put, take) -> None:
        items = [put() for _ in range(5)]
        assert [take().item for _ in range(5)] == items

    def test_the_oldest_of_several_queues_comes_first(self, leases) -> None:
        names = ["b", "a", "c", "c", "a", "b"]
        items = []
        for queue in names:
            items.append(leases.put(new_id(), queue, {}))
            time.sleep(0.003)  # Queues compare ages in milliseconds.
        assert leases.cancel(items[1]) is State.CANCELLED
        given_back = leases.take("h", ["a", "b", "c"], 0)
        assert given_back.item == items[0]
        leases.give_back(given_back, crashed=False, reason="to the end")
        order = [*items[2:], items[0]]
        assert [leases.take("h", ["a", "b", "c"], 0).item for _ in order] == order
        assert leases.take("h", ["a", "b", "c"], 0) is None

    def test_a_waiting_holder_gets_what_comes(self, put, take) -> None:
        put()
        take()
        timer = threading.Timer(0.2, put)
        timer.start()
        begin = time.monotonic()
        assert take("holder-2", 10.0) is not None
        assert time.monotonic() - begin < 0.9
        timer.join()

    def test_waiting_ends_in_time(self, put, take) -> None:
        put()
        take()
        begin = time.monotonic()
        assert take("holder-2", 0.3) is None
        assert 0.25 < time.monotonic() - begin < 1.0

    def test_an_expired_lease_is_taken_over_and_its_fence_refused(
        self, leases, put, take, expire
    ) -> None:
        item = put()
        old = take()
        expire(leases, old)
        new = take("holder-2")
        assert new.item == item
        assert new.fence > old.fence
        assert new.attempt == 2
        self._assert_refused(leases, old)
        leases.renew(new)

    @pytest.mark.parametrize("jump_ms", [-(10**7), 10**7])
    def test_time_in_which_redis_stood_still_takes_no_lease_away(
        self, farm, leases, put, take, expire, jump_ms
    ) -> None:
        """The clock seems to have jumped since anybody was heard."""
        item = put()
        lease = take()
        expire(leases, lease)
        kinds = {farm.jobs.leases: "job", farm.builds.leases: "build"}
        kind = kinds.get(leases, "batch")
        heard = int(farm.client.command("GET", f"farrier:{kind}:heard"))
        farm.client.command("SET", f"farrier:{kind}:heard", heard + jump_ms)
        assert take("holder-2") is None
        assert leases.reap(leases.queues()) == 0
        leases.renew(lease)
        expire(leases, lease)  # This time the lease expires by itself.
        assert take("holder-2").item == item

    def test_a_renewed_lease_stays(self, leases, put, take, expire) -> None:
        put()
        lease = take()
        expire(leases, lease)
        leases.renew(lease)
        assert take("holder-2") is None
        leases.renew(lease)

    def test_a_renewal_sets_fields_under_its_fence(self, leases, put, take) -> None:
        item = put()
        before = take()
        leases.renew(before, {"used": "1"})
        leases.give_back(before, crashed=False, reason="the worker drains")
        leases.renew(take(), {"used": "2"})
        with pytest.raises(StaleLeaseError):
            leases.renew(before, {"used": "3"})
        assert leases.fields(item)["used"] == "2"

    def test_an_end_is_recorded_once(self, leases, put, take) -> None:
        item = put()
        lease = take()
        assert leases.finish(lease, State.SUCCEEDED, {"value": "first"})
        assert not leases.finish(lease, State.SUCCEEDED, {"value": "second"})
        assert leases.fields(item)["value"] == "first"
        states = [e["state"] for e in _events(leases, item) if e["kind"] == "state"]
        assert states == ["queued", "running", "succeeded"]
        assert take() is None

    def test_a_late_end_of_an_old_attempt_is_refused(self, leases, put, take, expire) -> None:
        item = put()
        old = take()
        expire(leases, old)
        new = take("holder-2")
        assert leases.finish(new, State.SUCCEEDED, {"value": "new"})
        with pytest.raises(StaleLeaseError):
            leases.finish(old, State.SUCCEEDED, {"value": "old"})
        assert leases.fields(item)["value"] == "new"

    def test_handing_back_is_no_crash(self, leases, put, take) -> None:
        item = put()
        for attempt in range(1, 7):
            lease = take()
            assert lease.attempt == attempt
            assert leases.give_back(lease, crashed=False, reason="drain") is State.QUEUED
        assert leases.fields(item)["crashes"] == "0"

    def test_too_many_crashes_kill(self, leases, put, take) -> None:
        item = put()
        for _ in range(self.crashes - 1):
            assert leases.give_back(take(), crashed=True, reason="boom") is State.QUEUED
        lease = take()
        assert leases.give_back(lease, crashed=True, reason="the last straw") is State.DEAD
        error = json.loads(leases.fields(item)["error"])
        assert error["code"] == "dead"
        assert "the last straw" in error["message"]
        assert f"{self.crashes} crashes" in error["message"]
        assert _events(leases, item)[-1]["error"] == error
        assert take() is None
        assert leases.give_back(lease, crashed=True, reason="told again") is State.DEAD
        assert json.loads(leases.fields(item)["error"]) == error

    def test_a_crash_that_is_told_again_counts_once(self, leases, put, take) -> None:
        item = put()
        lease = take()
        for reason in ("boom", "told again"):
            assert leases.give_back(lease, crashed=True, reason=reason) is State.QUEUED
        new = take()
        assert leases.give_back(lease, crashed=True, reason="and again") is State.QUEUED
        leases.renew(new)
        fields = leases.fields(item)
        assert (fields["crashes"], fields["last_crash"]) == ("1", "boom")

    def test_lost_holders_kill_too(self, leases, put, take, expire) -> None:
        item = put()
        for _ in range(self.crashes):
            expire(leases, take("holder-x"))
        assert take() is None
        assert leases.state(item) is State.DEAD
        assert "holder-x stopped renewing" in leases.fields(item)["error"]

    def test_leases_expire_without_takers(self, leases, put, take, expire) -> None:
        item = put()
        expire(leases, take())
        assert leases.reap(leases.queues()) == 1
        assert leases.state(item) is State.QUEUED

    def test_a_cancelled_item_is_never_leased(self, leases, put, take) -> None:
        item, other = put(), put()
        assert leases.cancel(item) is State.CANCELLED
        assert leases.cancel(item) is State.CANCELLED
        assert take().item == other
        assert take() is None

    def test_cancelling_fences_the_holder_out(self, leases, put, take) -> None:
        item = put()
        lease = take()
        assert leases.cancel(item) is State.CANCELLED
        self._assert_refused(leases, lease)
        assert leases.state(item) is State.CANCELLED

    def test_cancelling_an_unknown_item(self, leases) -> None:
        with pytest.raises(NotFoundError):
            leases.cancel("nothing")

    @pytest.mark.parametrize("final", [state for state in State if state.final])
    def test_a_final_state_stays(self, leases, put, take, expire, final) -> None:
        item = put()
        lease = take()
        match final:
            case State.CANCELLED:
                leases.cancel(item)
            case State.DEAD:
                for _ in range(self.crashes):
                    leases.give_back(lease, crashed=True, reason="boom")
                    lease = take() or lease
            case _:
                leases.finish(lease, final, {})
        for other in (state for state in State if state.final and state is not final):
            if leases.fields(item).get("finished_by") == str(lease.fence):
                assert not leases.finish(lease, other, {})
            else:
                with pytest.raises(StaleLeaseError):
                    leases.finish(lease, other, {})
        assert leases.cancel(item) is final
        assert leases.state(item) is final

    def test_a_queued_item_cannot_be_finished(self, leases, put, take) -> None:
        item = put()
        lease = take()
        leases.give_back(lease, crashed=False, reason="drain")
        self._assert_refused(leases, lease)
        assert leases.state(item) is State.QUEUED

    def test_a_repeated_event_is_stored_once(self, leases, put, take) -> None:
        item = put()
        lease = take()
        for number in (1, 1, 2, 1, 3):
            event = json.dumps({"kind": "note", "number": number})
            leases.write(lease, number, event, {"newest": str(number)})
        noted = [e["number"] for e in _events(leases, item) if e["kind"] == "note"]
        assert noted == [1, 2, 3]
        assert leases.fields(item)["newest"] == "3"

    def test_each_attempt_numbers_its_own_events(self, leases, put, take) -> None:
        item = put()
        for _ in range(2):
            lease = take()
            leases.write(lease, 1, '{"kind": "note"}', {})
            leases.give_back(lease, crashed=False, reason="drain")
        assert [e["kind"] for e in _events(leases, item)].count("note") == 2

    def test_many_takers_share_without_overlap(self, leases, put, take) -> None:
        items = {put() for _ in range(60)}
        taken: list[str] = []

        def work(name: str) -> None:
            while (lease := take(name)) is not None:
                leases.finish(lease, State.SUCCEEDED, {})
                taken.append(lease.item)

        threads = [threading.Thread(target=work, args=(f"holder-{n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == sorted(items)

    def _assert_refused(self, leases: Leases, lease: Lease) -> None:
        before = leases.fields(lease.item)
        for change in (
            lambda: leases.renew(lease),
            lambda: leases.write(lease, 99, '{"kind": "note"}', {"value": "stale"}),
            lambda: leases.finish(lease, State.FAILED, {"value": "stale"}),
            lambda: leases.give_back(lease, crashed=True, reason="stale"),
        ):
            with pytest.raises(StaleLeaseError, match=lease.owner):
                change()
        assert leases.fields(lease.item) == before


class TestJobLeases(LeaseConformance):
    crashes = 2

    @pytest.fixture
    def leases(self, farm: Farm) -> Leases:
        return farm.jobs.leases

    @pytest.fixture
    def put(self, farm: Farm) -> Callable[[], str]:
        return lambda: farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id


class TestBatchLeases(LeaseConformance):
    crashes = 3

    @pytest.fixture
    def leases(self, farm: Farm) -> Leases:
        return farm.measurements.leases

    @pytest.fixture
    def put(self, farm: Farm, request_of: Callable[[str], MeasureRequest]) -> Callable[[], str]:
        return lambda: farm.measurements.submit(request_of("ab" * 32), HERE)


class TestBuildLeases(LeaseConformance):
    crashes = 2

    @pytest.fixture
    def leases(self, farm: Farm) -> Leases:
        return farm.builds.leases

    @pytest.fixture
    def put(self, farm: Farm) -> Callable[[], str]:
        job = Lease("a job", 1, 1, "a worker")
        return lambda: farm.builds.submit("{}", job)


def test_every_state_can_be_reached_and_left_as_declared() -> None:
    reached, grown = {State.QUEUED}, True
    while grown:
        more = {to for state in reached for to in CHANGES[state]}
        grown = not more <= reached
        reached |= more
    assert reached == set(State)
    assert {s for s in State if s.final} == set(State) - {State.QUEUED, State.RUNNING}


def _events(leases: Leases, item: str) -> list[dict[str, object]]:
    return [json.loads(text) for _, text in leases.events(item, "", 0.0, 1000)]
