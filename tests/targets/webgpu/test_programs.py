"""Programs of small variants of known models: kernels, launches and copies, with no adapter."""

from __future__ import annotations

import functools

import pytest

import farrier
from bench import models
from bench.gpus.models import MOST_ARRAYS, copies_within, most_arrays, steps_of
from farrier_device.program import HOST, Copy, Launch, Wait

_SMALL = {
    "resnet50": {"size": (32, 32)},
    "mobilenet_v2": {"size": (32, 32)},
    "bert_base": {"layers": 2, "tokens": 16},
    "vit_b16": {"layers": 2},
}


@functools.cache
def _artifact(name):
    return farrier.compile(models.build(name, **_SMALL[name]), target="webgpu", verify=False)


@pytest.mark.parametrize("name", _SMALL)
def test_values_stay_on_the_gpu(name):
    """Nothing is copied to the host but the outputs, for which it waits once, at the end."""
    program = _artifact(name).code.program
    steps = [*steps_of(program.steps)]
    assert copies_within(program) == []
    outputs = [step for step in steps if isinstance(step, Copy) and step.target.space == HOST]
    assert len(outputs) == sum(memory.name.startswith("output") for memory in program.memories)
    assert [step for step in steps if isinstance(step, Wait)] == [steps[-1]]
    assert sum(isinstance(step, Launch) for step in steps) > 10


@pytest.mark.parametrize("name", _SMALL)
def test_kernels_keep_to_the_arrays_of_the_default_limits(name):
    assert 2 < most_arrays(_artifact(name)) <= MOST_ARRAYS
