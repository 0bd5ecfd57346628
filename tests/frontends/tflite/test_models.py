"""Small models of TFLite, compiled and run, against numpy and the published integer formulas."""

import importlib.util
import itertools
import math

import numpy as np
import pytest

import farrier
from farrier.errors import InvalidModelError, UnsupportedOperatorError, UsageError
from farrier.frontends.formats import Format
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.tflite import import_model, inspection
from tests.frontends.tflite.writer import Writer

SAME, VALID = 0, 1
RELU, RELU6 = 1, 3


def factor(real):
    """Return the multiplier of 31 bits and the shift of the quantization specification."""
    fraction, shift = math.frexp(real)
    return math.floor(fraction * (1 << 31) + 0.5), shift


def requantized(total, real):
    """Return one sum times a factor, rounded twice, by Python's integers."""
    multiplier, shift = factor(real)
    high = ((total << max(shift, 0)) * multiplier + (1 << 30)) >> 31
    places = max(-shift, 0)
    half = (1 << places) >> 1
    return (abs(high) + half >> places) * (1 if high >= 0 else -1)


def windows(image, height, width, stride):
    """Yield the top left corners and the windows of an image [height, width, channels]."""
    for y in range(0, image.shape[0] - height + 1, stride):
        for x in range(0, image.shape[1] - width + 1, stride):
            yield y // stride, x // stride, image[y : y + height, x : x + width]


def convolved(image, weights, stride):
    """Return the sums of a convolution, [height, width, outputs], in the image's type."""
    outputs, height, width, _ = weights.shape
    rows = (image.shape[0] - height) // stride + 1
    columns = (image.shape[1] - width) // stride + 1
    sums = np.zeros((rows, columns, outputs), image.dtype)
    for y, x, window in windows(image, height, width, stride):
        sums[y, x] = (weights * window).reshape(outputs, -1).sum(axis=1)
    return sums


def run(data, *inputs, **options):
    """Compile a model and return the outputs of one call."""
    artifact = farrier.compile(data, verify=False, **options)
    names = [spec.name for spec in artifact.manifest.inputs]
    return list(artifact.session().run(dict(zip(names, inputs, strict=False))).values())


def cnn(rng):
    """Return a float model of the common operators, its weights, and its signature's names."""
    w = Writer()
    weights = rng.standard_normal((8, 3, 3, 3), np.float32)
    bias = rng.standard_normal(8, np.float32)
    deep = rng.standard_normal((1, 3, 3, 8)).astype(np.float16)
    dense = rng.standard_normal((5, 8), np.float32)
    x = w.tensor("x", (1, 9, 9, 3), signature=(-1, 9, 9, 3))
    conv, half, single = (
        w.tensor("conv", (1, 4, 4, 8)), w.constant(deep), w.tensor("deep", (1, 3, 3, 8)),
    )  # fmt: skip
    after, pooled, flat = (
        w.tensor("depthwise", (1, 4, 4, 8)),
        w.tensor("pooled", (1, 1, 1, 8)),
        w.tensor("flat", (1, 8)),
    )
    scores, y = w.tensor("scores", (1, 5)), w.tensor("y", (1, 5))
    w.op("CONV_2D", [x, w.constant(weights), w.constant(bias)], [conv], padding=VALID,
         stride_w=2, stride_h=2, activation=RELU6)  # fmt: skip
    w.op("DEQUANTIZE", [half], [single])
    w.op("DEPTHWISE_CONV_2D", [conv, single, w.constant(np.zeros(8, np.float32))], [after],
         padding=SAME, stride_w=1, stride_h=1, multiplier=1)  # fmt: skip
    w.op(
        "AVERAGE_POOL_2D",
        [after],
        [pooled],
        padding=VALID,
        stride_w=4,
        stride_h=4,
        width=4,
        height=4,
    )
    w.op("RESHAPE", [pooled, w.constant(np.array([-1, 8], np.int32))], [flat])
    w.op("FULLY_CONNECTED", [flat, w.constant(dense), -1], [scores])
    w.op("SOFTMAX", [scores], [y], beta=1.0)
    w.signature({"image": x}, {"scores": y})
    return w.model([x], [y]), (weights, bias, deep, dense)


def cnn_expected(image, weights, bias, deep, dense):
    conv = np.clip(convolved(image, weights, 2) + bias, 0, 6)
    padded = np.pad(conv, ((1, 1), (1, 1), (0, 0)))
    after = np.zeros_like(conv)
    for y, x, window in windows(padded, 3, 3, 1):
        after[y, x] = (window * deep[0].astype(np.float32)).sum(axis=(0, 1))
    scores = after.mean(axis=(0, 1)) @ dense.T
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def test_a_float_network_with_an_open_batch():
    rng = np.random.default_rng(1)
    data, weights = cnn(rng)
    x = rng.standard_normal((3, 9, 9, 3), np.float32)
    (y,) = run(data, x)
    assert y.shape == (3, 5)
    np.testing.assert_allclose(y, [cnn_expected(image, *weights) for image in x], atol=1e-5)


