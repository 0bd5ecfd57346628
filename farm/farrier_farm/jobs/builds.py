"""Builds: kernel modules that builder processes compile for the process of a job. They use the same
lease layer as jobs and batches.

A build is a text (`farrier.compile_pool.helper`), and so is its result. Both are small (0.5 to 100
KB), so they are stored in Redis, and a builder needs access to nothing else of the farm. The result
is removed when it is read. The name of the queue contains a hash of the compiler's code, so a
builder compiles only for jobs whose own compiler generates the same code.

A build belongs to an attempt at a job: it is dropped when the job ends or another worker takes
over.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Sequence

from farrier.cache.key import compiler_digest
from farrier.errors import NotFoundError
from farrier_farm.leases.leases import Lease, LeasePolicy, Leases, new_id
from farrier_farm.leases.states import State
from farrier_farm.redis.connection import Client
from farrier_farm.settings import Settings

_KEPT_S = 60.0  # The time for which an unclaimed build is kept after its end.
_LEASE_S = 10.0  # The longest lease, because the job's kernels wait for a builder that is gone.
# The time in the queue after which a job compiles the build itself, since that is faster.
_CALLED_BACK_S = 2.0
_LOOK_S = 1.0
# The beginning of a reason that states a crash, for which the kernel module is to blame.
_CRASHED = "its process "
# KEYS: a sorted set of builders by their last sign of life. ARGV: expiry in ms, then a builder to
# note, with the number of its parallel builds. Returns the builders alive.
_BEAT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[1])
if ARGV[2] then
  redis.call('ZADD', KEYS[1], now, ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""


@functools.cache
def queue_name() -> str:
    """Return the name of the queue of builds for which this installation generates the same
    code."""
    return f"code-{compiler_digest()[:16]}"


def policy(settings: Settings) -> LeasePolicy:
    """Return the lease policy of builds."""
    return LeasePolicy(
        lease_s=min(settings.lease_s, _LEASE_S),
        crashes=settings.job_crashes,
        hint="see the logs of the builders",
        events=10,
        events_s=_KEPT_S,
        ttl_s=_KEPT_S,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Build:
    """A leased build: a text that describes the code to compile, and the job that requested the
    build (`lease.item` is the build's id)."""

    lease: Lease
    job: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of a build. Both fields are empty if no builder took the build, or its builder has
    disconnected."""

    answer: str = ""
    crashed: str = ""  # The way in which the compiling process of the last attempt ended.


class Builds:
    """The builds of a farm, as seen both by the supervisor of a job and by a builder. Every method
    raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.leases = Leases(client, "build", policy(settings))
        self._client = client
        self._expiry_ms = int(policy(settings).lease_s * 1000)
        self._beat = client.script(_BEAT)

    def builders(self) -> dict[str, int]:
        """Return the live builders of this version, each with the number of builds that it runs in
        parallel."""
        members = self._beat([_alive_key()], [self._expiry_ms])
        pairs = (member.rpartition(" ") for member in members)
        return {name: int(at_once) for name, _, at_once in pairs}

    def submit(self, message: str, job: Lease, owner: str = "") -> str:
        """Queue a build for an attempt at a job, and return the build's id. For the fair order
        among users, the build counts as one of `owner`."""
        fields = {"message": message, "job": job.item, "job_fence": str(job.fence)}
        return self.leases.put(new_id(), queue_name(), fields, group=job.item, share=owner)

    def wait(self, build_id: str, is_over: Callable[[], bool]) -> BuildResult:
        """Wait until a build ends, remove the build, and return its result. The result is empty if
        no builder takes the build in time, or if `is_over`, which is polled meanwhile, returns
        true."""
        newest, state = "", State.QUEUED
        waited_s, looked = 0.0, time.monotonic()
        while not is_over():
            events = self.leases.events(build_id, newest, _LOOK_S, 100)
            # The waiting time counts over all periods in the queue together.
            if state is State.QUEUED:
                waited_s += time.monotonic() - looked
            looked = time.monotonic()
            for event_id, text in events:
                newest, state = event_id, State(json.loads(text)["state"])
            if not events:
                self.leases.reap([queue_name()])
                state = self.leases.state(build_id) or State.CANCELLED
            if state.final or (state is State.QUEUED and waited_s > _CALLED_BACK_S):
                break
        return self._taken_out(build_id)

    def cancel(self, build_id: str) -> None:
        """Remove a build."""
        try:
            self.leases.forget(build_id)
        except NotFoundError:
            return

    def drop(self, job_id: str) -> int:
        """Cancel all builds of a job that have not ended; return their number."""
        builds = self.leases.members(group=job_id, limit=10_000)
        return sum(self.leases.cancel(build) is State.CANCELLED for build in builds)

    def beat(self, builder: str, at_once: int) -> None:
        """Store that a builder is alive; this is valid for the duration of a lease."""
        self._beat([_alive_key()], [self._expiry_ms, f"{builder} {at_once}"])

    def leave(self, builder: str, at_once: int) -> None:
        """Store that a builder takes no more builds."""
        self._client.command("ZREM", _alive_key(), f"{builder} {at_once}")

    def take(self, builder: str, timeout_s: float) -> Build | None:
        """Lease the oldest build; return None if there is none within `timeout_s`."""
        while True:
            lease = self.leases.take(builder, [queue_name()], timeout_s)
            if lease is None:
                return None
            try:
                message, job, fence = self.leases.read(lease.item, "message", "job", "job_fence")
            except NotFoundError:  # The build was removed meanwhile.
                continue
            if self._is_wanted(job, fence):
                return Build(lease, job, message)
            self.leases.cancel(lease.item)

    def finish(self, build: Build, answer: str) -> None:
        """Store a builder's answer. Raises StaleLeaseError."""
        self.leases.finish(build.lease, State.SUCCEEDED, {"answer": answer})

    def crash(self, build: Build, how: str) -> None:
        """Store that the process that compiled a build crashed. The build goes back to the queue if
        it has attempts left. Raises StaleLeaseError."""
        self.leases.give_back(build.lease, crashed=True, reason=_CRASHED + how)

    def hand_back(self, build: Build, reason: str) -> None:
        """Put a build back into the queue without counting a crash. Raises StaleLeaseError."""
        self.leases.give_back(build.lease, crashed=False, reason=reason)

    def renew(self, builder: str, builds: Sequence[Build]) -> list[Build]:
        """Renew a builder's leases, and return the builds whose leases were lost."""
        gone = set(self.leases.renew_held(builder, [build.lease.item for build in builds]))
        return [build for build in builds if build.lease.item in gone]

    def _taken_out(self, build_id: str) -> BuildResult:
        """Remove a build and return its result. The result is empty if the build has none."""
        try:
            answer, reason = self.leases.read(build_id, "answer", "last_crash")
        except NotFoundError:
            return BuildResult()
        self.cancel(build_id)
        if answer or not reason.startswith(_CRASHED):
            return BuildResult(answer)
        return BuildResult(crashed=reason.removeprefix(_CRASHED))

    def _is_wanted(self, job: str, fence: str) -> bool:
        """Return whether the attempt at a job that requested a build is still running."""
        fields = self._client.command("HMGET", f"farrier:job:item:{job}", "state", "fence")
        return bool(fields == [State.RUNNING, fence])


def _alive_key() -> str:
    return f"farrier:builders:{queue_name()}"
