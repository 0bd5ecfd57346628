"""Programs for the space rules: regions of real operators, and their reference in numpy."""

from __future__ import annotations

import numpy as np

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.run_loops import run_loops
from farrier.ir.types import DType, Layout, PhysicalDim, TensorType
from farrier.lower.program import to_program
from farrier.ops.registry import lookup
from farrier.targets.x86 import X86Target
from tests.lowering import final_loops

# Small vectors make small programs interesting: 4 lanes, 16 registers.
TARGET = X86Target("x86_64-unknown-linux-gnu", "x86-64-v2", (), 128, 16, 2, 32768, 1 << 20, 1 << 24)


def tensor(name, *shape, layout=None, dtype=DType.F32):
    return Value(name, TensorType(dtype, shape, layout))


def halo_of(pad):
    return ((0, 0), (0, 0), (pad, pad), (pad, pad))


def nchwc(pad=0, lanes=4):
    return Layout.blocked(4, 1, lanes, halo_of(pad) if pad else ())


def permuted(*axes):
    """Memory walks the axes in this order."""
    return Layout(tuple(map(PhysicalDim, axes)))


class Region:
    """A chain of nodes on the first input; `constants` are inputs known at compile time."""

    def __init__(self, first, constants=()):
        self.inputs = [first]
        self.nodes = []
        self.last = first
        self.literals = []
        self.constants = set(constants)

    def then(self, op, *others, shape=None, layout="same", constant=True, order=0, **attrs):
        """Add a node that reads the last value at position `order` among `others`."""
        for value in others:
            if value.name not in {v.name for v in self.inputs}:
                self.inputs.append(value)
                if constant:
                    self.constants.add(value.name)
        operands = list(others)
        operands.insert(order, self.last)
        kind = self.last.type
        out = tensor(
            f"v{len(self.nodes)}",
            *(kind.shape if shape is None else shape),
            layout=kind.layout if layout == "same" else layout,
        )
        self.nodes.append(Node(op, tuple(operands), (out,), attributes(**attrs)))
        self.last = out
        return self

    @property
    def graph(self):
        return Graph("region", tuple(self.inputs), (), tuple(self.nodes), (self.last,))

    @property
    def program(self):
        return to_program(self.graph, "region", self.constants)


def conv(
    ic, size, oc, kernel, *, stride=1, pad=0, group=1, blocked=True, bias=True, out_pad=0, n=1
):
    """A convolution with blocked (or plain) input and blocked output."""
    out = (size + 2 * pad - kernel) // stride + 1
    x = tensor("x", n, ic, size, size, layout=nchwc(pad) if blocked else None)
    weights = [tensor("w", oc, ic // group, kernel, kernel)]
    weights += [tensor("b", oc)] if bias else []
    return Region(x).then(
        "Conv",
        *weights,
        shape=(n, oc, out, out),
        layout=nchwc(out_pad),
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
        dilations=(1, 1),
        pads=(pad,) * 4,
        group=group,
    )


def matmul(m, k, n, *, batch=(), constant=True):
    weights = tensor("w", *(() if constant else batch), k, n)
    return Region(tensor("x", *batch, m, k)).then(
        "MatMul", weights, shape=(*batch, m, n), constant=constant
    )


def reference(graph, inputs):
    """The region's outputs by name, in float64."""
    values = {name: np.asarray(array, np.float64) for name, array in inputs.items()}
    for constant in graph.constants:
        values[constant.value.name] = constant.data
    for node in graph.nodes:
        arrays = [None if v is None else values[v.name] for v in node.inputs]
        results = lookup(node.op).reference(arrays, dict(node.attrs))
        values.update({v.name: a for v, a in zip(node.outputs, results, strict=True)})
    return {value.name: values[value.name] for value in graph.outputs}


def check(region, space, decisions, seed=0):
    """Build a candidate and compare what it computes with the reference."""
    rng = np.random.default_rng(seed)
    graph, program = region.graph, region.program
    inputs = {
        v.name: rng.standard_normal(v.type.static_shape).astype(np.float32) for v in graph.inputs
    }
    expected = list(reference(graph, inputs).values())
    function = final_loops(space, decisions)
    assert [p.name for p in function.params] == [
        b.name for b in (*program.inputs, *program.outputs)
    ]
    actual = list(run_loops(function, inputs).values())
    for got, wanted in zip(actual, expected, strict=True):
        # A schedule may join axes that lie together.
        got = got.reshape(wanted.shape)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=str(decisions))
