"""The role that compiles kernel modules for jobs: it leases builds (modules to compile), has
sandboxed processes compile them, and stores the answers.

Each build slot has a thread that leases builds and waits for their answers; one loop renews the
builder's sign of life and all leases. A process that crashes or hangs fails its own build only. If
something else kills a process, its build returns to the queue and is compiled again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from farrier.errors import ServiceError
from farrier_device import logs
from farrier_farm.errors import StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.jobs.builds import Build
from farrier_farm.settings import Settings
from farrier_worker.build_process import BUILD_COMMAND, BuildProcess, ProcessPool
from farrier_worker.role_lifecycle import run_role
from farrier_worker.sandboxed_process import ProcessEndedError

_TICK_S = 0.1
_RENEW_S = 1.0
_TAKE_S = 1.0  # The time for which a thread waits for a build before it checks whether to end.
_LOOK_S = 0.25  # The interval at which the limits of processes are checked.
_PAUSE_S = 0.5  # The pause after a failure that may pass.
_STARTED_AGAIN_S = 5.0  # The pause after a process could not be started.
# A module whose process is killed in this number of attempts may itself use up all memory, so its
# build fails.
_MOST_ATTEMPTS = 10

_log = logging.getLogger(__name__)


class Builder:
    """A builder that runs `at_once` builds in parallel, each in a process started by `command`."""

    def __init__(
        self,
        farm: Farm,
        at_once: int,
        *,
        command: Sequence[str] = BUILD_COMMAND,
        name: str | None = None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a builder; it calls `alive` in each iteration of its loop."""
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._farm = farm
        self._at_once = at_once
        self._command = command
        self._alive = alive
        # Room for the processes of several jobs that take turns.
        self._pool = ProcessPool(2 * at_once + 2, self._start)
        self._busy: dict[Build, BuildProcess | None] = {}  # None while its process starts
        self._lock = threading.Lock()  # Guards `_busy`.
        self._drain_by: float | None = None
        # Sandbox levels that were logged, so that each is logged once.
        self._levels: set[str] = set()
        self._renew_at = 0.0
        # Until then this builder announces no capacity, because a process could not be started.
        self._fails_until = 0.0

    def run(self) -> None:
        """Compile builds until `drain` has been called and no build is left."""
        done = threading.Event()
        threads = [
            threading.Thread(target=self._work, name=f"build-{number}")
            for number in range(self._at_once)
        ]
        # Limits are watched by a thread, because the loop stands still while Redis does.
        watch = threading.Thread(target=self._watch_limits, args=(done,), name="limits")
        for thread in (watch, *threads):
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                self._alive()
                try:
                    self._step()
                except ServiceError as error:
                    _log.warning("%s; continuing when it answers", error.message)
                    time.sleep(_PAUSE_S)
                time.sleep(_TICK_S)
        finally:
            self.drain()
            self._stop_all("the builder ends")
            for thread in threads:
                thread.join()
            done.set()
            watch.join()
            self._pool.close()
            with contextlib.suppress(ServiceError):
                self._farm.builds.leave(self.name, self._at_once)

    def drain(self) -> None:
        """Stop leasing builds. Builds in progress get `drain_s` seconds to end, and no time at all
        after a second call. Safe to call from a signal handler."""
        now = time.monotonic()
        drain_s = self._farm.settings.drain_s
        self._drain_by = now + drain_s if self._drain_by is None else now

    def _step(self) -> None:
        now = time.monotonic()
        if self._drain_by is not None and now >= self._drain_by:
            self._stop_all("the builder was stopped")
        if now < self._renew_at:
            return
        self._renew_at = now + min(_RENEW_S, self._farm.settings.lease_s / 3)
        self._pool.end_idle()
        builds = self._farm.builds
        if self._drain_by is None and now >= self._fails_until:
            builds.beat(self.name, self._at_once)
        else:
            builds.leave(self.name, self._at_once)
        with self._lock:
            held = list(self._busy)
        if held:
            for build in builds.renew(self.name, held):
                self._stop(build, "its build was removed, or is leased to another builder")

    def _work(self) -> None:
        """Lease and compile builds one after another; each thread runs this method."""
        while self._drain_by is None:
            try:
                build = self._farm.builds.take(self.name, _TAKE_S)
                if build is not None:
                    with logs.about(job=build.job), contextlib.suppress(StaleLeaseError):
                        self._do(build)
            except ServiceError as error:
                _log.warning("%s; continuing when it answers", error.message)
                time.sleep(_PAUSE_S)
            except Exception:  # A defect costs only this build, whose lease expires.
                _log.exception("a build failed")
                time.sleep(_PAUSE_S)
        # A process is killed when the thread that started it ends, whichever thread uses it now.
        while self._busy:
            time.sleep(_TICK_S)

    def _do(self, build: Build) -> None:
        """Compile a build and store its answer. Raises StaleLeaseError if its lease was lost."""
        builds = self._farm.builds
        with self._holding(build):
            try:
                process = self._pool.take(build.job)
            # The system has no more processes, or no room for temporary files.
            except OSError as error:
                _log.warning("build %s returns to the queue: %s", build.lease.item, error)
                self._fails_until = time.monotonic() + _STARTED_AGAIN_S
                builds.hand_back(build, f"{self.name} cannot start a process: {error}")
                time.sleep(_STARTED_AGAIN_S)
                return
            with self._lock:
                self._busy[build] = process
            try:
                answer = process.build(build.message)
            except ProcessEndedError as end:
                process.close()
                if end.is_to_blame or build.lease.attempt >= _MOST_ATTEMPTS:
                    _log.warning("build %s: its process %s", build.lease.item, end)
                    builds.crash(build, str(end))
                else:
                    builds.hand_back(build, str(end))
            except BaseException:
                process.close()
                raise
            else:
                with self._lock:
                    # Stopping this build must not stop the next one of the same process.
                    self._busy[build] = None
                self._pool.put(process)
                builds.finish(build, answer)

    @contextlib.contextmanager
    def _holding(self, build: Build) -> Iterator[None]:
        """Return a context in which the lease of a build is kept renewed."""
        with self._lock:
            self._busy[build] = None
        try:
            yield
        finally:
            with self._lock:
                del self._busy[build]

    def _start(self, job: str) -> BuildProcess:
        process = BuildProcess(job, self._farm.settings, self._command)
        if process.level not in self._levels:
            self._levels.add(process.level)
            process.log_level()
        return process

    def _stop_all(self, reason: str) -> None:
        with self._lock:
            busy = list(self._busy)
        for build in busy:
            self._stop(build, reason)

    def _stop(self, build: Build, reason: str) -> None:
        with self._lock:
            process = self._busy.get(build)
        if process is not None:
            process.abort(reason, is_to_blame=False)

    def _watch_limits(self, done: threading.Event) -> None:
        while not done.wait(_LOOK_S):
            with self._lock:
                busy = [process for process in self._busy.values() if process is not None]
            for process in busy:
                process.check()


def run(settings: Settings, *, command: Sequence[str] = BUILD_COMMAND) -> int:
    """Run a builder until SIGTERM or SIGINT, then drain: builds in progress get `drain_s` seconds
    to end, and then return to the queue; a second signal returns them at once. Returns the exit
    code.

    Raises ServiceError if Redis cannot be reached at the start.
    """
    at_once = settings.builds_at_once or len(os.sched_getaffinity(0))
    return run_role(
        "builder",
        settings,
        lambda farm, alive: Builder(farm, at_once, command=command, alive=alive),
    )
