"""Running graphs on random inputs, and drawing random networks."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
from hypothesis import strategies as st

from farrier.ir.dim import typical
from farrier.ir.graph import Constant, Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import lookup, run_graph, run_node
from farrier.options.precision import Precision
from farrier.partition.plan_memory import Segment
from farrier.passes import Settings
from farrier.targets import parse_target
from farrier.targets.x86 import X86Target

_AVX512 = X86Target(
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
SETTINGS = Settings(_AVX512, threads=2)
_TARGETS = {
    "channels-last": parse_target("cuda:sm_80"),
    "byte-products": parse_target("cuda:sm_80"),
    "fuse-attentions": parse_target("cuda:sm_80"),
    "match-signedness": parse_target("rpi5"),
    "patches": dataclasses.replace(parse_target("mps2-an386"), ram_bytes=1 << 10),
    "tabulate-bytes": dataclasses.replace(_AVX512, features=("avx512vbmi",)),
}


_PRECISIONS = {"lower-precision": Precision.BF16, "round-factors": Precision.F16}


def settings_of(name):
    """Settings in which the pass of that name has something to do."""
    precision = _PRECISIONS.get(name, Precision.F32)
    target = _TARGETS.get(name, SETTINGS.target)
    return dataclasses.replace(SETTINGS, precision=precision, target=target)


# How far results may move, where it is more than another order of sums does.
TOLERANCES = {"lower-precision": 2e-2, "round-factors": 2e-2, "widen-floats": 2e-2}


def random_inputs(graph, seed=0):
    """By name; open dims have their typical sizes."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for value in graph.inputs:
        shape, dtype = tuple(map(typical, value.type.shape)), value.type.dtype
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
    expected, actual = run_graph(before, inputs), run_graph(after, inputs)
    for (name, a), (_, b) in zip(expected.items(), actual.items(), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        scale = max(float(np.abs(a).max(initial=0.0)), 1.0)
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * scale, err_msg=name)


def run_in_memory(graph, plan, inputs):
    """Run kernels on bytes laid out as planned; memory starts as garbage. Return the outputs."""
    shapes = [value.type for value in graph.outputs]
    memory = {
        (Segment.INPUT, at): np.ascontiguousarray(inputs[value.name]).tobytes()
        for at, value in enumerate(graph.inputs)
    }
    memory |= {
        (Segment.PARAMS, at): _packed(constant.data, constant.value.type)
        for at, constant in enumerate(graph.constants)
    }
    memory = {key: bytearray(content) for key, content in memory.items()}
    memory |= {(Segment.OUTPUT, at): bytearray(type.nbytes) for at, type in enumerate(shapes)}
    memory[Segment.WORKSPACE, 0] = bytearray(b"\xff" * plan.workspace_bytes)

    def load(value):
        place = plan.places[value.name]
        data = memory[place.segment, place.index][place.offset : place.offset + value.type.nbytes]
        flat = np.frombuffer(bytes(data), value.type.dtype.numpy)
        shape = value.type.static_shape
        layout = value.type.layout
        return flat.reshape(shape) if layout is None else layout.unpack(flat, shape)

    for node in graph.nodes:
        if node.op == "Fused":
            results = run_node(node, [load(value) for value in node.inputs])
            for value, result in zip(node.outputs, results, strict=True):
                place = plan.places[value.name]
                content = _packed(result, value.type)
                end = place.offset + len(content)
                assert end <= len(memory[place.segment, place.index])
                memory[place.segment, place.index][place.offset : end] = content
    return {value.name: load(value) for value in graph.outputs}


def _packed(data, type):
    packed = data if type.layout is None else type.layout.pack(data)
    return np.ascontiguousarray(packed).tobytes()


def computing_nodes(graph):
    """Every node that computes, those within kernels included, as the name of its first output."""
    actual = []
    for node in graph.nodes:
        if node.op == "Fused":
            actual.extend(inner.outputs[0].name for inner in node.regions[0].nodes)
        else:
            actual.append(node.outputs[0].name)
    return sorted(actual)


