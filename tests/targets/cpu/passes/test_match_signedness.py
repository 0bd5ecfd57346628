"""Products of bytes get the signedness that a target multiplies, and every integer stays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from graph_tools import NetworkBuilder
from hypothesis import given
from hypothesis import strategies as st

from farrier.ir.graph import Value
from farrier.ir.types import DType, TensorType
from farrier.ops import run_graph
from farrier.ops.verify import verify
from farrier.passes.settings import Settings
from farrier.targets import parse_target
from farrier.targets.cpu.passes.match_signedness import match_signedness

_VNNI = dataclasses.replace(parse_target("x86-64-v4"), features=("avx512_vnni",))
_TAKES_I8, _TAKES_U8 = (Settings(target, threads=1) for target in (parse_target("rpi5"), _VNNI))
# The signedness of a model's tensors, and a target that multiplies the other one alone.
DIRECTIONS = pytest.mark.parametrize(
    ("dtype", "settings"), [(DType.U8, _TAKES_I8), (DType.I8, _TAKES_U8)], ids=["u8", "i8"]
)
_SHAPE = (2, 8, 7, 8)


@dataclasses.dataclass(frozen=True)
class Case:
    """The random choices of a network: the source of its bytes, their movers, their readers."""

    seed: int
    source: str
    zero: int | None  # A zero point, above the least value of the dtype; None for none.
    movers: tuple[str, ...]
    pads: tuple[int, int, int, int]
    bias: str
    readers: frozenset[str]


CASES = st.builds(
    Case,
    seed=st.integers(0, 1 << 16),
    source=st.sampled_from(["input", "quantized", "quantized at run time", "sum"]),
    zero=st.none() | st.integers(0, 255),
    movers=st.lists(
        st.sampled_from(["MaxPool", "Transpose", "Pad", "Concat", "Slice"]), max_size=3
    ).map(tuple),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    bias=st.sampled_from(["none", "constant", "input"]),
    readers=st.frozensets(
        st.sampled_from(
            ["returned", "Cast", "DequantizeLinear", "depthwise", "rows", "rows less bias"]
        )
    ),
)


class Network(NetworkBuilder):
    def __init__(self, case, dtype):
        super().__init__(case.seed)
        self.case, self.dtype = case, dtype

    def bytes(self, *shape, dtype=DType.I8):
        low, high = dtype.limits
        return self.array(self.rng.integers(low, high + 1, shape).astype(dtype.numpy))

    def given(self, dtype, *shape):
        value = Value(f"in{len(self.inputs)}", TensorType(dtype, shape))
        self.inputs.append(value)
        return value

    def zero(self):
        """The zero point, as inputs of a node."""
        if self.case.zero is None:
            return []
        return [self.array(np.array(self.case.zero + self.dtype.limits[0], self.dtype.numpy))]

    def source(self):
        case, kind = self.case, {"to": self.dtype.value, "precision": "f32", "saturate": 1}
        if case.source == "input":
            return self.given(self.dtype, *_SHAPE)
        if case.source == "sum":
            return self.add("Add", self.given(self.dtype, *_SHAPE), self.given(self.dtype, *_SHAPE))
        scale = self.array(np.array(0.02, np.float32))
        zero = self.zero()
        if case.source == "quantized at run time":
            zero = [self.add("QuantizeLinear", self.given(DType.F32), scale, *zero, **kind)]
        return self.add("QuantizeLinear", self.given(DType.F32, *_SHAPE), scale, *zero, **kind)

    def moved(self, x, op):
        match op:
            case "MaxPool":
                window = {"kernel_shape": (2, 2), "pads": (1, 0, 0, 1), "strides": (1, 1)}
                return self.add(op, x, **window, dilations=(1, 1), ceil_mode=0)
            case "Transpose":
                return self.add(op, x, perm=(0, 1, 3, 2))
            case "Pad":
                pads = self.array(np.array((0, 0, 1, 0, 0, 0, 0, 2), np.int64))
                value = [self.bytes(dtype=self.dtype)] if self.case.zero else []
                return self.add(op, x, pads, *value)
            case "Concat":
                return self.add(op, x, self.moved(x, "Slice"), axis=3)
        starts, ends, axes = (self.array(np.array([n], np.int64)) for n in (1, 1 << 30, 3))
        return self.add(op, x, starts, ends, axes)

    def convolution(self, x, group=1):
        channels = x.type.shape[1]
        weights = self.bytes(16 if group == 1 else channels, channels // group, 3, 3)
        outputs = weights.type.shape[0]
        bias = {
            "none": list,
            "constant": lambda: [
                self.array(self.rng.integers(-999, 999, outputs).astype(np.int32))
            ],
            "input": lambda: [self.given(DType.I32, outputs)],
        }[self.case.bias]()
        attrs = {"pads": self.case.pads, "group": group, "accumulator": "i32"}
        return self.add("Conv", x, weights, *bias, **attrs)

    def read(self, x, how):
        match how:
            case "returned":
                return x
            case "Cast":
                return self.add("Cast", x, to="i32")
            case "DequantizeLinear":
                scale = self.array(np.array(0.5, np.float32))
                return self.add("DequantizeLinear", x, scale, *self.zero(), to="f32")
            case "depthwise":
                return self.convolution(x, x.type.shape[1])
        product = self.add("MatMul", x, self.bytes(x.type.shape[-1], 12), accumulator="i32")
        if how == "rows":
            return product
        return self.add("Sub", product, self.array(np.arange(12, dtype=np.int32)))


def network(case, dtype):
    net = Network(case, dtype)
    x = net.source()
    for mover in case.movers:
        x = net.moved(x, mover)
    read = [net.read(x, how) for how in sorted(case.readers)]
    return net.graph(net.convolution(x), *read)


def inputs_of(graph, seed):
    rng = np.random.default_rng(seed)
    arrays = {}
    for value in graph.inputs:
        dtype, shape = value.type.dtype, value.type.shape
        if dtype is DType.F32:
            arrays[value.name] = (rng.standard_normal(shape) * 2).astype(np.float32)
        else:
            low, high = max(dtype.limits[0], -1000), min(dtype.limits[1], 1000)
            arrays[value.name] = rng.integers(low, high + 1, shape).astype(dtype.numpy)
    return arrays


@DIRECTIONS
@given(case=CASES)
def test_integers_stay(dtype, settings, case):
    graph = network(case, dtype)
    verify(graph)
    result = match_signedness(graph, settings)
    verify(result)
    inputs = inputs_of(graph, case.seed)
    expected, actual = run_graph(graph, inputs), run_graph(result, inputs)
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        np.testing.assert_array_equal(actual[name], array, err_msg=name)


@DIRECTIONS
@given(case=CASES)
def test_products_get_a_dot_product(dtype, settings, case):
    for node in match_signedness(network(case, dtype), settings).nodes:
        if node.op in ("Conv", "MatMul") and node.attr("group", 1) == 1:
            kinds = (node.inputs[0].type.dtype, node.inputs[1].type.dtype, DType.I32)
            assert settings.target.dot_of(*kinds) is not None


@DIRECTIONS
def test_quantized_tensors_need_no_conversion(dtype, settings):
    case = Case(0, "quantized", 7, ("MaxPool", "Pad"), (1, 1, 1, 1), "constant", frozenset())
    result = match_signedness(network(case, dtype), settings)
    assert {"BitwiseXor", "Cast"}.isdisjoint(node.op for node in result.nodes)


@DIRECTIONS
def test_what_the_target_multiplies_stays(dtype, settings):
    other = _TAKES_U8 if settings is _TAKES_I8 else _TAKES_I8
    case = Case(0, "quantized", 7, (), (1, 1, 1, 1), "none", frozenset())
    graph = network(case, dtype)
    assert match_signedness(graph, other) is graph
    assert match_signedness(graph, Settings(parse_target("rpi4"), threads=1)) is graph


def test_what_sums_lack_joins_the_constant_added_next():
    case = Case(0, "input", None, (), (0, 0, 0, 0), "none", frozenset({"rows less bias"}))
    result = match_signedness(network(case, DType.U8), _TAKES_I8)
    assert [node.op for node in result.nodes if node.op in ("Add", "Sub")] == ["Add"]


def test_a_requantize_moves_its_zero_point_and_bounds():
    net = NetworkBuilder(7)
    x = net.add("Cast", net.input(2, 8), to="i32")
    weights = net.array(np.random.default_rng(7).integers(-128, 128, (8, 2), np.int8))
    factor = [net.array(np.array(number, np.int32)) for number in (1_234_567_890, 8)]
    attrs = {"zero": -7, "low": -90, "high": 100, "to": "i8", "rounding": "twice"}
    quantized = net.add("Requantize", x, *factor, **attrs)
    graph = net.graph(net.add("MatMul", quantized, weights, accumulator="i32"))
    result = match_signedness(graph, _TAKES_U8)
    verify(result)
    (node,) = (node for node in result.nodes if node.op == "Requantize")
    assert [node.attr(name) for name in ("zero", "low", "high", "to")] == [121, 38, 228, "u8"]
    assert "BitwiseXor" not in [node.op for node in result.nodes]
    array = np.random.default_rng(8).uniform(-40_000, 40_000, (2, 8)).astype(np.float32)
    expected, moved = (run_graph(each, {"in0": array}) for each in (graph, result))
    for name, sums in expected.items():
        np.testing.assert_array_equal(moved[name], sums)
