"""The supervisor's end of a job's channel, which serves the questions of one attempt's process.

The process parses untrusted models, so each frame is treated as a possible attack: its size and
content are checked, and a malformed frame ends the attempt. Requests are served under the attempt's
lease. Files arrive as open descriptors, so the process can send only files that it can read.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from farrier import progress
from farrier.errors import (
    FarrierError,
    ServiceError,
    StorageError,
    error_from_problem,
    problem_of,
)
from farrier.records import TaskDefinition, TuningRecord
from farrier_device import wire
from farrier_device.closing import Closing
from farrier_device.measurement import request_from_json, to_json
from farrier_farm.errors import DeviceAwayError, StaleLeaseError, StoreFullError
from farrier_farm.farm import Farm
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.jobs.versions import times_of
from farrier_farm.leases.leases import Lease
from farrier_farm.measurements.runner import FarmRunner
from farrier_worker import confinement
from farrier_worker.clock import JobClock
from farrier_worker.disk_space import once_there_is_room
from farrier_worker.orders import Tuning, order_of
from farrier_worker.steps import StepClock, limit_of, past_limit

T = TypeVar("T")

# The most bytes of a frame; a batch of thousands of candidates has a tenth of that.
_MOST_BYTES = 32 << 20
_MOST_EVENT = 1 << 20  # The most characters of a stored event.
_MOST_RECORD = 100_000
_MOST_DEFINITIONS = 1000  # in one frame
_MOST_BLOBS = 1000  # of one batch
_MOST_BATCHES = 64  # at once
# A process has at most a quarter of these builds open, not counting threads that are about to end.
_MOST_BUILDS = 256
_MOST_MESSAGE = 4 << 20  # The most characters of a build's message.
# The most versions of one job's artifact: a budget has to double for one more.
_MOST_VERSIONS = 200
_LINES = 200  # The records in one part of an answer.
_PIECE = 1 << 20

_log = logging.getLogger(__name__)


class MalformedError(Exception):
    """A frame that a correct job process never sends."""


class Abort(Protocol):
    """The type of a function that ends the attempt at once, with a reason. Only the first reason is
    kept."""

    def __call__(self, reason: str, *, crashed: bool = False) -> None: ...


class JobChannelServer:
    """The server for the process at the other end of `sock`, in a thread that runs until that
    process has ended."""

    def __init__(
        self,
        farm: Farm,
        lease: Lease,
        sock: socket.socket,
        scratch: Path,
        clock: JobClock,
        abort: Abort,
    ) -> None:
        self._farm = farm
        self._lease = lease
        self._sock = sock
        self._scratch = scratch
        self._clock = clock
        self._abort = abort
        self._sending = threading.Lock()
        self._telling = threading.Lock()
        self._numbers = itertools.count(1)  # of events
        self._over = threading.Event()
        self._batches: list[threading.Thread] = []
        # The events that cancel batches in progress, by question.
        self._called_off: dict[int, threading.Event] = {}
        self._builds: list[threading.Thread] = []
        self._away: DeviceAwayError | None = None
        self._tuning: Tuning | None = None
        self._noticing = threading.Lock()
        self._heard_at = time.monotonic()
        self._served = 0  # The number of requests in progress.
        self._steps = StepClock()
        self._nbytes = 0  # of the model
        self._thread = threading.Thread(target=self._run, name=f"job-{lease.item}", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Return whether the server's thread has ended: all messages of the process have been
        handled, and no more will arrive."""
        return not self._thread.is_alive()

    def close(self) -> None:
        """Cancel the measurements of the process, which has ended, and stop serving."""
        self._over.set()
        for called_off in list(self._called_off.values()):
            called_off.set()

    def silent_s(self) -> float:
        """Return the seconds since the process last sent a frame; 0 while one of its requests is
        being served."""
        with self._noticing:
            return 0.0 if self._served else time.monotonic() - self._heard_at

    @property
    def step(self) -> str:
        """Return the present step of the process, such as parsing or tuning."""
        return self._steps.step

    def check_step(self) -> None:
        """Raise TimeLimitError if the process has worked too long on its present step. For an
        inspection or a listing, all work counts as one step."""
        kind, step, used = JobKind.of(self._lease.item), self._steps.step, self._clock.used
        limit = limit_of(step, kind, self._farm.settings, self._nbytes)
        seconds = self._steps.worked_s
        if kind.is_prepared:
            seconds = 0.0 if used is None else used.worked_s
        if limit is not None and seconds > limit.seconds:
            raise past_limit(step, kind, limit)

    def _run(self) -> None:
        with self._troubles(), contextlib.suppress(wire.ClosedError):
            self._serve()
        self.close()
        for beside in (*self._batches, *self._builds):
            beside.join()
        self._sock.close()

    @contextlib.contextmanager
    def _troubles(self) -> Iterator[None]:
        """Return a context that ends the attempt if an exception is raised. Malformed frames and
        unexpected exceptions count as a crash of the process; a lost lease or an unavailable farm
        does not."""
        try:
            yield
        except (MalformedError, wire.WireError, UnicodeError) as error:
            self._abort(f"the process sent a malformed message: {error}", crashed=True)
        except (StaleLeaseError, StoreFullError) as error:
            self._abort(error.message)
        except ServiceError as error:
            self._abort(f"the farm did not answer: {error.message}")
        except wire.ClosedError:
            pass
        except Exception as error:  # A defect must not leave the job hanging.
            _log.exception("job %s", self._lease.item)
            self._abort(f"its request failed: {type(error).__name__}: {error}", crashed=True)

    def _serve(self) -> None:
        try:
            with self._busy():
                order = self._order()
        except (StaleLeaseError, ServiceError):
            raise
        except FarrierError as error:
            self._fail(error)
            return self._abort(error.message)
        with self._sending:
            wire.send(self._sock, order)
        self._log_level(self._received())
        while True:
            self._take(self._received())

    def _order(self) -> dict[str, Any]:
        """Read the job and its model, and return the first frame, which describes the work of the
        process. Raises FarrierError for a job that cannot start."""
        farm = self._farm
        job = self._job = farm.jobs.get(self._lease.item)
        self._clock.begin_from(job.used)
        order = order_of(farm, job, self._lease, self._say)
        self._tuning = order.tuning
        message, data = farm.models.verified(job.model)
        self._nbytes = sum(path.stat().st_size for path in (message, *data.values()))
        settings = farm.settings
        secrets = (settings.home, settings.token_file, settings.device_token_file, settings.tls_key)
        return {
            **order.work,
            "kind": job.kind,
            "name": job.name or "model",
            "message": str(message),
            "data": {location: str(path) for location, path in data.items()},
            "scratch": str(self._scratch),
            "secrets": [str(path) for path in secrets if path is not None],
            "memory_bytes": settings.job_memory_bytes,
            "room_wait_s": settings.room_wait_s,
            "reference_s": settings.reference_s,
            "attempt": self._lease.attempt,
        }

    def _received(self) -> dict[str, Any]:
        message = wire.receive(self._sock, _MOST_BYTES)
        with self._noticing:
            self._heard_at = time.monotonic()
        return message

    def _log_level(self, message: dict[str, Any]) -> None:
        match message:
            case {"ready": str(level)} if level in confinement.LEVELS:
                confinement.log_level(f"job {self._lease.item}", level)
            case _:
                raise _malformed(message)

    def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"say": dict(raw)}:
                event = _event(raw)
                self._clock.hear(event)
                self._steps.hear(event)
                with self._busy():
                    self._say(event)
            case {"ask": int(number), "finish": dict(report)} if not self._job.now:
                with _Sent(self._sock, ["artifact"]) as sent:
                    self._answer(number, lambda: self._succeed(report, sent.files[0]))
            case {"ask": int(number), "version": dict(report)} if self._job.now:
                with _Sent(self._sock, ["artifact"]) as sent:
                    self._answer(number, lambda: self._add_version(report, sent.files[0]))
            case {"ask": int(number), "finish": True} if self._job.now:
                self._answer(number, self._succeed_as_it_is)
            case {
                "ask": int(number),
                "fail": {"code": str(), "detail": str(), "hint": str()} as problem,
            }:
                self._answer(number, lambda: self._fail(error_from_problem(problem)))
            case {"drop": int(number)}:
                called_off = self._called_off.get(number)
                if called_off is not None:  # Otherwise it was answered already.
                    called_off.set()
            case {"ask": int(number)} if self._tuning is not None:
                self._take_of_tuning(number, message, self._tuning)
            case _:
                raise _malformed(message)

    def _take_of_tuning(self, number: int, message: dict[str, Any], tuning: Tuning) -> None:
        match message:
            case {"add": str(line)}:
                record = _record(line)
                self._answer(number, lambda: tuning.records.add(record))
            case {"define": list(lines)} if len(lines) <= _MOST_DEFINITIONS:
                definitions = [*map(_definition, lines)]
                self._answer(number, lambda: tuning.define(definitions))
            case {"find": [str(task), str(target)]}:
                self._send_lines(number, lambda: tuning.records.find(task, target))
            case {"records": True}:
                self._send_lines(number, lambda: tuning.records)
            case {"measure": str(text), "blobs": list(names)}:
                if len(names) > _MOST_BLOBS or not all(type(name) is str for name in names):
                    raise _malformed(message)
                self._begin_batch(number, text, _Sent(self._sock, names), tuning.runner)
            case {"devices": True}:
                self._answer(number, lambda: {"devices": tuning.runner.devices})
            case {"builders": True}:
                builders = self._farm.builds.builders
                self._answer(number, lambda: {"builders": sum(builders().values())})
            case {"build": str(text)}:
                self._begin_build(number, text)
            case {"sign": dict(files)}:
                self._answer(number, lambda: self._signed(files))
            case _:
                raise _malformed(message)

    def _say(self, event: progress.Event) -> None:
        """Store an event of the attempt. The event comes from the process, or from a thread of this
        server whose batch waits for a device."""
        with self._telling:
            self._farm.jobs.say(self._lease, next(self._numbers), event)

    def _begin_batch(self, number: int, text: str, sent: _Sent, runner: FarmRunner) -> None:
        """Start a thread that measures a batch, because several batches may be in progress."""
        self._batches = [batch for batch in self._batches if batch.is_alive()]
        try:
            if len(self._batches) >= _MOST_BATCHES:
                raise MalformedError(f"more than {_MOST_BATCHES} batches at once")
            request = _parsed(lambda: request_from_json(text))
            if request.rival is not None and request.rival.engine not in self._job.against:
                raise MalformedError("a race that the job does not include")
        except BaseException:
            sent.close()
            raise

        called_off = self._called_off[number] = threading.Event()

        def measure() -> dict[str, Any]:
            sent.check_room(self._farm.blobs.check_room)
            return {"result": to_json(runner.measure(request, sent, called_off))}

        def work() -> None:
            try:
                with sent, self._troubles():
                    self._answer(number, measure)
            finally:
                self._called_off.pop(number, None)

        self._batches.append(threading.Thread(target=work, daemon=True))
        self._batches[-1].start()

    def _begin_build(self, number: int, message: str) -> None:
        """Start a thread that has a builder compile a module, because many builds may be in
        progress."""
        self._builds = [build for build in self._builds if build.is_alive()]
        if len(self._builds) >= _MOST_BUILDS:
            raise MalformedError(f"more than {_MOST_BUILDS} builds at once")
        if len(message) > _MOST_MESSAGE:
            raise MalformedError(f"a build of more than {_MOST_MESSAGE} characters")
        builds = self._farm.builds

        def build() -> dict[str, Any]:
            build_id = builds.submit(message, self._lease, self._job.owner)
            result = builds.wait(build_id, self._over.is_set)
            return {"built": result.answer, "crashed": result.crashed}

        def work() -> None:
            with self._troubles():
                self._answer(number, build)

        self._builds.append(threading.Thread(target=work, daemon=True))
        self._builds[-1].start()

    def _succeed(self, report: dict[str, Any], artifact: int) -> None:
        """End the job as successful, once its artifact and its records are in the blob store."""
        most = self._job.kind.most_bytes
        if most and os.fstat(artifact).st_size > most:
            raise MalformedError(f"{self._job.kind.items} of more than {most} bytes")
        digest = self._stored(artifact)
        self._farm.jobs.succeed(self._lease, digest, report, self._farm.blobs.size(digest))

    def _add_version(self, report: dict[str, Any], artifact: int) -> None:
        """Add the next version of the job's artifact, once the artifact is in the blob store."""
        if len(self._farm.jobs.get(self._lease.item).versions) >= _MOST_VERSIONS:
            raise MalformedError(f"more than {_MOST_VERSIONS} versions of an artifact")
        _parsed(lambda: times_of(report))
        digest = self._stored(artifact)
        size = self._farm.blobs.size(digest)
        with self._telling:
            number = next(self._numbers)
            self._farm.jobs.add_version(self._lease, number, digest, report, size)

    def _succeed_as_it_is(self) -> None:
        """End the job as successful, with the newest of its versions as artifact, once its records
        are in the blob store."""
        if not self._farm.jobs.get(self._lease.item).versions:
            raise MalformedError("the end of the job, but no artifact")
        self._once_there_is_room(self._farm.records_of(self._job).archives.write)
        self._farm.jobs.succeed_as_it_is(self._lease)

    def _signed(self, files: dict[str, Any]) -> dict[str, Any]:
        """Return the farm's signature of the files of an artifact that this job is about to send.
        The signature certifies that a job of this farm produced the artifact."""
        key = self._farm.keys.current()
        return {"signature": _parsed(lambda: key.sign(files)).to_json()}

    def _stored(self, artifact: int) -> str:
        """Store the artifact and the job's records in the blob store; return the artifact's name
        there."""
        blobs = self._farm.blobs

        def store() -> str:
            if self._tuning is not None:
                self._farm.records_of(self._job).archives.write()
            blobs.check_room(os.fstat(artifact).st_size)
            return blobs.put_stream(_pieces(artifact))

        return self._once_there_is_room(store)

    def _once_there_is_room(self, store: Callable[[], T]) -> T:
        wait_s = self._farm.settings.room_wait_s
        return once_there_is_room(store, wait_s, self._say, self._over)

    def _fail(self, error: FarrierError) -> None:
        """End the job as failed with this error. If no device was available and the job may wait
        for one, only the attempt ends, and the job goes back to the queue."""
        jobs = self._farm.jobs
        if isinstance(error, DeviceAwayError):
            self._away = error
        if self._away is not None and self._job.wait_for_device:
            jobs.give_back(self._lease, crashed=False, reason=self._away.message)
        else:
            if isinstance(error, StorageError):
                error = _with_way_on(error, jobs.get(self._lease.item).trials)
            jobs.fail(self._lease, error)

    def _answer(self, number: int, act: Callable[[], dict[str, Any] | None]) -> None:
        """Call `act` and send its result as the answer, or the error that it raises."""
        try:
            with self._busy():
                answer = act() or {}
        except (StaleLeaseError, ServiceError):
            raise
        except FarrierError as error:
            if isinstance(error, DeviceAwayError):
                self._away = error
            answer = {"error": problem_of(error)}
        with self._sending:
            wire.send(self._sock, {"answer": number, **answer})

    def _send_lines(self, number: int, find: Callable[[], Any]) -> None:
        """Send the record lines that `find` returns, split over several frames; an empty frame
        marks the end."""
        records: list[Iterator[TuningRecord]] = []
        more = True

        def part() -> dict[str, Any]:
            nonlocal more
            if not records:
                records.append(iter(find()))
            lines = [record.to_line() for record in itertools.islice(records[0], _LINES)]
            more = bool(lines)
            return {"lines": lines}

        while more:
            self._answer(number, part)

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """Return a context in which a request of the process is being served; the time in it does
        not count as silence of the process."""
        with self._noticing:
            self._served += 1
        try:
            with self._steps.served():
                yield
        finally:
            with self._noticing:
                self._served -= 1
                self._heard_at = time.monotonic()


