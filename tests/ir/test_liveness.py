"""Liveness from the outputs: values, and the nodes that compute the sizes in their shapes."""

from __future__ import annotations

import numpy as np

from farrier.ir.control import If, Loop, make_if, make_loop
from farrier.ir.dim import dim
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.liveness import Liveness, defined
from farrier.ir.types import DType, TensorType


def value(name, *shape, dtype=DType.F32):
    return Value(name, TensorType(dtype, shape))


def size(name, high=8):
    return dim(name, 0, high)


N, M, R = size("n"), size("m"), size("r")
COUNT = Node("NonZero", (value("x", 8),), (value("where", 1, N),), attributes(extent="n"))


def no_constants(name):
    return None


def liveness(*outputs, data=no_constants):
    return Liveness(outputs, data)


def test_what_outputs_read_is_needed():
    relu = Node("Relu", (value("x", 4),), (value("y", 4),))
    unused = Node("Relu", (value("x", 4),), (value("z", 4),))
    live = liveness(value("y", 4))
    assert live.needs(relu)
    assert not live.needs(unused)
    live.add(relu)
    assert live.values == {"x", "y"}


def test_a_size_needs_what_counts_it():
    """Nothing reads where the elements are; how many they are is in a shape."""
    assert liveness(value("y", N)).needs(COUNT)
    assert not liveness(value("y", M)).needs(COUNT)


def test_a_bound_needs_what_counts_it():
    assert liveness(value("y", size("m", high=N + 1))).needs(COUNT)


def test_a_size_in_a_formula_needs_what_counts_it():
    assert liveness(value("y", (N + 1) // 2)).needs(COUNT)


def test_a_constant_of_sizes_needs_what_counts_them():
    sizes = {"c": np.array([N, 3], object)}
    assert liveness(value("c", 2, dtype=DType.I64), data=sizes.get).needs(COUNT)


def test_a_bind_defines_the_elements_of_its_constant():
    sizes = {"c": np.array([N * 2, M], object), "k": np.array([1, 2])}
    read, plain = (value(name, 2, dtype=DType.I64) for name in "ck")
    operand = value("given", 2, dtype=DType.I64)
    bind = Node("Bind", (operand, read), (value("bound", 2, dtype=DType.I64),))
    assert list(defined(bind, sizes.get)) == ["n", "m"]
    assert list(defined(Node("Bind", (operand, plain), bind.outputs), sizes.get)) == []


def test_results_of_an_if_are_needed_one_by_one():
    def branch(extent, name):
        return Graph(name, (), (), (), (value("a", extent), value("b", 3)))

    condition = value("c", dtype=DType.BOOL)
    results = (value("a", R), value("b", 3))
    node = make_if(If(condition, (), results, (branch(2, "then"), branch(5, "otherwise"))), "")
    assert list(defined(node, no_constants)) == ["r"]
    live = liveness(value("other", R))
    assert live.needs(node)
    assert [live.is_live(result) for result in results] == [True, False]


def test_a_loop_defines_the_sizes_that_it_grows():
    current, after = value("current", M), value("after", M + 1)
    iteration = value("i", dtype=DType.I64)
    body = Graph("body", (iteration, current), (), (), (after,))
    trips, first, last = value("trips", dtype=DType.I64), value("first", 1), value("last", R)
    loop = Loop(
        trips, None, (first,), (), (), (last,), (), body, iteration, (current,), (), (), None,
        (after,), (),
    )  # fmt: skip
    node = make_loop(loop, "")
    assert list(defined(node, no_constants)) == ["r"]
    assert liveness(value("other", R)).needs(node)
    assert not liveness(value("other", M)).needs(node)
    live = liveness(last)
    live.add(node)
    assert live.needs(Node("Range", (), (value("q", 1),), attributes(extent="m")))
