"""The work of passes grows with the number of nodes, and no faster: counted in calls, not in
time."""

from __future__ import annotations

import cProfile

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph
from farrier.partition import extract_tasks
from farrier.passes import Settings, optimize
from farrier.targets import parse_target

SETTINGS = Settings(parse_target("x86-64-v4"), threads=2)
RNG = np.random.default_rng(0)


def elementwise(i, value):
    return [helper.make_node(("Relu", "Neg", "Abs", "Tanh")[i % 4], [value], [f"v{i}"])], {}


def attention_like(i, value):
    if i % 2:
        return [helper.make_node("Softmax", [value], [f"v{i}"])], {}
    weights = {f"w{i}": RNG.standard_normal((16, 16)).astype(np.float32)}
    return [helper.make_node("MatMul", [value, f"w{i}"], [f"v{i}"])], weights


def reshaped(i, value):
    nodes = [
        helper.make_node("Shape", [value], [f"s{i}"]),
        helper.make_node("Reshape", [value, f"s{i}"], [f"r{i}"]),
        helper.make_node("Exp", [f"r{i}"], [f"v{i}"]),
    ]
    return nodes, {}


def branches(i, value):
    then, other = (
        helper.make_graph([helper.make_node(op, [value], [out])], out, [], [info(out)])
        for op, out in (("Relu", f"a{i}"), ("Neg", f"b{i}"))
    )
    return [helper.make_node("If", ["c"], [f"v{i}"], then_branch=then, else_branch=other)], {}


def info(name):
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 16])


def chain(link, count):
    """The bytes of a model of `count` links, each of which reads the output of the one before."""
    nodes, weights, value = [], {}, "x"
    for i in range(count):
        more, constants = link(i, value)
        nodes, weights, value = [*nodes, *more], weights | constants, f"v{i}"
    inputs = [info("x"), helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "chain", inputs, [info(value)], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


def calls_of(model):
    """The number of function calls from the bytes to the program."""
    profile = cProfile.Profile()
    with profile:
        extract_tasks(optimize(import_model(model).graph, SETTINGS))
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("link", [elementwise, attention_like, reshaped, branches])
def test_work_is_linear_in_the_number_of_nodes(link):
    small, large = (calls_of(chain(link, count)) for count in (10, 40))
    assert large < 4.6 * small


def test_products_and_softmaxes_in_a_row_are_attentions_one_by_one():
    """Not one kernel without end: the output of one attention is not the scores of the next."""
    model = chain(attention_like, 13)
    graph = import_model(model).graph
    optimized = optimize(graph, SETTINGS)
    regions = [node.regions[0] for node in optimized.nodes if node.op == "Fused"]
    products = [sum(node.op == "MatMul" for node in region.nodes) for region in regions]
    assert sum(products) == 7
    assert max(products) == 2
    feeds = {v.name: np.ones(v.type.static_shape, v.type.dtype.numpy) for v in graph.inputs}
    for left, right in zip(
        run_graph(graph, feeds).values(), run_graph(optimized, feeds).values(), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)
