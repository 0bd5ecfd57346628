"""Where a session's threads run."""

from __future__ import annotations

import os

import numpy as np
import pytest

import farrier
from bench import models
from farrier.verify import random_inputs


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
        (helper,) = session.pool._helpers
        assert os.sched_getaffinity(helper.native_id) == {max(allowed)}
        assert os.sched_getaffinity(0) == allowed  # the caller is left where it is
    finally:
        os.sched_setaffinity(0, cpus)


def test_threads_do_not_change_the_result(artifact):
    inputs = random_inputs(artifact.manifest.inputs)
    (one,) = artifact.session(threads=1).run(inputs).values()
    (two,) = artifact.session(threads=2).run(inputs).values()
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
