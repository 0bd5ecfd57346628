"""`farrier profile` shows what each kernel reaches of what the GPU does at most."""

from __future__ import annotations

import farrier
from farrier.bench.profile import profile
from farrier.targets.cuda import roofline
from tests.targets.cuda.ptx import kernels_of
from tests.targets.cuda.test_models import LAYERS_OF_FOUR


def test_a_profile_has_the_rates_that_the_gpu_reaches(library):
    artifact = farrier.compile(LAYERS_OF_FOUR, target="cuda:sm_80", verify=False)
    result = profile(artifact, seconds=0.01)
    assert library.launches.count("multiply_adds") == library.launches.count("stream") == 6
    # The emulated driver says that a launch takes a millisecond.
    operations = 2 * 8 * 16 * 256 * 8
    assert result.roofline.operations == 1e3 * operations
    assert result.roofline.bandwidth == 1e3 * (1 << 20)
    assert {row.name.partition("_")[0] for row in result.kernels} == {"matmul", "softmax"}


def test_the_kernels_of_the_roofline_do_what_their_rates_say():
    (multiply_adds,) = kernels_of(roofline._multiply_adds(512)).values()
    (stream,) = kernels_of(roofline._STREAM).values()
    assert sum(each.name == "fma" for each in multiply_adds.code) == 8
    assert [each.suffixes for each in stream.code if each.name == "ld"][-1] == (
        *("global", "v4", "b32"),
    )
