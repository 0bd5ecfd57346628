"""The PTX of a whole model: ptxas accepts it, kernels with 5% of its operations spill nothing, and
loops compute no index in 64 bits. `python -m bench.assembled` does this for all models."""

from __future__ import annotations

import pytest

from bench import assembled
from bench.workloads import workload
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import model_of
from farrier.options.precision import Precision
from farrier.passes import Settings, prepare
from farrier.targets import parse_target
from farrier.targets.cuda.assembler import find_ptxas


@pytest.mark.slow
@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is missing: install nvidia-cuda-nvcc")
@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_the_kernels_of_a_model_stay_in_registers(precision):
    of = workload("squeezenet")
    settings = Settings(parse_target("cuda:sm_80"), 1, precision=Precision(precision))
    graph = prepare(import_model(model_of(of.build()), of.shapes).graph, settings)
    assembler = assembled.Assembler(find_ptxas(), None)
    kernels = list(assembler.kernels(graph, settings))
    assert sum(kernel.share for kernel in kernels) == pytest.approx(1)
    assert all(kernel.is_right for kernel in kernels if kernel.share >= assembled.LARGE)
