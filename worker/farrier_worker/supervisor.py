"""The supervisor of jobs, which leases jobs, runs each in a process, and records its end.

One loop checks the processes, renews the leases and leases more jobs. The channel server of a job
records the events and the end that the process reports as soon as they arrive, valid only while the
job's lease is. The loop acts only if a process ends without a report, or has to be stopped.
"""

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

_TICK_S = 0.05  # The interval at which processes are checked.
_RENEW_S = 1.0  # The interval at which leases are renewed, and cancelled jobs noticed.
_IDLE_S = 0.25  # The time to wait for a compilation when nothing else is to be done.
_PREPARE_S = 0.25  # The interval at which inspections and listings are looked for.
_PAUSE_S = 0.5  # The pause after a failure that may pass.
_GARBAGE_S = 3600.0
_LOOK_S = 0.25  # The interval at which the limits of jobs are checked.

_log = logging.getLogger(__name__)


class Supervisor:
    """The supervisor of up to `jobs_at_once` compilations, and of one additional short job, so that
    an inspection or a listing need not wait for jobs that tune for hours. Each job runs in a
    process started by `command` (see `Attempt`)."""

    def __init__(
        self,
        farm: Farm,
        *,
        command: Sequence[str] = JOB_COMMAND,
        name: str | None = None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a supervisor; it calls `alive` in each iteration of its loop."""
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
        """Run jobs until `drain` has been called and no job is left."""
        done = threading.Event()
        # Limits are watched by a thread, because the loop stands still while Redis does.
        watch = threading.Thread(target=self._watch_limits, args=(done,), name="limits")
        watch.start()
        try:
            while self._drain_by is None or self._attempts:
                self._alive()
                try:
                    self._step()
                except ServiceError as error:
                    _log.warning("%s; continuing when it answers", error.message)
                    time.sleep(_PAUSE_S)
        finally:
            done.set()
            watch.join()
            for attempt in self._attempts:
                attempt.kill()

    def drain(self) -> None:
        """Stop leasing jobs. Running jobs get `drain_s` seconds to end, and no time at all after a
        second call. Safe to call from a signal handler."""
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
            # Garbage collection runs in a thread, because it may take longer than a lease lasts.
            threading.Thread(target=self._collect_garbage, name="garbage", daemon=True).start()
        if now >= self._renew_at:
            self._renew_at = now + min(_RENEW_S, self._settings.lease_s / 3)
            self._renew()
        for attempt in self._attempts:
            if self._drain_by is not None and now >= self._drain_by:
                attempt.stop("the worker was stopped")
            attempt.press(self._settings.grace_s)
        if self._drain_by is None:
            self._lease(now)
        if self._attempts:
            time.sleep(_TICK_S)

    def _lease(self, now: float) -> None:
        """Lease and start jobs while there are free slots."""
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
            # The system has no more processes, or no room for temporary files.
            except OSError as error:
                reason = f"{self.name} cannot start a process: {error}"
                _log.warning("job %s returns to the queue: %s", lease.item, reason)
                with contextlib.suppress(StaleLeaseError):  # The job was cancelled meanwhile.
                    self._farm.jobs.give_back(lease, crashed=False, reason=reason)
                time.sleep(_PAUSE_S)

    def _collect_garbage(self) -> None:
        try:
            _log.info("removed %d bytes of unused blobs", self._farm.collect_garbage())
        except (FarrierError, OSError) as error:
            _log.warning("unused blobs cannot be removed now: %s", error)

    def _watch_limits(self, done: threading.Event) -> None:
        unseen: set[Lease] = set()  # Jobs that were logged, so that each is logged once.
        while not done.wait(_LOOK_S):
            for attempt in list(self._attempts):
                try:
                    attempt.check()
                # This may pass, for instance when file descriptors are free again.
                except OSError as error:
                    if attempt.lease not in unseen:
                        unseen.add(attempt.lease)
                        job = attempt.lease.item
                        _log.warning("the memory of job %s cannot be read: %s", job, error)

    def _renew(self) -> None:
        for attempt in self._attempts:
            try:
                self._farm.jobs.renew(attempt.lease, attempt.clock.used)
            except StaleLeaseError as stale:
                state = self._state(attempt)
                # The process has reported its end and is about to exit.
                recorded = state in (State.SUCCEEDED, State.FAILED)
                attempt.stop(stale.message, after_s=self._settings.grace_s if recorded else 0.0)

    def _state(self, attempt: Attempt) -> State | None:
        job_id = attempt.lease.item
        return self._farm.jobs.leases_of(job_id).state(job_id)

    def _settle(self, attempt: Attempt) -> None:
        """Record the end of an attempt whose process has ended, unless the process has reported the
        end itself."""
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
