"""The PTX of a whole model: ptxas accepts it, kernels with 5% of its operations spill nothing, and
loops compute no index in 64 bits. `python -m bench.assembled` does this for all models."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from bench import assembled
from bench.workloads import workload
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import model_of
from farrier.options.precision import Precision
from farrier.passes import Settings, prepare
from farrier.targets import parse_target
from farrier.targets.cuda.assembler import find_ptxas


def test_another_assembler_measures_anew(tmp_path, monkeypatch):
    """A kernel is assembled once for each version of the assembler."""
    measured, cache = [], tmp_path / "assembled.json"
    figures = {"registers": 8, "stack": 0, "spilled": 0, "wide": []}
    monkeypatch.setattr(
        assembled.Assembler, "_measured", lambda self, ptx, cpu: measured.append(cpu) or figures
    )
    node = helper.make_node("Relu", ["x"], ["y"])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", infos[:1], infos[1:]))
    settings = Settings(parse_target("cuda:sm_80"), 1)
    graph = prepare(import_model(model_of(model.SerializeToString()), {}).graph, settings)
    for version in "13.0", "13.0", "13.1":
        monkeypatch.setattr(assembled, "version_of", lambda ptxas, version=version: version)
        assembler = assembled.Assembler("ptxas", cache)
        assert len(list(assembler.kernels(graph, settings))) == 1
        assembler.save()
    assert len(measured) == 2


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
