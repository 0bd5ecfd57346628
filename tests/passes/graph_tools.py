"""Running graphs on random inputs, and drawing random networks."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from farrier.ir.graph import Constant, Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import lookup, run_graph
from farrier.target import Target

AVX512 = Target(
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64-v4",
    features=(),
    vector_bits=512,
    registers=32,
    cores=2,
    l1_bytes=32 << 10,
    l2_bytes=1 << 20,
    l3_bytes=8 << 20,
)


def random_inputs(graph, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {}
    for value in graph.inputs:
        shape, dtype = value.type.static_shape, value.type.dtype
        if dtype.is_float:
            arrays[value.name] = rng.standard_normal(shape).astype(dtype.numpy)
        elif dtype is DType.BOOL:
            arrays[value.name] = rng.integers(0, 2, shape).astype(bool)
        else:
            arrays[value.name] = rng.integers(0, 5, shape).astype(dtype.numpy)
    return arrays


def assert_same_results(before, after, seed=0, tolerance=2e-5):
    """Both graphs have one signature and compute the same, up to rounding."""
    assert [value.name for value in after.inputs] == [value.name for value in before.inputs]
    inputs = random_inputs(before, seed)
    expected, found = run_graph(before, inputs), run_graph(after, inputs)
    for (name, a), (_, b) in zip(expected.items(), found.items(), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        scale = max(float(np.abs(a).max(initial=0.0)), 1.0)
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * scale, err_msg=name)


def computing_nodes(graph):
    """Every node that computes, those within kernels included, as the name of its first output."""
    found = []
    for node in graph.nodes:
        if node.op == "Fused":
            found.extend(inner.outputs[0].name for inner in node.regions[0].nodes)
        else:
            found.append(node.outputs[0].name)
    return sorted(found)


class NetworkBuilder:
    """Grows a graph node by node; types come from the operators."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.inputs, self.constants, self.nodes = [], [], []

    def input(self, *shape):
        value = Value(f"in{len(self.inputs)}", TensorType(DType.F32, shape))
        self.inputs.append(value)
        return value

    def weight(self, *shape, low=-0.5, high=0.5):
        return self.array(self.rng.uniform(low, high, shape).astype(np.float32))

    def array(self, data):
        name = f"w{len(self.constants)}"
        value = Value(name, TensorType(DType.from_numpy(data.dtype), data.shape))
        self.constants.append(Constant(value, data))
        return value

    def add(self, op, *inputs, outputs=1, **attrs):
        known = {c.value.name: c.data for c in self.constants}
        by_position = {
            at: known[v.name] for at, v in enumerate(inputs) if v is not None and v.name in known
        }
        types = lookup(op).infer([v.type if v else None for v in inputs], by_position, attrs)
        made = tuple(
            Value(f"v{len(self.nodes)}_{at}" if at else f"v{len(self.nodes)}", type)
            for at, type in enumerate(types)
        )
        origin = f"{op}/{len(self.nodes)}"
        self.nodes.append(Node(op, inputs, made, attributes(**attrs), (), origin))
        return made[0] if len(made) == 1 else made

    def graph(self, *outputs):
        return Graph(
            "net", tuple(self.inputs), tuple(self.constants), tuple(self.nodes), tuple(outputs)
        )

    # Pieces of networks

    def conv(self, x, channels, kernel=3, stride=1, group=1, bias=True):
        pad = kernel // 2
        w = self.weight(channels, x.type.shape[1] // group, kernel, kernel)
        b = [self.weight(channels)] if bias else []
        pads, strides = (pad,) * 4, (stride, stride)
        return self.add("Conv", x, w, *b, pads=pads, strides=strides, group=group)

    def batch_norm(self, x):
        channels = x.type.shape[1]
        gamma, beta, mean = (self.weight(channels) for _ in range(3))
        variance = self.weight(channels, low=0.5, high=2.0)
        return self.add("BatchNormalization", x, gamma, beta, mean, variance, epsilon=1e-5)


@st.composite
def image_networks(draw):
    """Small networks over images: convolutions of all sorts, pools, sums, concatenations, gates."""
    net = NetworkBuilder(draw(st.integers(0, 1000)))
    size = draw(st.sampled_from([5, 7, 8]))
    live = [net.input(1, draw(st.sampled_from([3, 16, 20])), size, size)]
    for _ in range(draw(st.integers(2, 9))):
        x = draw(st.sampled_from(live))
        live.append(draw(st.sampled_from(_PIECES))(draw, net, x, live))
    count = draw(st.integers(1, 2))
    results = [live[-1], *draw(st.lists(st.sampled_from(live), min_size=0, max_size=count))]
    unique = list({value.name: value for value in results if value not in net.inputs}.values())
    return net.graph(*unique)


def _conv(draw, net, x, live):
    if x.type.rank != 4:
        return net.add("Relu", x)
    kernel = draw(st.sampled_from([1, 3]))
    return net.conv(
        x, draw(st.sampled_from([1, 16, 20, 32])), kernel, draw(st.sampled_from([1, 2]))
    )


def _depthwise(draw, net, x, live):
    if x.type.rank != 4:
        return net.add("Sigmoid", x)
    return net.conv(x, x.type.shape[1], 3, group=x.type.shape[1], bias=draw(st.booleans()))


def _norm(draw, net, x, live):
    return net.batch_norm(x) if x.type.rank == 4 else net.add("Tanh", x)


def _activation(draw, net, x, live):
    return net.add(draw(st.sampled_from(["Relu", "Sigmoid", "HardSwish", "Identity", "Neg"])), x)


def _sum(draw, net, x, live):
    others = [v for v in live if v.type == x.type]
    return net.add(draw(st.sampled_from(["Add", "Mul", "Max"])), x, draw(st.sampled_from(others)))


def _concat(draw, net, x, live):
    if x.type.rank != 4:
        return net.add("Relu", x)
    others = [v for v in live if v.type.rank == 4 and v.type.shape[2:] == x.type.shape[2:]]
    return net.add("Concat", x, draw(st.sampled_from(others)), axis=1)


def _pool(draw, net, x, live):
    if x.type.rank != 4 or x.type.shape[2] < 3:
        return net.add("Abs", x)
    op = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    pad = draw(st.integers(0, 1))
    return net.add(op, x, kernel_shape=(3, 3), strides=(1, 1), pads=(pad,) * 4)


def _gate(draw, net, x, live):
    """Squeeze and excitation."""
    if x.type.rank != 4:
        return net.add("Relu", x)
    pooled = net.add("GlobalAveragePool", x)
    gate = net.add("Sigmoid", net.conv(pooled, x.type.shape[1], 1))
    return net.add("Mul", x, gate)


def _transpose(draw, net, x, live):
    rank = x.type.rank
    perm = draw(st.permutations(range(rank)))
    return net.add(
        "Transpose", net.add("Transpose", x, perm=(0, *range(rank - 1, 0, -1))), perm=tuple(perm)
    )


def _flatten(draw, net, x, live):
    rows = net.add("Flatten", x, axis=1)
    return net.add("MatMul", rows, net.weight(rows.type.shape[1], 10))


def _softmax(draw, net, x, live):
    return net.add("Softmax", net.add("Mul", x, net.array(np.array(0.25, np.float32))), axis=-1)


def _slice(draw, net, x, live):
    if x.type.rank != 4 or x.type.shape[1] < 2:
        return net.add("Relu", x)
    start = draw(st.sampled_from([0, 1, 16]))
    start = start if start < x.type.shape[1] else 0
    ints = (np.array([v], np.int64) for v in (start, x.type.shape[1], 1))
    return net.add("Slice", x, *map(net.array, ints))


_PIECES = [
    _conv, _conv, _conv, _depthwise, _norm, _activation, _activation, _sum, _sum, _concat, _pool,
    _gate, _transpose, _flatten, _softmax, _slice,
]  # fmt: skip