def test_the_format_shows_in_the_content_and_names_come_from_the_signature():
    data, _ = cnn(np.random.default_rng(1))
    model = Model.of_bytes(data, "net")
    assert model.format is Format.TFLITE
    assert model.locations == ()
    document = inspection(model)
    assert document.compiles
    assert document.format == "TFLite"
    assert [(each.name, each.dims) for each in document.inputs] == [("image", ("batch", 9, 9, 3))]
    assert [(each.name, each.dims) for each in document.outputs] == [("scores", ("batch", 5))]
    assert {use.op: use.count for use in document.operators}["CONV_2D"] == 1
    assert document.to_json()


def integer_network(rng, scale):
    """Return a model of integers, and what its operators hold."""
    w = Writer()
    weights = rng.integers(-127, 128, (4, 3, 3, 2), np.int8)
    bias = rng.integers(-2000, 2000, 4, np.int32)
    scales = np.array([0.002, 0.011, 0.0007, 0.03], np.float32)
    x = w.tensor("x", (1, 6, 6, 2), np.int8, scale=0.5, zero=-11)
    y = w.tensor("y", (1, 6, 6, 4), np.int8, scale=scale, zero=7)
    constants = [w.constant(weights, scale=scales, axis=0), w.constant(bias, scale=scales)]
    w.op("CONV_2D", [x, *constants], [y], padding=SAME, stride_w=1, stride_h=1, activation=RELU)
    return w.model([x], [y]), weights, bias, scales


@pytest.mark.parametrize("scale", [0.31, 0.0004], ids=["smaller", "greater"])
def test_a_convolution_of_integers_is_exact(scale):
    rng = np.random.default_rng(2)
    data, weights, bias, scales = integer_network(rng, scale)
    x = rng.integers(-128, 128, (1, 6, 6, 2), np.int8)
    (y,) = run(data, x)
    padded = np.pad(x[0].astype(np.int64) + 11, ((1, 1), (1, 1), (0, 0)))
    sums = convolved(padded, weights.astype(np.int64), 1) + bias
    reals = np.float64(np.float32(0.5)) * scales.astype(np.float64) / np.float64(np.float32(scale))
    expected = np.zeros_like(y[0])
    for place in itertools.product(*map(range, sums.shape)):
        total = requantized(int(sums[place]), float(reals[place[-1]])) + 7
        expected[place] = min(max(total, 7), 127)
    assert len(np.unique(expected)) > 20 or scale < 0.01
    np.testing.assert_array_equal(y[0], expected)


def streaming(first):
    """Return a model that keeps the last three of what it was given, from `first` on."""
    w = Writer()
    x, handle = w.tensor("x", (1, 1), np.int8), w.tensor("handle", (), type="RESOURCE")
    past, joined = w.tensor("past", (1, 3), np.int8), w.tensor("joined", (1, 4), np.int8)
    kept, total = w.tensor("kept", (1, 3), np.int8), w.tensor("total", (1,), np.int8)
    w.op("CALL_ONCE", [], [], subgraph=1)
    w.op("VAR_HANDLE", [], [handle], shared_name="ring", container="")
    w.op("READ_VARIABLE", [handle], [past])
    w.op("CONCATENATION", [past, x], [joined], axis=1)
    bounds = [w.constant(np.array(bound, np.int32)) for bound in ([0, 1], [0, 0], [1, 1])]
    w.op("STRIDED_SLICE", [joined, *bounds], [kept], begin_mask=1, end_mask=3)
    w.op("ASSIGN_VARIABLE", [handle, kept], [])
    w.op("REDUCE_MAX", [joined, w.constant(np.array([1], np.int32))], [total])
    w.graph([x], [total])
    handle = w.tensor("handle", (), type="RESOURCE")
    w.op("VAR_HANDLE", [], [handle], shared_name="ring", container="")
    w.op("ASSIGN_VARIABLE", [handle, w.constant(np.array([first], np.int8))], [])
    w.graph([], [], "start")
    return w.model()


