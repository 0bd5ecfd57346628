"""The tuning of an artifact that is in use: its versions, and the one that is in use now."""

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

# Held while an artifact changes, and while this process forks: the other one finds each artifact
# and its sessions whole, whatever a thread that it lacks was about to do.
_changing = threading.RLock()


class State(enum.StrEnum):
    """What a tuning does."""

    RUNNING = "running"
    FINISHED = "finished"  # its trials or its budget are spent
    STOPPED = "stopped"  # by `stop`, or in a process that was forked from the one that it tunes for
    FAILED = "failed"  # `Tuning.error` says why


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """One state of the artifact, numbered from 1, which is the untuned one. `median_ms` is what a
    run took in the race by which it came into use, and `untuned_ms` what the untuned model took in
    the same race; the first version has the time of its verification. None: not measured."""

    number: int
    median_ms: float | None
    untuned_ms: float | None


class Tuning:
    """Tunes the model of an artifact in a process of its own, and has the artifact become each
    better version, as long as this process lives.

    What goes wrong in the background is in `error`, and the listener is warned of it; the artifact
    stays what it is then. All methods may be called from any thread.
    """

    def __init__(self, artifact: Artifact, process: TuningProcess, listener: Listener) -> None:
        """Take what `process` finds for the model of the artifact, from now on, and close it in
        the end. Events reach `listener` in a thread of their own."""
        self.state = State.RUNNING
        self.error: FarrierError | None = None
        self._artifact = artifact
        self._listener = listener
        self._versions = [_version(1, artifact)]
        self._kept = [artifact.version()]  # what each of the versions is
        self._current = 1
        self._is_kept = False  # by `revert`, whatever is found from now on
        self._ended = threading.Event()
        self._process = process
        weakref.finalize(self, process.close)
        follower = threading.Thread(target=self._follow, name="farrier-tuning", daemon=True)
        process.follower = follower
        _tunings.add(self)
        follower.start()

    @property
    def versions(self) -> tuple[Version, ...]:
        """All that there are, the oldest first."""
        return tuple(self._versions)

    @property
    def current(self) -> Version:
        """The one in use."""
        return self._versions[self._current - 1]

    def wait(self, timeout_s: float | None = None) -> State:
        """The state once tuning has ended, or after so many seconds."""
        self._ended.wait(timeout_s)
        return self.state

    def stop(self) -> None:
        """End the tuning; the artifact stays what it is. A second call does nothing."""
        self._process.end()
        follower = self._process.follower
        if follower is not None and follower is not threading.current_thread():
            follower.join()

    def revert(self, to: int | None = None) -> Version:
        """Have the artifact become the version before the one in use, or the one with the number
        `to`, and stay it: what is found from now on is listed, and not put into use. Raises
        UsageError where there is no such version."""
        with _changing:
            number = self._current - 1 if to is None else to
            if not 1 <= number <= len(self._versions):
                count = len(self._versions)
                known = "version 1" if count == 1 else f"the versions 1 to {count}"
                raise UsageError(
                    f"there is no version {number} of {self._artifact.manifest.name}",
                    hint=f"there are {known}; {self._current} is in use",
                )
            self._artifact.become(self._kept[number - 1])
            self._current, self._is_kept = number, True
            return self.current

    def _follow(self) -> None:
        """The thread: takes what the process says, until it has ended."""
        try:
            self.state = self._received()
        except FarrierError as error:
            self._fail(error)
        except Exception as error:  # the listener's
            self._fail(UsageError(f"the listener raised {type(error).__name__}: {error}"))
        finally:
            self._process.end()
            self._ended.set()

    def _received(self) -> State:
        """Raises FarrierError, and what the listener raises."""
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
        """A version that has won its race. Raises ArtifactError, and what becoming it raises."""
        found = load_mapped(path)
        with _changing:
            if self._process.is_ended_here:
                return
            number = len(self._versions) + 1
            if not self._is_kept:
                self._artifact.become(found)
                self._current = number
            self._kept.append(found)
            self._versions.append(_version(number, found))

    def _fail(self, error: FarrierError) -> None:
        self.error = error
        self.state = State.FAILED
        with contextlib.suppress(Exception):  # a listener that raises has been told
            self._listener(Warned(f"tuning in the background has ended: {error}"))

    def _leave(self) -> None:
        """In a process that was forked from the one that tunes."""
        if self.state is State.RUNNING:
            self.state = State.STOPPED
        self._ended = threading.Event()  # the lock of the other may be held by a thread of there
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
