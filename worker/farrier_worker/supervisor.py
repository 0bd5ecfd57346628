"""Who runs jobs: leases them, gives each a process, and settles how it ended.

One loop: look at the processes, renew the leases, lease another job. What a job's process says (its
events, its end) its gateway records at once, fenced like everything else, so the loop only has to
act when a process ends without having told an end, or must be stopped."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence

from farrier.errors import FarrierError, ServiceError
from farrier_device import logs
from farrier_farm.errors import StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.leases.leases import Lease
from farrier_farm.leases.states import State
from farrier_worker.attempt import Attempt

JOB_COMMAND = (sys.executable, "-P", "-m", "farrier_worker.job")

_TICK_S = 0.05  # between two looks at the processes
_RENEW_S = 1.0  # also how soon a cancelled job is noticed
_IDLE_S = 0.25  # waiting for a compilation while there is nothing else to do
_PREPARE_S = 0.25  # between two looks for what is to be prepared
_PAUSE_S = 0.5  # after a failure that may pass
_GARBAGE_S = 3600.0
_LOOK_S = 0.25  # between two looks at whether jobs keep to their limits

_log = logging.getLogger(__name__)


class Supervisor:
    """Runs up to `jobs_at_once` compilations, and beside them one short job: an inspection or a
    listing does not wait for what tunes for hours. Each runs with `command` (see `Attempt`)."""

    def __init__(
        self,
        farm: Farm,
        *,
        command: Sequence[str] = JOB_COMMAND,
        name: str | None = None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """`alive` is called each time the loop goes round."""
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._farm = farm
        self._settings = farm.settings
        self._command = list(command)
        self._alive = alive
        self._attempts: list[Attempt] = []
        self._drain_by: float | None = None
        self._renew_at = 0.0
        self._prepare_at = 0.0
        self._garbage_at = time.monotonic() + _GARBAGE_S

    def run(self) -> None:
        """Until `drain` was called and no job is left."""
        done = threading.Event()
        # Beside the loop, which waits for Redis where that stands still.
        watch = threading.Thread(target=self._watch_limits, args=(done,), name="limits")
        watch.start()
        try:
            while self._drain_by is None or self._attempts:
                self._alive()
                try:
                    self._step()
                except ServiceError as error:
                    _log.warning("%s; going on when it answers", error.message)
                    time.sleep(_PAUSE_S)
        finally:
            done.set()
            watch.join()
            for attempt in self._attempts:
                attempt.kill()

    def drain(self) -> None:
        """Leases no more; running jobs have `drain_s`, or no time at all at the second call. Safe
        to call from a signal handler."""
        now = time.monotonic()
        self._drain_by = now + self._settings.drain_s if self._drain_by is None else now

    def _step(self) -> None:
        for attempt in list(self._attempts):
            if attempt.ended():
                with logs.about(job=attempt.lease.item):
                    self._settle(attempt)
        now = time.monotonic()
        if now >= self._garbage_at:
            self._garbage_at = now + _GARBAGE_S
            # Beside the jobs: it may take longer than a lease lasts.
            threading.Thread(target=self._collect_garbage, name="garbage", daemon=True).start()
        if now >= self._renew_at:
            self._renew_at = now + min(_RENEW_S, self._settings.lease_s / 3)
            self._renew()
        for attempt in self._attempts:
            if self._drain_by is not None and now >= self._drain_by:
                attempt.stop("the worker was told to stop")
            attempt.press(self._settings.grace_s)
        if self._drain_by is None:
            self._lease(now)
        if self._attempts:
            time.sleep(_TICK_S)

    def _lease(self, now: float) -> None:
        """Begin what there is to do, as far as there are slots for it."""
        kinds = [JobKind.of(attempt.lease.item) for attempt in self._attempts]
        if now >= self._prepare_at and not any(kind.is_prepared for kind in kinds):
            self._prepare_at = now + _PREPARE_S
            self._begin(self._farm.jobs.lease_prepared(self.name))
        if kinds.count(JobKind.COMPILE) < self._settings.jobs_at_once:
            self._begin(self._farm.jobs.lease(self.name, 0.0 if self._attempts else _IDLE_S))

    def _begin(self, lease: Lease | None) -> None:
        if lease is not None:
            with logs.about(job=lease.item):
                _log.info("job %s, attempt %d", lease.item, lease.attempt)
            try:
                self._attempts.append(Attempt(self._farm, lease, self._command))
            except OSError as error:  # no more processes, or no room for temporary files
                reason = f"{self.name} cannot start a process: {error}"
                _log.warning("job %s goes back: %s", lease.item, reason)
                with contextlib.suppress(StaleLeaseError):  # cancelled meanwhile
                    self._farm.jobs.give_back(lease, crashed=False, reason=reason)
                time.sleep(_PAUSE_S)

    def _collect_garbage(self) -> None:
        try:
            _log.info("removed %d bytes of unused blobs", self._farm.collect_garbage())
        except (FarrierError, OSError) as error:
            _log.warning("unused blobs stay for now: %s", error)

    def _watch_limits(self, done: threading.Event) -> None:
        unseen: set[Lease] = set()  # the log names each once
        while not done.wait(_LOOK_S):
            for attempt in list(self._attempts):
                try:
                    attempt.check()
                except OSError as error:  # no more descriptors, say; it may pass
                    if attempt.lease not in unseen:
                        unseen.add(attempt.lease)
                        job = attempt.lease.item
                        _log.warning("what job %s holds cannot be seen now: %s", job, error)

    def _renew(self) -> None:
        for attempt in self._attempts:
            try:
                self._farm.jobs.renew(attempt.lease, attempt.clock.used)
            except StaleLeaseError as stale:
                state = self._state(attempt)
                recorded = state in (State.SUCCEEDED, State.FAILED)  # it is about to exit then
                attempt.stop(stale.message, after_s=self._settings.grace_s if recorded else 0.0)

    def _state(self, attempt: Attempt) -> State | None:
        job_id = attempt.lease.item
        return self._farm.jobs.leases_of(job_id).state(job_id)

    def _settle(self, attempt: Attempt) -> None:
        """Record the end of an attempt whose process is gone, where that did not do so itself."""
        try:
            if attempt.failure is not None:
                self._farm.jobs.fail(attempt.lease, attempt.failure)
                state = State.FAILED
            else:
                state = self._farm.jobs.give_back(
                    attempt.lease, crashed=attempt.crashed, reason=attempt.reason
                )
            _log.warning("job %s is now %s: %s", attempt.lease.item, state, attempt.reason)
        except StaleLeaseError:
            ended = self._state(attempt)
            _log.info("job %s is %s", attempt.lease.item, ended or "deleted")
            if ended in (State.CANCELLED, None):
                self._farm.measurements.drop(attempt.lease.item)
                self._farm.builds.drop(attempt.lease.item)
        self._attempts.remove(attempt)