class _Sent(Closing):
    """The files that the process sent, by name. Only regular files are accepted, so that no read
    blocks."""

    def __init__(self, sock: socket.socket, names: Sequence[str]) -> None:
        """Receive one file for each name. Raises MalformedError, ClosedError, WireError."""
        self.files = wire.receive_files(sock, len(names))
        self._files = dict(zip(names, self.files, strict=True))
        if not all(stat.S_ISREG(os.fstat(file).st_mode) for file in self.files):
            self.close()
            raise MalformedError("a file descriptor that is not of a regular file")

    def path(self, sha256: str) -> Path:
        """Return a path at which this process can open the file, as `BlobSource` requires. Raises
        LookupError."""
        return Path(f"/proc/self/fd/{self._files[sha256]}")

    def check_room(self, check: Callable[[int], None]) -> None:
        """Call `check` with the total size of the files in bytes; it raises an error if they do not
        fit on the disk."""
        check(sum(os.fstat(file).st_size for file in self.files))

    def close(self) -> None:
        while self.files:
            os.close(self.files.pop())


def _pieces(file: int) -> Iterator[bytes]:
    at = 0
    while piece := os.pread(file, _PIECE, at):
        yield piece
        at += len(piece)


def _event(raw: dict[str, Any]) -> progress.Event:
    if len(json.dumps(raw)) > _MOST_EVENT:
        raise MalformedError(f"an event of more than {_MOST_EVENT} characters")
    return _parsed(lambda: progress.from_dict(raw))


def _record(line: str) -> TuningRecord:
    if len(line) > _MOST_RECORD:
        raise MalformedError(f"a record of more than {_MOST_RECORD} characters")
    return _parsed(lambda: TuningRecord.from_line(line))


def _definition(line: str) -> TaskDefinition:
    """Parse the JSON line of a task definition. The program in the definition is parsed only by
    training processes, which have resource limits."""
    return _parsed(lambda: TaskDefinition.from_line(line))


def _parsed(parse: Callable[[], T]) -> T:
    """Return the result of `parse`. Raises MalformedError in place of any exception."""
    try:
        return parse()
    except Exception as error:
        raise MalformedError(f"{type(error).__name__}: {error}") from error


def _malformed(message: dict[str, Any]) -> MalformedError:
    text = repr(message)
    return MalformedError(text if len(text) <= 200 else f"{text[:200]}…")


def _with_way_on(error: StorageError, trials: int | None) -> StorageError:
    """Return the error of a job that could not store its artifact, with a hint that the records of
    its trials are kept, if it has any."""
    if not trials:
        return error
    kept = f"then submit the model again: the records of its {trials} trials are kept and used"
    return StorageError(error.message, hint=f"{error.hint or 'look at the disk'}; {kept}")
