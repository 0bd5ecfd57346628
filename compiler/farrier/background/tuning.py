"""The background tuning of an artifact in use: its state, its versions, and the current version."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import threading
import weakref
from pathlib import Path

from farrier.artifact.medians import medians
from farrier.background.process import TuningProcess
from farrier.errors import CompilerError, FarrierError, UsageError, error_from_problem
from farrier.progress import Listener, Warned, from_dict
from farrier.runtime.artifact import Artifact, load_mapped
from farrier_device import wire

# Held while an artifact changes, and while this process forks: the forked process then has each
# artifact and its sessions whole, whatever a thread that it lacks was about to do.
_changing = threading.RLock()


class State(enum.StrEnum):
    """The state of a background tuning."""

    RUNNING = "running"
    FINISHED = "finished"  # Its trials or its budget are spent.
    STOPPED = "stopped"  # By `stop`, or because this process is a fork of the starter.
    FAILED = "failed"  # `Tuning.error` holds the error.


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """One version of the artifact, numbered from 1, which is the untuned one.

    `median_ms` is the time of a run in the race that put the version into use, and `untuned_ms`
    that of the untuned model in the same race; the first version has the time of its verification.
    None means not measured.
    """

    number: int
    median_ms: float | None
    untuned_ms: float | None


class Tuning:
    """The tuning of an artifact's model in another process, which switches the artifact to each
    better version as long as this process lives.

    After an error in the background, `error` is set, the listener gets a warning, and the artifact
    does not change any more. All methods may be called from any thread.
    """

    def __init__(self, artifact: Artifact, process: TuningProcess, listener: Listener) -> None:
        """Put the versions that `process` produces into use for the artifact, and close the process
        at the end. Events are sent to `listener` in another thread."""
        self.state = State.RUNNING
        self.error: FarrierError | None = None
        self._artifact = artifact
        self._listener = listener
        self._versions = [_version(1, artifact)]
        self._kept = [artifact.version()]  # The artifact of each version.
        self._current = 1
        self._is_kept = False  # By `revert`: later versions are not put into use.
        self._ended = threading.Event()
        self._process = process
        weakref.finalize(self, process.close)
        follower = threading.Thread(target=self._follow, name="farrier-tuning", daemon=True)
        process.follower = follower
        _tunings.add(self)
        follower.start()

    @property
    def versions(self) -> tuple[Version, ...]:
        """Return all versions of the artifact, the oldest first."""
        return tuple(self._versions)

    @property
    def current(self) -> Version:
        """Return the version of the artifact that is in use."""
        return self._versions[self._current - 1]

    def wait(self, timeout_s: float | None = None) -> State:
        """Wait until tuning has ended, or for `timeout_s` seconds, and return the state."""
        self._ended.wait(timeout_s)
        return self.state

    def stop(self) -> None:
        """End the tuning; the artifact stays at its current version. A second call does nothing."""
        self._process.end()
        follower = self._process.follower
        if follower is not None and follower is not threading.current_thread():
            follower.join()

    def revert(self, to: int | None = None) -> Version:
        """Switch the artifact to an earlier version and return that: version number `to`, or the
        one before the current version. Later versions are then listed, but no longer put into use.
        Raises UsageError if the version does not exist."""
        with _changing:
            number = self._current - 1 if to is None else to
            if not 1 <= number <= len(self._versions):
                count = len(self._versions)
                available = "version 1" if count == 1 else f"the versions 1 to {count}"
                raise UsageError(
                    f"there is no version {number} of {self._artifact.manifest.name}",
                    hint=f"there are {available}; {self._current} is in use",
                )
            self._artifact.become(self._kept[number - 1])
            self._current, self._is_kept = number, True
            return self.current

    def _follow(self) -> None:
        """Run the thread that receives the messages of the process, until it has ended."""
        try:
            self.state = self._received()
        except FarrierError as error:
            self._fail(error)
        except Exception as error:  # The listener raised the error.
            self._fail(UsageError(f"the listener raised {type(error).__name__}: {error}"))
        finally:
            self._process.end()
            self._ended.set()

    def _received(self) -> State:
        """Receive messages and return the final state. Raises FarrierError, and errors of the
        listener."""
        process = self._process
        try:
            while True:
                match process.receive():
                    case {"say": dict(event)}:
                        self._listener(from_dict(event))
                    case {"version": str(path)}:
                        self._add(Path(path))
                    case {"failed": dict(problem)}:
                        raise error_from_problem(problem)
                    case _:
                        return State.FINISHED
        except (wire.ClosedError, wire.WireError, OSError):
            if process.is_ended_here:
                return State.STOPPED
            raise CompilerError(
                f"the process that tuned {self._artifact.manifest.name} was lost: "
                f"{process.ending()}",
                hint="compile the model again to tune it further",
            ) from None

    def _add(self, path: Path) -> None:
        """Put a version that has won its race into use. Raises ArtifactError, and the errors of
        `Artifact.become`."""
        artifact = load_mapped(path)
        with _changing:
            if self._process.is_ended_here:
                return
            number = len(self._versions) + 1
            if not self._is_kept:
                self._artifact.become(artifact)
                self._current = number
            self._kept.append(artifact)
            self._versions.append(_version(number, artifact))

    def _fail(self, error: FarrierError) -> None:
        self.error = error
        self.state = State.FAILED
        with contextlib.suppress(Exception):  # It has received the warning even if it raises.
            self._listener(Warned(f"tuning in the background has ended: {error}"))

    def _leave(self) -> None:
        """Stop the tuning in a forked copy of the process that started it."""
        if self.state is State.RUNNING:
            self.state = State.STOPPED
        # A thread of the other process may hold the lock of the other event.
        self._ended = threading.Event()
        self._ended.set()
        self._process.leave()


def _version(number: int, artifact: Artifact) -> Version:
    return Version(number, *medians(artifact.report))


_tunings: weakref.WeakSet[Tuning] = weakref.WeakSet()


def _in_forked_process() -> None:
    _changing.release()
    for tuning in list(_tunings):
        tuning._leave()


os.register_at_fork(
    before=_changing.acquire,
    after_in_parent=_changing.release,
    after_in_child=_in_forked_process,
)
