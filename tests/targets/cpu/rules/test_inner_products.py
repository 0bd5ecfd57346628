"""Products with few columns, or few rows of a transposed matrix: lanes along the sum."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import farrier
from farrier.targets import parse_target
from farrier.targets.cpu.rules import for_program
from tests.targets.cpu.rules.space_programs import Region, check, tensor

RNG = np.random.default_rng(11)
TARGET = parse_target("x86-64-v4")
TYPES = {"f4": TensorProto.FLOAT, "f8": TensorProto.DOUBLE, "i4": TensorProto.INT32}


@st.composite
def products(draw):
    """A product of a matrix, or a batch of them, by up to seven columns, or its transpose."""
    m, k, n = draw(st.integers(16, 37)), draw(st.integers(16, 40)), draw(st.integers(1, 7))
    constant, batch = draw(st.booleans()), draw(st.sampled_from([(), (2,)]))
    if draw(st.booleans()):
        shape = (*batch, m, n)
        weights = tensor("w", *(() if constant else batch), k, n)
        return Region(tensor("x", *batch, m, k)).then(
            "MatMul", weights, shape=shape, constant=constant
        )
    attributes = {"transA": 0, "transB": 1, "alpha": 1.0, "beta": 1.0}
    return Region(tensor("x", n, k)).then(
        "Gemm", tensor("w", m, k), shape=(n, m), constant=False, **attributes
    )


@given(region=products(), follows=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_candidates_compute_the_reference(region, follows, seed):
    region = region.then("Relu") if follows else region
    space = for_program(region.program, TARGET, 2)
    candidates = space.candidates()
    picked = np.random.default_rng(seed).integers(len(candidates))
    for decisions in (space.default(), space.decisions(candidates[picked])):
        check(region, space, decisions)


@pytest.mark.parametrize(
    ("x", "w", "constant"),
    [((64, 48), (48, 3), True), ((64, 48), (48, 1), False), ((2, 96, 48), (2, 48, 5), False)],
)
def test_the_long_operand_is_read_along_the_sum(x, w, constant):
    shape = np.matmul(np.zeros(x), np.zeros(w)).shape
    region = Region(tensor("x", *x)).then("MatMul", tensor("w", *w), shape=shape, constant=constant)
    assert for_program(region.program, TARGET, 2).rule.name == "inner_product"


def model_of(kind, products):
    """A model of products of `a[m, k]`, or of vectors of it, with operands of their own."""
    nodes, operands, outputs = [], {"a": ("m", "k")}, []
    for number, (columns, transposed) in enumerate(products):
        name = f"b{number}"
        operands[name] = (columns, "k") if transposed else ("k", *columns)
        inputs, out = ["a", name], f"y{number}"
        if transposed:
            nodes.append(helper.make_node("Gemm", [name, "a"], [out], transB=1))
        else:
            nodes.append(helper.make_node("MatMul", inputs, [out]))
        outputs.append(helper.make_tensor_value_info(out, TYPES[kind], None))
    values = [helper.make_tensor_value_info(n, TYPES[kind], s) for n, s in operands.items()]
    graph = helper.make_graph(nodes, "products", values, outputs)
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString(), operands


@pytest.mark.parametrize("kind", TYPES)
def test_open_sizes(kind):
    products = [((), False), ((1,), False), ((3,), False), ((7,), False)]
    products += [] if kind == "i4" else [(1, True), (4, True)]
    model, operands = model_of(kind, products)
    artifact = farrier.compile(
        onnx.load_from_string(model), threads=2, verify=False, typical={"m": 300, "k": 200}
    )
    for m, k in ((300, 200), (301, 199), (1, 1), (0, 5), (5, 0), (17, 16), (2, 257)):
        sizes = {"m": m, "k": k}
        arrays = {
            name: (10 * RNG.standard_normal([sizes.get(n, n) for n in shape])).astype(kind)
            for name, shape in operands.items()
        }
        results = artifact.run(arrays)
        for number, (_, transposed) in enumerate(products):
            left, right = arrays["a"].astype(np.float64), arrays[f"b{number}"]
            wanted = right @ left.T if transposed else left @ right
            scale = np.abs(left).sum() if left.size else 1
            np.testing.assert_allclose(
                results[f"y{number}"], wanted, rtol=1e-5, atol=1e-5 * scale, err_msg=f"{m} {k}"
            )
