"""The processors of a session's threads."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import farrier
from bench import models
from farrier.packaging.draws import random_inputs


@pytest.fixture
def artifact():
    return farrier.compile(models.build("mobilenet_v2", size=32, stages=1), threads=2, verify=False)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no CPUs to choose here")
@pytest.mark.parametrize("count", [1, 2])
def test_helpers_are_bound_where_each_thread_has_a_cpu(artifact, count):
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    allowed = set(sorted(cpus)[:count])
    try:
        os.sched_setaffinity(0, allowed)
        session = artifact.session(threads=2)
        session.run(random_inputs(artifact.manifest.inputs))
        (helper,) = session.code.pool._helpers
        deadline = time.monotonic() + 60
        # It is bound once it has begun.
        while len(bound := os.sched_getaffinity(helper.native_id)) != 1:
            assert time.monotonic() < deadline
        assert bound <= allowed
        assert os.sched_getaffinity(0) == allowed  # The caller keeps its processors.
    finally:
        os.sched_setaffinity(0, cpus)


def test_sessions_that_run_at_once(artifact):
    inputs = random_inputs(artifact.manifest.inputs)
    sessions = [artifact.session(threads=2) for _ in range(3)]
    expected = sessions[0].run(inputs)
    with ThreadPoolExecutor(len(sessions)) as executor:
        runs = [executor.submit(s.run, inputs) for _ in range(40) for s in sessions]
        for run in runs:
            for name, array in run.result().items():
                np.testing.assert_array_equal(array, expected[name])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_session_runs_in_a_process_forked_after_it_was_loaded(artifact):
    """Its helpers are not there: the caller does their work."""
    inputs = random_inputs(artifact.manifest.inputs)
    session = artifact.session(threads=2)
    expected = session.run(inputs)
    child = os.fork()
    if child == 0:
        same = all(np.array_equal(a, expected[name]) for name, a in session.run(inputs).items())
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    for name, array in session.run(inputs).items():
        np.testing.assert_array_equal(array, expected[name])


def test_threads_do_not_change_the_result(artifact):
    inputs = random_inputs(artifact.manifest.inputs)
    (serial,) = artifact.session(threads=1).run(inputs).values()
    (parallel,) = artifact.session(threads=2).run(inputs).values()
    np.testing.assert_allclose(serial, parallel, rtol=1e-5, atol=1e-6)
