"""Equations of Einsum against numpy, which has their meaning: the importer takes them apart."""

from __future__ import annotations

import itertools

import hypothesis
import numpy as np
import onnx
import pytest
from hypothesis import strategies as st
from onnx import helper

import farrier
from farrier.errors import InvalidModelError
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph


def model_of(equation, arrays, shapes=None):
    shapes = shapes or [array.shape for array in arrays]
    names = [f"x{i}" for i in range(len(arrays))]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)
        for name, array, shape in zip(names, arrays, shapes, strict=True)
    ]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return bytes(model.SerializeToString())


def graph_of(equation, arrays):
    return import_model(model_of(equation, arrays)).graph


def check(equation, arrays):
    graph = graph_of(equation, arrays)
    feeds = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
    (actual,) = run_graph(graph, feeds).values()
    np.testing.assert_array_equal(actual, np.einsum(equation, *arrays))


@st.composite
def equations(draw):
    """An equation of up to five operands with its arrays of integers. Labels may repeat, and are 1
    long in some operands."""
    sizes = {label: draw(st.integers(1, 4)) for label in "abcdeZ"}
    ellipsis = draw(st.lists(st.integers(1, 3), max_size=2))
    operands, arrays = [], []
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    for _ in range(draw(st.integers(1, 5))):
        labels = draw(st.lists(st.sampled_from("abcdeZ"), max_size=3))
        single = draw(st.sets(st.sampled_from("abcdeZ"), max_size=1))
        shape = [1 if label in single else sizes[label] for label in labels]
        text = "".join(labels)
        if draw(st.booleans()):
            own = ellipsis[len(ellipsis) - draw(st.integers(0, len(ellipsis))) :]
            own = [1 if draw(st.integers(0, 3)) == 0 else extent for extent in own]
            at = draw(st.integers(0, len(labels)))
            text, shape = text[:at] + "..." + text[at:], shape[:at] + own + shape[at:]
        operands.append(text)
        arrays.append(rng.integers(-3, 4, shape))
    left = ",".join(operands)
    letters = sorted(set(left) - set(",."))
    chosen = draw(st.sets(st.sampled_from(letters))) if letters else set()
    output = "".join(draw(st.permutations(sorted(chosen))))
    if "..." in left:
        output = "..." + output
    return f"{left}->{output}", arrays


@hypothesis.given(equations())
def test_any_equation(case):
    equation, arrays = case
    check(equation, arrays)


@pytest.mark.parametrize(
    "equation", ["ij,ij->ij", "ij,ij", "ij,jk->ik", "...j,...j->...", "ij,j,i->"]
)
def test_a_label_of_extent_1_broadcasts(equation):
    shapes = {"ij,jk->ik": [(3, 4), (1, 2)], "ij,j,i->": [(3, 4), (1,), (3,)]}
    rng = np.random.default_rng(0)
    check(equation, [rng.integers(-5, 5, s) for s in shapes.get(equation, [(3, 4), (1, 4)])])


def test_operands_are_multiplied_in_the_cheapest_order():
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, (8, 8)) for _ in range(5)]
    nodes = graph_of("ab,bc,cd,de,ef->af", arrays).nodes
    assert [len(node.inputs) for node in nodes if node.op == "Einsum"] == [2, 2, 2, 2]
    arrays[0] = arrays[0][:1]  # A row times matrices is computed from the left.
    nodes = graph_of("ab,bc,cd,de,ef->af", arrays).nodes
    assert [node.outputs[0].type.shape for node in nodes] == [(1, 8)] * 4


def test_what_one_operand_sums_alone_is_summed_first():
    arrays = [np.ones((4, 50), "i8"), np.ones((60, 5), "i8")]
    nodes = graph_of("ij,kl->il", arrays).nodes
    assert [node.attr("equation") for node in nodes] == ["ij->i", "kl->l", "i,l->il"]


def test_elementwise_products_stay_one_node():
    (node,) = graph_of("i,i,i->i", [np.ones(9, "i8")] * 3).nodes
    assert len(node.inputs) == 3


def test_many_operands():
    letters = "abcdefghijk"
    equation = ",".join(a + b for a, b in itertools.pairwise(letters)) + "->ak"
    rng = np.random.default_rng(0)
    check(equation, [rng.integers(-2, 3, (3, 3)) for _ in range(10)])
    check("i" + ",i" * 59 + "->i", [np.array([1, -1, 1])] * 60)


@pytest.mark.parametrize("dtype", ["f4", "i4", "f8"])
def test_compiled(dtype):
    """With an open extent, a diagonal, an axis that broadcasts, and integers that wrap around."""
    rng = np.random.default_rng(1)
    equation, shapes = "nij,jkk,nk,l->ln", [(5, 3, 4), (4, 2, 2), (1, 2), (3,)]
    large = 3.0 if dtype != "i4" else 1e5
    arrays = [(large * rng.standard_normal(shape)).astype(dtype) for shape in shapes]
    data = model_of(equation, arrays, [("n", 3, 4), *shapes[1:]])
    y = farrier.compile(data, threads=1, verify=False).run(
        {f"x{i}": array for i, array in enumerate(arrays)}
    )["y"]
    wide = arrays if dtype == "i4" else [array.astype("f8") for array in arrays]
    expected = np.einsum(equation, *wide)
    if dtype == "i4":
        np.testing.assert_array_equal(y, expected)
    else:
        np.testing.assert_allclose(y, expected, rtol=2e-5 if dtype == "f4" else 1e-12)


@pytest.mark.parametrize(
    ("equation", "words"),
    [
        ("ij,jk", "2 operands in the equation and 1 inputs"),
        ("ijk->i", "labels 'ijk' for an operand"),
        ("ij->ik", "labels .'k'. that no input has"),
        ("ij->ii", "repeat one"),
        ("ii->i", "both 3 and 4 long"),
        ("...ijk->i", "for operands of"),
    ],
)
def test_equations_that_do_not_fit(equation, words):
    with pytest.raises(InvalidModelError, match=words):
        graph_of(equation, [np.ones((3, 4), "f4")])