class NetworkBuilder:
    """A graph that grows node by node; types come from the operators."""

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
        constants = {c.value.name: c.data for c in self.constants}
        by_position = {
            at: constants[v.name]
            for at, v in enumerate(inputs)
            if v is not None and v.name in constants
        }
        types = lookup(op).infer([v.type if v else None for v in inputs], by_position, attrs)
        values = tuple(
            Value(f"v{len(self.nodes)}_{at}" if at else f"v{len(self.nodes)}", type)
            for at, type in enumerate(types)
        )
        origin = f"{op}/{len(self.nodes)}"
        self.nodes.append(Node(op, inputs, values, attributes(**attrs), (), origin))
        return values[0] if len(values) == 1 else values

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


def image_network(seed):
    """A small network over images: convolutions of all sorts, pools, gates, transpositions."""
    pick = random.Random(seed)
    net = NetworkBuilder(seed)
    size = pick.choice([5, 7, 8])
    live = [net.input(1, pick.choice([3, 16, 20]), size, size)]
    for _ in range(pick.randint(3, 14)):
        x = pick.choice(live[-4:])
        live.append(pick.choice(_PIECES)(pick, net, x, live))
    results = [live[-1], *pick.choices(live[1:], k=pick.randint(0, 2))]
    return net.graph(*{value.name: value for value in results}.values())


# Any of these networks; a failing one is found again by its seed.
image_networks = st.integers(0, 1 << 30).map(image_network)


def _conv(pick, net, x, live):
    if x.type.rank != 4:
        return net.add("Relu", x)
    kernel = pick.choice([1, 3])
    return net.conv(x, pick.choice([1, 16, 20, 32]), kernel, pick.choice([1, 2]))


def _depthwise(pick, net, x, live):
    if x.type.rank != 4:
        return net.add("Sigmoid", x)
    return net.conv(x, x.type.shape[1], 3, group=x.type.shape[1], bias=pick.choice([True, False]))


def _norm(pick, net, x, live):
    return net.batch_norm(x) if x.type.rank == 4 else net.add("Tanh", x)


def _activation(pick, net, x, live):
    return net.add(pick.choice(["Relu", "Sigmoid", "HardSwish", "Identity", "Neg"]), x)


def _sum(pick, net, x, live):
    others = [v for v in live if v.type == x.type]
    return net.add(pick.choice(["Add", "Mul", "Max"]), x, pick.choice(others))


def _concat(pick, net, x, live):
    if x.type.rank != 4:
        return net.add("Relu", x)
    beside = (0, 2, 3)
    others = [v for v in live if v.type.rank == 4 and _at(v, beside) == _at(x, beside)]
    return net.add("Concat", x, pick.choice(others), axis=1)


def _at(value, axes):
    return [value.type.shape[axis] for axis in axes]


def _pool(pick, net, x, live):
    if x.type.rank != 4 or min(x.type.shape[2:]) < 3:
        return net.add("Abs", x)
    op = pick.choice(["MaxPool", "AveragePool"])
    pad = pick.randint(0, 1)
    return net.add(op, x, kernel_shape=(3, 3), strides=(1, 1), pads=(pad,) * 4)


def _gate(pick, net, x, live):
    """Squeeze and excitation."""
    if x.type.rank != 4:
        return net.add("Relu", x)
    pooled = net.add("GlobalAveragePool", x)
    gate = net.add("Sigmoid", net.conv(pooled, x.type.shape[1], 1))
    return net.add("Mul", x, gate)


def _transpose(pick, net, x, live):
    rank = x.type.rank
    perm = pick.sample(range(rank), rank)
    return net.add(
        "Transpose", net.add("Transpose", x, perm=(0, *range(rank - 1, 0, -1))), perm=tuple(perm)
    )


def _flatten(pick, net, x, live):
    rows = net.add("Flatten", x, axis=1)
    return net.add("MatMul", rows, net.weight(rows.type.shape[1], 10))


def _softmax(pick, net, x, live):
    return net.add("Softmax", net.add("Mul", x, net.array(np.array(0.25, np.float32))), axis=-1)


def _slice(pick, net, x, live):
    if x.type.rank != 4 or x.type.shape[1] < 2:
        return net.add("Relu", x)
    start = pick.choice([0, 1, 16])
    start = start if start < x.type.shape[1] else 0
    ints = (np.array([v], np.int64) for v in (start, x.type.shape[1], 1))
    return net.add("Slice", x, *map(net.array, ints))


_PIECES = [
    _conv, _conv, _conv, _depthwise, _norm, _activation, _activation, _sum, _sum, _concat, _pool,
    _gate, _transpose, _flatten, _softmax, _slice,
]  # fmt: skip
