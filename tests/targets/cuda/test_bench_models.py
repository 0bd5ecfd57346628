"""The PTX of whole models: ptxas accepts it and spills nothing, and loops compute no index in 64
bits."""

from __future__ import annotations

import pytest

import farrier
from bench.workloads import NAMES, workload
from farrier.targets.cuda.architectures import ARCHITECTURES
from farrier_device.cuda_library import PTX
from tests.targets.cuda.test_indices import wide_in_loops
from tests.targets.cuda.test_ptxas import frames

_SMALL = "squeezenet"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cpu"),
    [*((name, "sm_80") for name in NAMES), *((_SMALL, cpu) for cpu in ARCHITECTURES)],
)
def test_the_kernels_of_a_model_stay_in_registers(name, cpu, tmp_path):
    of = workload(name)
    artifact = farrier.compile(of.build(), target=f"cuda:{cpu}", shapes=of.shapes, verify=False)
    modules = [module for module in artifact.code.objects if module.kind == PTX]
    assert modules
    for module in modules:
        text = module.content.decode()
        assert wide_in_loops(text) <= {"add.s64", "mov.b64"}, module.path
        assert set(frames(text, cpu, tmp_path)) == {("0", "0")}, module.path
