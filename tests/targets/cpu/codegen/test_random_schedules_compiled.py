"""Whatever the primitives accept compiles, and computes what the interpreter computes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farrier.schedule import Schedule, ScheduleError
from tests.lowering import finalize
from tests.schedule.test_random_schedules import NAMES, _case, _random_step
from tests.targets.cpu.codegen.differential import run_compiled


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_accepted_schedules_compile(name, data):
    function, inputs, expected = _case(name)
    schedule = Schedule(function)
    for step in range(data.draw(st.integers(1, 14))):
        try:
            _random_step(data, schedule, step)
        except ScheduleError:
            continue
    for form in (schedule.function, finalize(schedule.function)):
        actual = run_compiled(form, inputs, threads=data.draw(st.integers(1, 2)))
        for output, array in expected.items():
            np.testing.assert_allclose(actual[output], array, rtol=1e-4, atol=1e-4)
