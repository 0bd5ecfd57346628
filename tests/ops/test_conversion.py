"""Cast and CastLike between all element types, against ONNX's reference."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from farrier.frontends.onnx.importer import import_model
from farrier.ir.types import DType
from farrier.ops import run_graph
from tests.ops.conftest import run_kernel

CODES = {
    DType.from_numpy(helper.tensor_dtype_to_np_dtype(code)): code
    for name, code in TensorProto.DataType.items()
    if name not in ("UNDEFINED", "STRING", "COMPLEX64", "COMPLEX128")
}
FLOATS8 = [d for d in DType if d.is_narrow_float and d.bits == 8]


def cast_model(source: DType, to: DType, count: int, like: bool = False, **attrs) -> bytes:
    """One Cast, or one CastLike."""
    infos = [helper.make_tensor_value_info("x", CODES[source], [count])]
    if like:
        infos.append(helper.make_tensor_value_info("like", CODES[to], [1]))
        node = helper.make_node("CastLike", ["x", "like"], ["y"], **attrs)
    else:
        node = helper.make_node("Cast", ["x"], ["y"], to=CODES[to], **attrs)
    outputs = [helper.make_tensor_value_info("y", CODES[to], [count])]
    model = helper.make_model(helper.make_graph([node], "cast", infos, outputs))
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def cast(source: DType, to: DType, x: np.ndarray, **attrs) -> np.ndarray:
    """The result of the operator's two rules, which must agree."""
    graph = import_model(cast_model(source, to, len(x), **attrs)).graph
    feeds = {graph.inputs[0].name: x}
    feeds |= {value.name: np.ones(1, to.numpy) for value in graph.inputs[1:]}
    (reference,) = run_graph(graph, feeds).values()
    (computed,) = run_kernel(graph, feeds)
    assert reference.dtype == computed.dtype == to.numpy
    assert same(reference, computed), (source, to, reference, computed)
    return reference


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, NaN to NaN."""
    wide = np.float64 if DType.from_numpy(a.dtype).is_float else object
    x, y = a.astype(wide), b.astype(wide)
    return bool(((x == y) | ((x != x) & (y != y))).all())


@pytest.mark.parametrize("source", CODES)
def test_every_pair_keeps_what_both_have(source):
    """One, and minus one where both are signed, is in every type."""
    for to in CODES:
        signed = source.is_signed and to.is_signed and DType.F8E8M0 not in (source, to)
        x = np.array([1, -1 if signed else 1]).astype(source.numpy)
        six = {DType.F6E2M3, DType.F6E3M2} & {source, to}  # ONNX's CastLike does not take them
        for like in ((False,) if six else (False, True)) if to is not source else ():
            actual = cast(source, to, x, like=like).astype(np.float32)
            np.testing.assert_array_equal(actual, [1, -1 if signed else 1], f"{source} {to}")


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("to", FLOATS8)
@pytest.mark.parametrize("source", [DType.F16, DType.F32, DType.F64])
def test_what_is_too_large_saturates_or_not(source, to, saturate):
    if to is DType.F8E8M0:
        return
    edges = [1e3, -1e3, 447, 449, 464, 466, 239, 241, 247, 249, 57344, 61439, 6e4, 6.5e4]
    with np.errstate(over="ignore"):
        x = np.array([*edges, np.inf, -np.inf, np.nan, -0.0, 0.3, -1e-9]).astype(source.numpy)
    model = onnx.load_from_string(cast_model(source, to, len(x), saturate=saturate))
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    actual = cast(source, to, x, saturate=saturate)
    assert same(actual, expected)
    assert same(np.signbit(actual.astype(np.float32)), np.signbit(expected.astype(np.float32)))


@pytest.mark.parametrize("rounding", ["up", "down", "nearest"])
def test_powers_of_two_are_rounded_as_asked(rounding):
    x = np.array([1, 1.1, 1.5, 1.9, 2, 3, 5, 6, 7, 1e-30, 2.0**-127, 2e38], np.float32)
    actual = cast(DType.F32, DType.F8E8M0, x, round_mode=rounding).astype(np.float64)
    exponent = np.log2(x.astype(np.float64))
    low, high = np.exp2(np.floor(exponent)), np.exp2(np.ceil(exponent))
    high = np.minimum(high, 2.0**127)
    nearer = np.where(x - low < high - x, low, high)
    wanted = {"up": high, "down": low, "nearest": nearer}[rounding]
    np.testing.assert_array_equal(actual, wanted)


def test_powers_of_two_saturate_or_are_nan():
    x = np.array([0, 1e-40, 3.2e38, np.inf, np.nan], np.float32)
    actual = cast(DType.F32, DType.F8E8M0, x, saturate=1, round_mode="up").astype(np.float64)
    np.testing.assert_array_equal(actual, [2.0**-127] * 2 + [2.0**127] * 2 + [np.nan])
    actual = cast(DType.F32, DType.F8E8M0, x, saturate=0, round_mode="nearest").astype(np.float64)
    np.testing.assert_array_equal(np.isnan(actual), True)


def test_integers_of_less_than_a_byte_take_low_bits():
    x = np.array([-9, -8, 7, 8, 15, 16, 300, -300, 2.9, -2.9])
    for to in (DType.I4, DType.U4, DType.I2, DType.U2):
        whole = np.trunc(x).astype(np.int64) & (1 << to.bits) - 1
        for source in (DType.F32, DType.F64, DType.I32):
            actual = cast(source, to, x.astype(source.numpy)).view(np.uint8)
            np.testing.assert_array_equal(actual, whole)
