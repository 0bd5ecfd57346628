"""Tests of the tuning process's messages, and of the artifact in use."""

from __future__ import annotations

import os
import queue
import threading

import numpy as np
import pytest

import farrier
from bench import models
from farrier.background import State, Tuning
from farrier.errors import ArtifactError, UsageError, problem_of
from farrier.packaging.draws import random_inputs
from farrier.progress import Warned
from farrier_device import wire
from tests.waiting import wait_until

MODEL = models.build("mobilenet_v2", size=32, stages=1)


class Saying:
    """A process that sends the messages that the test asks for."""

    def __init__(self):
        self.messages = queue.SimpleQueue()
        self.is_ended_here = False
        self.follower = None

    def receive(self):
        message = self.messages.get()
        if message is None:
            raise wire.ClosedError
        return message

    def ending(self):
        return "killed by SIGKILL"

    def end(self):
        self.is_ended_here = True
        self.messages.put(None)

    def close(self):
        self.end()

    def leave(self):
        pass


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Three versions of one model, in files; their code differs."""
    folder = tmp_path_factory.mktemp("versions")
    return [
        farrier.compile(MODEL, threads=2, verify=False, max_layer_error=most).save(
            folder / f"{number}.farrier"
        )
        for number, most in enumerate((3e-6, 0, 1.5e-5), 1)
    ]


@pytest.fixture
def tuned(paths):
    """An artifact whose tuning hears of a `Saying`, and what its listener has heard."""
    artifact, process, events = farrier.load(paths[0]), Saying(), []
    artifact.tuning = Tuning(artifact, process, events.append)
    yield artifact, process, events
    artifact.tuning.stop()


def found(artifact, process, path):
    """A version is found; comes back once it is listed."""
    count = len(artifact.tuning.versions)
    process.messages.put({"version": str(path)})
    wait_until(lambda: len(artifact.tuning.versions) != count)


def test_the_artifact_and_its_sessions_become_each_version(tuned, paths):
    artifact, process, _ = tuned
    session = artifact.session(threads=2)
    inputs = random_inputs(artifact.manifest.inputs)
    (expected,) = session.run(inputs).values()
    for number, path in enumerate(paths[1:], 2):
        found(artifact, process, path)
        code = farrier.load(path).code
        assert artifact.code == code
        assert session.manifest == artifact.manifest
        assert [entry.number for entry in artifact.tuning.versions] == [*range(1, number + 1)]
        assert artifact.tuning.current.number == number
        (y,) = session.run(inputs).values()
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    process.messages.put({"done": True})
    assert artifact.tuning.wait(60) is State.FINISHED
    assert artifact.tuning.current.number == 3


def test_revert_goes_back_and_stays_there(tuned, paths):
    artifact, process, _ = tuned
    with pytest.raises(UsageError, match="no version 0"):
        artifact.tuning.revert()
    found(artifact, process, paths[1])
    assert artifact.tuning.revert().number == 1
    assert artifact.code == farrier.load(paths[0]).code
    found(artifact, process, paths[2])
    assert artifact.tuning.current.number == 1
    assert artifact.code == farrier.load(paths[0]).code
    assert artifact.tuning.revert(3).number == 3
    assert artifact.code == farrier.load(paths[2]).code
    with pytest.raises(UsageError, match="no version 4"):
        artifact.tuning.revert(4)


def test_what_is_saved_is_the_best_of_the_moment(tuned, paths, tmp_path):
    artifact, process, _ = tuned
    found(artifact, process, paths[1])
    saved = farrier.load(artifact.save(tmp_path / "now.farrier"))
    assert saved.code == farrier.load(paths[1]).code


def test_a_failure_is_told_and_warned_of_and_calls_go_on(tuned):
    artifact, process, events = tuned
    inputs = random_inputs(artifact.manifest.inputs)
    process.messages.put({"failed": problem_of(ArtifactError("no room", hint="make some"))})
    assert artifact.tuning.wait(60) is State.FAILED
    assert isinstance(artifact.tuning.error, ArtifactError)
    assert [type(event) for event in events] == [Warned]
    assert "no room" in events[0].message
    artifact.run(inputs)


def test_a_process_that_is_lost_is_told(tuned):
    artifact, process, events = tuned
    process.messages.put(None)
    assert artifact.tuning.wait(60) is State.FAILED
    assert "SIGKILL" in artifact.tuning.error.message
    assert [type(event) for event in events] == [Warned]


def test_a_version_that_cannot_be_loaded_changes_nothing(tuned, tmp_path):
    artifact, process, events = tuned
    code = artifact.code
    process.messages.put({"version": str(tmp_path / "missing.farrier")})
    assert artifact.tuning.wait(60) is State.FAILED
    assert artifact.code == code
    assert len(artifact.tuning.versions) == 1
    assert [type(event) for event in events] == [Warned]


def test_a_listener_that_raises_ends_the_tuning_alone(paths):
    def listener(event):
        raise ZeroDivisionError("listening")

    artifact, process = farrier.load(paths[0]), Saying()
    artifact.tuning = Tuning(artifact, process, listener)
    process.messages.put({"say": {"kind": "warned", "message": "hear"}})
    assert artifact.tuning.wait(60) is State.FAILED
    assert "ZeroDivisionError: listening" in artifact.tuning.error.message
    assert process.is_ended_here


def test_a_stop_is_no_failure(tuned):
    artifact, _, events = tuned
    artifact.tuning.stop()
    artifact.tuning.stop()
    assert artifact.tuning.state is artifact.tuning.wait(60) is State.STOPPED
    assert events == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forks_find_the_artifact_whole_while_versions_are_exchanged(tuned, paths):
    """The other process has no thread that would find more, and says so."""
    artifact, process, _ = tuned
    inputs = random_inputs(artifact.manifest.inputs)
    session, over = artifact.session(threads=2), threading.Event()
    libraries = [farrier.load(path).code for path in paths]

    def find():
        while not over.is_set():
            found(artifact, process, paths[len(artifact.tuning.versions) % 3])

    finder = threading.Thread(target=find)
    finder.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                is_whole = artifact.code in libraries and session.manifest == artifact.manifest
                session.run(inputs)
                artifact.session(threads=1).run(inputs)
                is_left = artifact.tuning.wait() is State.STOPPED
                os._exit(0 if is_whole and is_left else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        over.set()
        finder.join()
    assert artifact.tuning.state is State.RUNNING
