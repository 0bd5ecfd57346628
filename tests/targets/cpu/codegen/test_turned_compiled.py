"""Kernels that turn squares of vectors, compiled: into blocks and out of them, transposes."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, Layout, TensorType
from farrier.lower.program import to_program
from farrier.targets import host
from farrier.targets.cpu.codegen.compile import assembly
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.rules import elementwise
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import run_compiled

SHAPES = [(1, 16, 4, 16), (2, 37, 3, 21), (1, 24, 2, 80), (1, 5, 7, 6), (1, 40, 9, 4)]


def value(name, shape, layout=None):
    return Value(name, TensorType(DType.F32, shape, layout))


def space_of(*nodes):
    read = [v for node in nodes for v in node.inputs if not v.name.startswith("made")]
    inputs = tuple({v.name: v for v in read}.values())
    graph = Graph("region", inputs, (), nodes, nodes[-1].outputs)
    space = elementwise.space(to_program(graph, "kernel", ()), host(), 2)
    assert space is not None
    return space


def run(space, **inputs):
    (result,) = run_compiled(final_loops(space, space.default()), inputs, threads=2).values()
    return result


def images(shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("halo", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_into_blocks_and_out_of_them(shape, halo):
    around = ((0, 0), (0, 0), (halo, halo), (halo, halo)) if halo else ()
    blocked = Layout.blocked(4, 1, host().lanes, around)
    x = images(shape)
    for source, destination in ((None, blocked), (blocked, None)):
        node = Node("Relayout", (value("x", shape, source),), (value("y", shape, destination),))
        np.testing.assert_array_equal(run(space_of(node), x=x), x)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_read_twice_and_a_broadcast_on_the_way(shape):
    blocked = Layout.blocked(4, 1, host().lanes)
    gate = (shape[0], shape[1], 1, 1)
    scaled, total = value("made0", shape, blocked), value("made1", shape, blocked)
    x = value("x", shape, blocked)
    space = space_of(
        Node("Mul", (x, value("g", gate)), (scaled,)),
        Node("Add", (scaled, x), (total,)),
        Node("Relayout", (total,), (value("y", shape),)),
    )
    data, gates = images(shape), images(gate)
    result = run(space, x=data, g=gates)
    np.testing.assert_allclose(result, data * gates + data, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("perm", [(1, 0), (0, 2, 1), (2, 1, 0)])
def test_transposes(perm):
    shape = (33, 19, 22)[: len(perm)]
    x = images(shape)
    out = tuple(shape[axis] for axis in perm)
    node = Node("Transpose", (value("x", shape),), (value("y", out),), attributes(perm=perm))
    np.testing.assert_array_equal(run(space_of(node), x=x), x.transpose(perm))


def test_no_element_moves_by_itself():
    """A square is turned by shuffles of vectors: no loads or stores of single elements."""
    target = host()
    blocked = Layout.blocked(4, 1, target.lanes)
    shape = (1, 2 * target.lanes, 2, 2 * target.lanes)
    node = Node("Relayout", (value("x", shape, blocked),), (value("y", shape),))
    space = space_of(node)
    text = assembly(emit_function(final_loops(space, space.default()), target), target)
    assert "insertps" not in text
    assert "movss" not in text