@pytest.mark.parametrize("first", [[-100, -100, -100], [5, -4, 90]], ids=["uniform", "computed"])
def test_variables_are_states_of_the_session(first):
    artifact = farrier.compile(streaming(first))
    session, ring = artifact.session(), list(first)
    for call, value in enumerate(np.random.default_rng(3).integers(-128, 128, 20)):
        (total,) = session.run({"x": np.array([[value]], np.int8)}).values()
        assert total.tolist() == [max(*ring, value)], call
        ring = [*ring[1:], int(value)]
    assert session.state()["ring"].tolist() == [ring]
    session.reset()
    (total,) = session.run({"x": np.array([[-128]], np.int8)}).values()
    assert total.tolist() == [max(first)]
    with pytest.raises(UsageError, match="itself declares"):
        farrier.compile(streaming(first), states={"ring": "ring:next"})


def control():
    """Return a model that doubles x while its sum is less than 100, or negates a negative one."""
    w = Writer()
    x, y, test = w.tensor("x", (2,)), w.tensor("y", (2,)), w.tensor("test", (), np.bool_)
    w.op("LESS", [x_sum(w, x), w.constant(np.array(0, np.float32))], [test])
    w.op("IF", [test, x], [y], **{"then": 1, "else": 2})
    w.graph([x], [y])
    x, y = w.tensor("x", (2,)), w.tensor("y", (2,))
    w.op("NEG", [x], [y])
    w.graph([x], [y], "negated")
    x, y = w.tensor("x", (2,)), w.tensor("y", (2,))
    w.op("WHILE", [x], [y], condition=3, body=4)
    w.graph([x], [y], "doubled")
    x, test = w.tensor("x", (2,)), w.tensor("test", (), np.bool_)
    w.op("LESS", [x_sum(w, x), w.constant(np.array(100, np.float32))], [test])
    w.graph([x], [test], "condition")
    x, y = w.tensor("x", (2,)), w.tensor("y", (2,))
    w.op("ADD", [x, x], [y])
    w.graph([x], [y], "body")
    return w.model()


def x_sum(w, x):
    total = w.tensor("sum", ())
    w.op("SUM", [x, w.constant(np.array([0], np.int32))], [total])
    return total


def test_branches_and_loops():
    session = farrier.compile(control(), verify=False).session()
    for x in ([-3, 1], [2, 5], [60, 60]):
        expected = np.array(x, np.float32)
        if expected.sum() < 0:
            expected = -expected
        else:
            while expected.sum() < 100:
                expected = expected * 2
        (y,) = session.run({"x": np.array(x, np.float32)}).values()
        assert y.tolist() == expected.tolist()


def test_all_unknown_operators_are_named_at_once():
    w = Writer()
    x, y = w.tensor("x", (4,)), w.tensor("y", (4,))
    q = w.tensor("q", (4,), np.int8, scale=0.1)
    w.op("TFLite_Detection", [x], [y])
    w.op("LSH_PROJECTION", [x], [y])
    w.op("LSH_PROJECTION", [x], [y])
    w.op("POW", [q, q], [q])
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(Model.of_bytes(w.model([x], [y])))
    assert "LSH_PROJECTION (2×)" in caught.value.message
    assert "POW of quantized tensors (1×)" in caught.value.message
    assert "the custom 'TFLite_Detection' (1×)" in caught.value.message
    unsupported = [u.op for u in inspection(Model.of_bytes(w.model())).operators if not u.supported]
    assert sorted(unsupported) == ["LSH_PROJECTION", "POW", "TFLite_Detection"]


def relu(**fields):
    w = Writer()
    x, y = w.tensor("x", (4,)), w.tensor("y", (4,))
    w.op("RELU", [x], [y])
    return w.model([x], [y], **fields)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (relu(version=2), "schema version 2"),
        (relu()[:200], "malformed: an offset leads to byte"),
        (b"\xff\xff\xff\x7fTFL3" + bytes(100), "an offset leads to byte"),
        (b"\x08\0\0\0TFL3", "an offset leads to byte"),
    ],
    ids=["version", "truncated", "far", "short"],
)
def test_damaged_files_are_refused(data, words):
    with pytest.raises(InvalidModelError, match=words):
        import_model(Model.of_bytes(data))
    assert inspection(Model.of_bytes(data)).problems


def test_a_tensor_that_nobody_computes_is_named():
    w = Writer()
    x, y, z = (w.tensor(name, (4,)) for name in "xyz")
    w.op("ADD", [x, z], [y])
    with pytest.raises(InvalidModelError, match="'z' is read before"):
        import_model(Model.of_bytes(w.model([x], [y])))


@pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed"
)
@pytest.mark.parametrize(
    "write", [lambda rng: cnn(rng)[0], lambda rng: integer_network(rng, 0.3)[0]]
)
def test_litert_verifies_where_it_is_installed(write):
    artifact = farrier.compile(write(np.random.default_rng(6)))
    assert artifact.report["verification"]["reference"].startswith("LiteRT 2")
