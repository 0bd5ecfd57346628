"""A build is held to ONNX Runtime and float64, and only as far as rounding allows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.compile_pool import CompilePool, lowered
from farrier.errors import InputMismatchError, VerificationError, VerificationWarning
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import model_of as model_from
from farrier.measure import LocalDevice
from farrier.model_tuning.variant import make_variant
from farrier.packaging.draws import random_inputs
from farrier.packaging.onnxruntime import OnnxRuntime
from farrier.packaging.package import specs
from farrier.packaging.verify import Verifier
from farrier.passes import Settings, prepare
from farrier.targets import parse_target
from farrier.targets.cpu.assemble import assemble, plan

TARGET = parse_target("host")
node, info = helper.make_node, helper.make_tensor_value_info


def model_of(nodes, argument, constants, shape):
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    result = info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "m", [argument], [result], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    proto.ir_version = 8
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


def shifted(by):
    """y = (x + by) - by, rounded on the way."""
    nodes = [node("Add", ["x", "c"], ["s"]), node("Sub", ["s", "c"], ["y"])]
    argument = info("x", TensorProto.FLOAT, [64])
    return model_of(nodes, argument, {"c": np.float32(by)}, [64])


def normalized_rows():
    """Rows of a table, normalized by E[x²] - E[x]²; the first two rows are nearly equal."""
    table = np.random.default_rng(0).standard_normal((600, 16)).astype(np.float32)
    table[:2] = 100 + 1e-3 * table[:2]
    nodes = [
        node("Gather", ["table", "ids"], ["h"]),
        node("ReduceMean", ["h"], ["mean"]),
        node("Mul", ["h", "h"], ["squares"]),
        node("ReduceMean", ["squares"], ["second"]),
        node("Mul", ["mean", "mean"], ["first"]),
        node("Sub", ["second", "first"], ["difference"]),
        node("Max", ["difference", "zero"], ["variance"]),
        node("Add", ["variance", "little"], ["above"]),
        node("Sqrt", ["above"], ["deviation"]),
        node("Sub", ["h", "mean"], ["centred"]),
        node("Div", ["centred", "deviation"], ["y"]),
    ]
    constants = {"table": table, "zero": np.float32(0), "little": np.float32(1e-9)}
    return model_of(nodes, info("ids", TensorProto.INT64, [96]), constants, [96, 16])


def counted_and_added(size):
    """y = range(n) + x[size]: a build takes n = size, and refuses n = 1, which has a result too."""
    nodes = [
        node("Range", ["zero", "n", "one"], ["r"]),
        node("Cast", ["r"], ["counted"], to=TensorProto.FLOAT),
        node("Add", ["counted", "x"], ["y"], name="add"),
    ]
    arguments = [info("n", TensorProto.INT64, []), info("x", TensorProto.FLOAT, [size])]
    weights = [numpy_helper.from_array(np.int64(v), k) for k, v in (("zero", 0), ("one", 1))]
    result = info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "m", arguments, [result], weights)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    ).SerializeToString()


def verify(model, build):
    """Hold what was built of one model to what another says."""
    settings = Settings(TARGET, 1)
    source = model_from(model)
    with LocalDevice() as local, OnnxRuntime(source, print) as engine:
        imported = import_model(model)
        verifier = Verifier(engine, source, imported, *specs(imported), local.blobs)
        variant = make_variant(prepare(import_model(build).graph, settings), settings)
        with CompilePool(0, TARGET, 1) as nobody:
            kernels = nobody.compile(lowered(variant.choices, TARGET))
        planned = plan(variant.program, kernels.interfaces, TARGET, 1)
        linked = assemble(planned, kernels.objects, TARGET)
        return verifier.verify(linked, local.runner, 1)


def test_a_build_of_the_model_is_right():
    verified = verify(shifted(1), shifted(1))
    assert verified.max_error < 1e-6
    assert verified.reference.startswith("ONNX Runtime")


def test_a_build_of_another_model_is_wrong():
    with pytest.raises(VerificationError, match=r"from ONNX Runtime .* from float64"):
        verify(shifted(0), shifted(500_000))


def test_float64_decides_against_onnx_runtime():
    verified = verify(shifted(30_000), shifted(0))
    assert verified.reference == "float64"
    assert verified.max_error < 1e-6


def test_rounding_that_onnx_runtime_does_is_allowed():
    verified = verify(shifted(60_000), shifted(20_000))
    assert verified.reference == "float64"
    assert 1e-4 < verified.max_error < 1e-3


def test_other_integers_are_drawn_where_few_make_a_model_amplify_rounding():
    artifact = farrier.compile(normalized_rows())
    assert artifact.report["verification"]["max_error"] < 1e-4


def test_other_sizes_are_drawn_where_a_build_refuses_some():
    artifact = farrier.compile(counted_and_added(5))
    assert artifact.report["verification"]["max_error"] == 0
    with pytest.raises(InputMismatchError, match="needs 5"):
        artifact.run({"n": np.int64(1), "x": np.zeros(5, np.float32)})


def test_a_build_that_refuses_all_that_is_drawn_is_not_called_broken():
    refused = "refuses the random inputs: node 'r' gets a size from their values; .* needs 5000"
    with pytest.warns(VerificationWarning, match=refused):
        artifact = farrier.compile(counted_and_added(5000))
    assert artifact.report["verification"] is None
    result = artifact.run({"n": np.int64(5000), "x": np.ones(5000, np.float32)})
    np.testing.assert_array_equal(result["y"], np.arange(1, 5001, dtype=np.float32))


def test_integers_stay_below_their_bound():
    imported = import_model(normalized_rows())
    inputs, _ = specs(imported)
    assert random_inputs(inputs)["ids"].max() == 1
    assert 8 <= random_inputs(inputs, below=32)["ids"].max() < 32
