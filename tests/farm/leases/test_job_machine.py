"""Any order of calls, by any holders, against a model of one job that fits in a few fields."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from farrier import progress
from farrier.errors import ConflictError, UsageError
from farrier.options import CompileOptions
from farrier_farm.errors import StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.leases.leases import Lease
from farrier_farm.leases.states import CHANGES, State
from farrier_farm.settings import Settings
from tests.here import TARGET

MODEL, ARTIFACT = "5e" * 32, "a7" * 32


class JobMachine(RuleBasedStateMachine):
    farm: Farm
    expire: object
    audit: object

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.farm.client.command("FLUSHALL")
        self.job = self.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
        self.state = State.QUEUED
        self.current: Lease | None = None
        self.finisher: Lease | None = None
        self.crashed: dict[Lease, State] = {}  # The leases that reported a crash, with the answer.
        self.attempts = self.crashes = self.said = 0

    @rule(target=leases, owner=st.sampled_from(["a", "b", "c"]))
    def lease(self, owner: str) -> Lease:
        lease = self.farm.jobs.lease(owner, 0)
        if self.state is State.QUEUED:
            assert lease is not None
            self.attempts += 1
            self._to(State.RUNNING)
            self.current = lease
        else:
            assert lease is None
        return lease or Lease(self.job, 999, 0, owner)

    @rule(lease=leases)
    def renew(self, lease: Lease) -> None:
        self._fenced(lease, lambda: self.farm.jobs.renew(lease))

    @rule(lease=leases)
    def say(self, lease: Lease) -> None:
        if self._fenced(
            lease, lambda: self.farm.jobs.say(lease, self.said + 1, progress.Warned("x"))
        ):
            self.said += 1

    @rule(lease=leases, succeed=st.booleans())
    def finish(self, lease: Lease, succeed: bool) -> None:
        def call() -> None:
            if succeed:
                self.farm.jobs.succeed(lease, ARTIFACT, {})
            else:
                self.farm.jobs.fail(lease, UsageError("no"))

        if lease == self.finisher:
            call()  # A repeated call succeeds and changes nothing.
        elif self._fenced(lease, call):
            self.finisher = lease
            self._to(State.SUCCEEDED if succeed else State.FAILED)

    @rule(lease=leases, crashed=st.booleans())
    def give_back(self, lease: Lease, crashed: bool) -> None:
        def call() -> State:
            return self.farm.jobs.give_back(lease, crashed=crashed, reason="boom")

        if lease in self.crashed:
            assert call() is self.crashed[lease]  # A repeated call changes nothing.
        elif self._fenced(lease, call):
            self._lost(crashed)
            if crashed:
                self.crashed[lease] = self.state

    @rule()
    def lose_the_holder(self) -> None:
        if self.state is State.RUNNING:
            self.expire(self.farm.jobs.leases, self.current)
            assert self.farm.jobs.reap() == 1
            self._lost(crashed=True)
        else:
            assert self.farm.jobs.reap() == 0

    @rule()
    def cancel(self) -> None:
        if self.state in (State.QUEUED, State.RUNNING):
            self.farm.jobs.cancel(self.job)
            self._to(State.CANCELLED)
        elif self.state is State.CANCELLED:
            self.farm.jobs.cancel(self.job)
        else:
            with pytest.raises(ConflictError):
                self.farm.jobs.cancel(self.job)

    @invariant()
    def agrees(self) -> None:
        job = self.farm.jobs.get(self.job)
        assert (job.state, job.attempts, job.crashes) == (self.state, self.attempts, self.crashes)
        assert (job.finished is not None) == job.state.final
        listed = {s for s in State for _ in self.farm.jobs.leases.members(state=s, limit=2)}
        assert listed == {self.state}
        self.audit(self.farm)
        assert self.farm.references.are_there(ARTIFACT) is (self.state is State.SUCCEEDED)
        events = self.farm.events.read(self.job)
        assert [e.last for e in events].index(True) == len(events) - 1 if job.state.final else True
        assert sum(e.data["kind"] == "warned" for e in events) == self.said

    def _fenced(self, lease: Lease, call: object) -> bool:
        """Call; whether that was to be accepted, and was."""
        if self.state is State.RUNNING and lease == self.current:
            call()
            return True
        with pytest.raises(StaleLeaseError):
            call()
        return False

    def _lost(self, crashed: bool) -> None:
        self.crashes += crashed
        self.current = None
        self._to(State.DEAD if self.crashes == 2 else State.QUEUED)

    def _to(self, state: State) -> None:
        assert state in CHANGES[self.state]
        self.state = state


@pytest.fixture
def farm(lease_settings: Settings) -> Iterator[Farm]:
    """A farm whose leases end only by `expire`, because a busy machine may take longer than a short
    lease between calls."""
    with contextlib.closing(Farm.open(dataclasses.replace(lease_settings, lease_s=300.0))) as farm:
        yield farm


@pytest.mark.long
def test_any_order_of_calls(farm: Farm, expire: object, audit: object) -> None:
    tools = {"expire": staticmethod(expire), "audit": staticmethod(audit)}
    machine = type("Machine", (JobMachine,), {"farm": farm, **tools})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
