"""Graph neural networks as exporters write them, compiled whole, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import farrier

NODES, EDGES, FEATURES, HIDDEN, HEADS = 50, 211, 24, 40, 4


def build(nodes, inputs, constants, output):
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in inputs.items()
    ]
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name=output)], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


class Writer:
    """Nodes of a model, and its constants."""

    def __init__(self, rng):
        self.rng, self.nodes, self.constants = rng, [], {}

    def __call__(self, op, *inputs, **attrs):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def weights(self, *shape):
        return self.constant(self.rng.standard_normal(shape).astype(np.float32) / shape[0])

    def constant(self, data):
        name = f"c{len(self.constants)}"
        self.constants[name] = data
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def ends(self):
        """The sources and the targets of the edges."""
        return (self("Gather", "edges", self.constant(np.int64(end))) for end in range(2))

    def reduced(self, messages, to, rows, width, reduction, start=0.0):
        """Messages joined at the nodes that they go to, as `scatter_reduce` is exported."""
        shape = self.ints(EDGES, *(1 for _ in width))
        wide = self("Expand", self("Reshape", to, shape), self.ints(EDGES, *width))
        first = self.constant(np.full((rows, *width), start, np.float32))
        return self("ScatterElements", first, wide, messages, axis=0, reduction=reduction)


def gcn(w):
    """Two layers of Kipf and Welling's convolution, arXiv:1609.02907."""
    source, to = (
        w("Gather", "edges", w.constant(np.int64(0))),
        w("Gather", "edges", w.constant(np.int64(1))),
    )
    ones, loops = (w.constant(np.ones(count, np.float32)) for count in (EDGES, NODES))
    degree = w("ScatterElements", loops, to, ones, axis=0, reduction="add")
    norm = w("Reciprocal", w("Sqrt", degree))
    edge = w("Mul", w("Gather", norm, source), w("Gather", norm, to))
    column = w("Reshape", edge, w.ints(EDGES, 1))
    x = "x"
    for width, outputs in ((FEATURES, HIDDEN), (HIDDEN, 7)):
        x = w("MatMul", x, w.weights(width, outputs))
        messages = w("Mul", w("Gather", x, source), column)
        x = w("Relu", w.reduced(messages, to, NODES, (outputs,), "add"))
    return x


def gat(w):
    """One layer of attention over neighbours, arXiv:1710.10903."""
    source, to = (
        w("Gather", "edges", w.constant(np.int64(0))),
        w("Gather", "edges", w.constant(np.int64(1))),
    )
    x = w("MatMul", "x", w.weights(FEATURES, HEADS * HIDDEN))
    x = w("Reshape", x, w.ints(NODES, HEADS, HIDDEN))
    ours, theirs = (w("Mul", x, w.weights(1, HEADS, HIDDEN)) for _ in range(2))
    ours, theirs = (w("ReduceSum", part, w.ints(-1), keepdims=0) for part in (ours, theirs))
    score = w("Add", w("Gather", ours, source), w("Gather", theirs, to))
    score = w("LeakyRelu", score, alpha=0.2)
    high = w.reduced(score, to, NODES, (HEADS,), "max", -1e30)
    power = w("Exp", w("Sub", score, w("Gather", high, to)))
    total = w.reduced(power, to, NODES, (HEADS,), "add")
    share = w("Div", power, w("Gather", total, to))
    share = w("Reshape", share, w.ints(EDGES, HEADS, 1))
    messages = w("Mul", w("Gather", x, source), share)
    return w.reduced(messages, to, NODES, (HEADS, HIDDEN), "add")


@pytest.mark.parametrize("network", [gcn, gat])
def test_networks(rng, network):
    writer = Writer(rng)
    output = network(writer)
    inputs = {
        "x": rng.standard_normal((NODES, FEATURES)).astype(np.float32),
        "edges": rng.integers(0, NODES, (2, EDGES)),
    }
    model = build(writer.nodes, inputs, writer.constants, output)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # With more threads its sums by segment race.
    options.log_severity_level = 4
    (expected,) = onnxruntime.InferenceSession(model, options).run(None, inputs)
    (actual,) = farrier.compile(model, threads=2).run(inputs).values()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
