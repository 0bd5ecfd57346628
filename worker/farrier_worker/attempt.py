"""An attempt at a job: a process in its own process group, which the supervisor watches from
outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from farrier.errors import FarrierError, TimeLimitError
from farrier_farm.farm import Farm
from farrier_farm.leases.leases import Lease
from farrier_farm.settings import Settings
from farrier_worker import scratch_process
from farrier_worker.clock import JobClock
from farrier_worker.job_channel_server import JobChannelServer
from farrier_worker.memory import held_bytes, out_of_memory

_TAIL_BYTES = 2000  # The number of bytes of standard error that are kept for the reason of a crash.


class Attempt:
    """An attempt at a job, whose process starts at once with a channel to the farm. The process's
    standard error is passed on, and its temporary files are removed however the process ends.
    Raises OSError if the process cannot start."""

    def __init__(self, farm: Farm, lease: Lease, command: Sequence[str]) -> None:
        """Start the process of the attempt with the lease `lease`. Three arguments are appended to
        `command`: the descriptor of the process's channel, the job's id and the number of the
        attempt. The last two only help people who list processes."""
        self.lease = lease
        self.clock = JobClock()
        # The error because of which another attempt would fail as well.
        self.failure: FarrierError | None = None
        self._settings = farm.settings
        self._stopping = ""
        self._is_to_blame = False  # It is to blame for being stopped.
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._tail = b""
        self._ending = threading.Lock()
        self._process, self._scratch = scratch_process.start(
            "job",
            lambda line: [*command, str(line), lease.item, str(lease.attempt)],
            stderr=subprocess.PIPE,
        )
        self._stderr = self._process.stderr
        os.set_blocking(self._stderr.fileno(), False)
        self._channel = JobChannelServer(
            farm, lease, self._process.sock, Path(self._scratch.name), self.clock, self.abort
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def crashed(self) -> bool:
        """Return whether the process itself caused its end. Valid once `ended` returns True."""
        return self._is_to_blame or not self._stopping

    @property
    def reason(self) -> str:
        """Return the reason for the end of the attempt. Valid once `ended` returns True."""
        return self._stopping or _describe(self._process.end(), self._tail)

    def stop(self, reason: str, *, after_s: float = 0.0) -> None:
        """Request that the process ends in `after_s` seconds; later calls of `press` send the
        signals. After several requests, the reason of the first and the earliest of the times
        apply."""
        at = time.monotonic() + after_s
        self._stopping = self._stopping or reason
        self._term_at = at if self._term_at is None else min(at, self._term_at)

    def press(self, grace_s: float) -> None:
        """Enforce a request to stop: send SIGTERM to the process group once the requested time has
        come, and SIGKILL `grace_s` seconds later. This method is called repeatedly."""
        now = time.monotonic()
        if self._process.is_reaped or self._term_at is None or now < self._term_at:
            return
        if self._kill_at is None:
            self._kill_at = now + grace_s
            self._process.send(signal.SIGTERM)
        elif now >= self._kill_at:
            self._process.send(signal.SIGKILL)

    def abort(
        self, reason: str, *, crashed: bool = False, failure: FarrierError | None = None
    ) -> None:
        """Kill the whole process group at once, even if a stop was requested before. If an earlier
        reason exists, that reason is kept. Safe to call from any thread."""
        with self._ending:
            if not self._stopping:
                self._stopping, self._is_to_blame, self.failure = reason, crashed, failure
        self._process.send(signal.SIGKILL)

    def check(self) -> None:
        """End the attempt if the job exceeds a limit on its total time, on a step's time, or on
        memory. This method may run in another thread than the other methods. Raises OSError if the
        memory use of the processes cannot be read."""
        if self._process.is_reaped or self.failure is not None:
            return
        used, silent_s = self.clock.used, self._channel.silent_s()
        try:
            self._channel.check_step()
        except TimeLimitError as past:
            self._fail(past)
            return
        if used is not None and used.worked_s > self._settings.job_deadline_s:
            self._fail(_past_deadline(self._settings))
        elif silent_s > self._settings.job_silence_s:
            self._fail(_silent(self._settings, self._channel.step))
        elif most := self._settings.job_memory_bytes:
            held = self._held_bytes(most)
            if held > most:
                self._fail(out_of_memory(most), f": it held {held}")

    def ended(self) -> bool:
        """Return whether the process and the rest of its group have ended, and all its messages
        have been handled."""
        if not self._process.is_reaped:
            self._read()
            if self._process.wait(0) is None:
                return False
            self.kill()
        return self._channel.is_done

    def kill(self) -> None:
        """Kill the whole process group now. The group's leader is not reaped yet, so that its
        process id is not reused."""
        if not self._process.is_reaped:
            with self._ending:
                self._process.end()
            self._channel.close()
            self._read()
            self._stderr.close()
            self._scratch.cleanup()

    def _fail(self, failure: FarrierError, more: str = "") -> None:
        self.abort(failure.message + more, failure=failure)

    def _held_bytes(self, enough: int) -> int:
        with self._ending:
            if self._process.is_reaped:
                return 0
            return held_bytes(self._process.pid, enough=enough)

    def _read(self) -> None:
        while data := self._stderr.read(65536):
            sys.stderr.write(data.decode(errors="replace"))
            self._tail = (self._tail + data)[-_TAIL_BYTES:]


def _past_deadline(settings: Settings) -> TimeLimitError:
    return TimeLimitError(
        f"the job has run for {settings.job_deadline_s:g} s in all its attempts, and may not "
        "run for longer",
        hint="raise FARRIER_JOB_DEADLINE_S, or use a smaller --budget or --trials; the "
        "measurements are kept, and are used when the model is submitted again",
    )


def _silent(settings: Settings, step: str) -> TimeLimitError:
    return TimeLimitError(
        f"the job's process has sent no message for {settings.job_silence_s:g} s in its step "
        f"{step!r}: it hangs or was stopped",
        hint="compile the model alone with `farrier compile -v` to find the slow step; "
        "raise FARRIER_JOB_SILENCE_S if a step of a large model takes this long",
    )


def _describe(code: int, tail: bytes) -> str:
    """Return a sentence on the exit code of a process, with the end of its standard error."""
    if code < 0:
        end = f"killed by {signal.Signals(-code).name}"
    else:
        end = f"ended with code {code}" + ("" if code else " and no result")
    said = tail.decode(errors="replace").strip()
    return f"{end}\n{said}" if said else end
