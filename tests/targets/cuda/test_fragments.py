"""Products on tensor cores: interpreter, emulator of PTX and program agree."""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import CompilerError, UsageError
from farrier.intrinsics import lookup
from farrier.ir.evaluate import evaluate
from farrier.ir.loop import Barrier
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_threads import run_threads
from farrier.ir.statements import map_children, walk_stmts
from farrier.ir.threads import launches
from farrier.lower.loops import to_loops
from farrier.lower.lower_threads import lower_threads
from farrier.options.precision import Precision
from farrier.passes import Settings
from farrier.schedule import Schedule
from farrier.targets import parse_target
from farrier.targets.cuda.expressible import LIMITS
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.cuda.tensor_cores import FEATURES, PRODUCTS, require_features
from farrier.targets.gpu import fragment_parts, fragments
from farrier.targets.gpu.device import USUAL
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.gpu.passes.round_factors import round_factors
from farrier_device.cuda_library import PTX
from tests.targets.cuda.detours import kernels
from tests.targets.cuda.products import inputs_of, lowered, product
from tests.targets.cuda.ptx import PtxError
from tests.targets.cuda.running import run_ptx
from tests.targets.cuda.test_mutants import BARRIER, FAULT, without_each
from tests.targets.cuda.traffic import Traffic

BY_NAME = {each.name: each for each in PRODUCTS}
_PRIMES = (1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 97)
_TILES = (((2, 2), (1, 2), 2), ((1, 1), (2, 1), 1), ((1, 4), (1, 1), 4), ((4, 2), (1, 1), 1))
# Rows, columns and terms: primes, 1, and sizes that tiles fill.
WIDE = [
    *((p, _PRIMES[-at - 1], _PRIMES[(at * 7) % 22]) for at, p in enumerate(_PRIMES)),
    *itertools.product((16, 64, 100), (8, 32, 72), (16, 40, 64)),
    (1, 1, 1),
    (128, 1, 33),
]


def _cpu(name):
    return "sm_75" if name.endswith("k8") else "sm_80"


def _meaning(name):
    return lookup(name).semantics


def _assert_right(shape, name, tile, is_transposed):
    declared = BY_NAME[name]
    program = product(*shape, declared, is_transposed=is_transposed)
    function, inputs = lowered(program, declared, *tile), inputs_of(program)
    expected = evaluate(program, inputs)["y"]
    near = {"rtol": 2e-3, "atol": 1e-2} if declared.total.is_float else {"rtol": 0, "atol": 0}
    interpreted = run_threads(function, inputs, meaning=_meaning)["y"]
    np.testing.assert_allclose(interpreted, expected, **near)
    result = run_ptx(ptx_of(render(function, _cpu(name)), _cpu(name)), function, inputs)["y"]
    np.testing.assert_allclose(result, expected, **near)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("name", BY_NAME)
def test_products_of_each_kind(name, is_transposed):
    _assert_right((37, 41, 70), name, _TILES[0], is_transposed)
    _assert_right((32, 48, 64), name, _TILES[1], is_transposed)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", ["mma_f16", "mma_i8_i8", "mma_tf32"])
def test_copies_that_go_on_meanwhile(name, stages):
    for shape, is_transposed in (
        ((40, 64, 200), True),
        ((64, 40, 144), False),
        ((9, 16, 16), True),
    ):
        _assert_right(shape, name, (*_TILES[0], stages), is_transposed)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("name", ["mma_f16", "mma_f16_k8", "mma_i8_i8", "mma_tf32"])
def test_products_of_many_shapes(name, stages):
    if stages > 1 and name.endswith("k8"):
        pytest.skip("sm_75 has no cp.async")
    for number, shape in enumerate(WIDE):
        tile = (*_TILES[number % len(_TILES)], stages)
        _assert_right(shape, name, tile, number % 3 == 0)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_factors_are_rounded_to_tf32_to_the_bit(is_transposed):
    declared = BY_NAME["mma_tf32"]
    program = product(24, 40, 72, declared, is_transposed=is_transposed)
    function, rng = lowered(program, declared, stages=2), np.random.default_rng(1)
    inputs, rounded = {}, {}
    # The sums are exact, in whatever order. A half of the last place rounds away from 0.
    rests = ([0, 2**-12, 2**-11, 2**-10 - 2**-13], [0, 2**-12, -(2**-13)])
    for buffer, some in zip(program.inputs, rests, strict=True):
        whole = rng.choice([1, 2, 4], buffer.shape) * rng.choice([-1, 1], buffer.shape)
        rest = rng.choice(some, buffer.shape)
        inputs[buffer.name] = (whole * (1 + rest)).astype(np.float32)
        rounded[buffer.name] = whole * (1 + np.where(rest >= 2**-11, 2**-10, 0))
    w = rounded["w"].T if is_transposed else rounded["w"]
    expected = np.maximum(rounded["x"] @ w, 0).astype(np.float32)
    text = ptx_of(render(function, "sm_80"), "sm_80")
    assert "cvt.rna.tf32.f32" in text
    for result in (
        evaluate(program, inputs),
        run_threads(function, inputs, meaning=_meaning),
        run_ptx(text, function, inputs),
    ):
        np.testing.assert_array_equal(result["y"], expected)


def test_what_tensor_cores_do_not_compute_is_not_rounded_to_tf32():
    graph = parse_ir("""
@graph
def g(x: f32[1, 8, 4, 4], v: f32[8, 8, 1, 1], w: f32[8, 1, 3, 3], q: f32[2, 8, 8], k: f32[2, 8, 8]):
    c: f32[1, 8, 4, 4] = Conv(x, v)
    d: f32[1, 8, 2, 2] = Conv(c, w, group=8)
    s: f32[2, 8, 8] = MatMul(q, k)
    p: f32[2, 8, 8] = Softmax(s, axis=-1)
    y: f32[2, 8, 8] = MatMul(p, k)
    z: f32[2, 8, 8] = MatMul(y, k)
    return d, z
""")
    settings = Settings(parse_target("cuda:sm_80"), 1, precision=Precision.TF32)
    marked = [
        n.outputs[0].name for n in round_factors(graph, settings).nodes if n.attr("factors", "")
    ]
    assert marked == ["c", "z"]


def test_an_architecture_without_tf32_is_named():
    with pytest.raises(UsageError, match="tf32 takes mma_tf32, which the target sm_75") as caught:
        farrier.compile(_halves(), target="cuda:sm_75", precision="tf32", verify=False)
    assert "cuda:sm_80 or a later architecture" in caught.value.hint


def test_each_barrier_matters():
    declared = BY_NAME["mma_f16"]
    program = product(40, 40, 96, declared)
    function, inputs = lowered(program, declared, each=(2, 1)), inputs_of(program)
    text = ptx_of(render(function, "sm_80"), "sm_80")
    run_ptx(text, function, inputs)
    mutants = list(without_each(text, BARRIER))
    assert len(mutants) >= 3
    for mutant in mutants:
        with pytest.raises(PtxError, match=FAULT):
            run_ptx(mutant, function, inputs)


def test_each_wait_matters():
    declared = BY_NAME["mma_f16"]
    program = product(40, 64, 160, declared, is_transposed=True)
    function, inputs = lowered(program, declared, stages=3), inputs_of(program)
    text = ptx_of(render(function, "sm_80"), "sm_80")
    run_ptx(text, function, inputs)
    # The wait of the loop is for all but one group; those before it wait for nothing yet.
    wait = re.compile(r"cp\.async\.wait_group\s+1;")
    assert len(wait.findall(text)) == 1
    for mutant in (wait.sub("", text), wait.sub("cp.async.wait_group 2;", text)):
        with pytest.raises(PtxError, match=FAULT):
            run_ptx(mutant, function, inputs)
    for mutant in without_each(text, BARRIER):
        with pytest.raises(PtxError, match=FAULT):
            run_ptx(mutant, function, inputs)


def test_threads_of_a_warp_meet_before_they_multiply():
    declared = BY_NAME["mma_i8_i8"]
    program = product(40, 64, 200, declared, is_transposed=True)
    function, inputs = lowered(program, declared, stages=2), inputs_of(program)
    text = ptx_of(render(function, "sm_80"), "sm_80")
    run_ptx(text, function, inputs)
    mutant = re.sub(r"bar\.warp\.sync[^;]*;", "", text)
    assert mutant != text
    with pytest.raises(PtxError, match="not all threads of a warp reach the instruction"):
        run_ptx(mutant, function, inputs)


def test_the_interpreter_misses_each_wait():
    declared = BY_NAME["mma_f16"]
    program = product(40, 64, 160, declared, is_transposed=True)
    function, inputs = lowered(program, declared, stages=3), inputs_of(program)
    assert print_ir(parse_ir(print_ir(function))) == print_ir(function)

    def with_later_waits(stmt):
        if isinstance(stmt, Barrier) and stmt.copies == 1:
            return Barrier(stmt.scope, 2)
        return map_children(stmt, with_later_waits)

    mutant = dataclasses.replace(function, body=with_later_waits(function.body))
    with pytest.raises(CompilerError, match="that nobody wrote"):
        run_threads(mutant, inputs, meaning=_meaning)


@pytest.mark.parametrize(
    ("name", "steps", "is_transposed"),
    [
        *(("mma_f16", 1, True), ("mma_f16", 2, False), ("mma_f16", 4, False)),
        *(("mma_i8_i8", 2, True), ("mma_tf32", 2, True), ("mma_tf32", 4, True)),
    ],
)
def test_memory_is_read_without_detours(name, steps, is_transposed):
    declared = BY_NAME[name]
    program = product(128, 64, 128, declared, is_transposed=is_transposed)
    function = lowered(program, declared, each=(2, 2), steps=steps)
    traffic, inputs = Traffic(), inputs_of(program)
    run_ptx(ptx_of(render(function, "sm_80"), "sm_80"), function, inputs, traffic)
    assert traffic.over_the_fewest("shared") == 1
    assert traffic.over_the_fewest("global") <= 1.25


@pytest.mark.parametrize("is_transposed", [False, True])
def test_an_architecture_without_copies_loads_ahead(is_transposed):
    declared = BY_NAME["mma_f16_k8"]
    program = product(37, 64, 72, declared, is_transposed=is_transposed)
    space = fragments.space(program, LIMITS, USUAL, [declared])
    two = {"groups_y": 2, "groups_x": 2, "each_y": 1, "each_x": 2, "steps": 2, "stages": 2}
    function, inputs = lower_threads(space.schedule(two).function), inputs_of(program)
    expected = evaluate(program, inputs)["y"]
    text = ptx_of(render(function, "sm_75"), "sm_75")
    for result in (
        run_threads(function, inputs, meaning=_meaning),
        run_ptx(text, function, inputs),
    ):
        np.testing.assert_allclose(result["y"], expected, rtol=2e-3, atol=1e-2)
    for mutant in without_each(text, BARRIER):
        with pytest.raises(PtxError, match=FAULT):
            run_ptx(mutant, function, inputs)


def test_a_swizzle_that_parts_a_row_of_a_matrix_is_refused():
    declared = BY_NAME["mma_f16"]
    schedule = Schedule(to_loops(product(32, 32, 64, declared)))
    schedule.subgroup_product("t", "y", declared.name, (1, 1), (1, 1), 16, 1)
    schedule.swizzle("t_rows", 4, 1, 4)
    with pytest.raises(InexpressibleError, match="t_rows parts a row of a matrix"):
        render(lower_threads(schedule.function), "sm_80")


def test_an_architecture_that_lacks_an_instruction_is_named():
    declared = BY_NAME["mma_f16"]
    function = lowered(product(16, 16, 16, declared), declared)
    with pytest.raises(CompilerError, match=re.escape("mma_f16_zero, which sm_75 lacks")):
        require_features(function, "sm_75")
    require_features(function, "sm_80")
    assert "cp_async" not in FEATURES["sm_75"]


def _halves():
    """Convolutions, one of them in groups, and a product of f16, with what follows each of them."""
    rng = np.random.default_rng(2)
    weights = {"w": (24, 16, 3, 3), "g": (32, 12, 3, 3), "v": (32, 40), "b": (40,)}
    arrays = {name: rng.standard_normal(shape) / 8 for name, shape in weights.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[1, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "g"], ["d"], pads=[1, 1, 1, 1], group=2),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("Transpose", ["e"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["t", "v"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "halves",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (1, 16, 10, 14))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (1, 10, 7, 40))],
        [numpy_helper.from_array(a.astype(np.float16), name) for name, a in arrays.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


@pytest.mark.parametrize("cpu", ["sm_80", "sm_75"])
@pytest.mark.parametrize("is_of_bytes", [False, True])
def test_convolutions_read_whole_sectors(cpu, is_of_bytes):
    data, fragments_of = (_bytes(), 1) if is_of_bytes else (_images(), 2)
    multiplied = 0
    for _, function, text in kernels(data, {}, parse_target(f"cuda:{cpu}")):
        rng, traffic = np.random.default_rng(0), Traffic()
        names = {buffer.name for buffer in function.params} - _outputs_of(function)
        inputs = {
            buffer.name: rng.integers(0, 9, buffer.type.static_shape).astype(buffer.dtype.numpy)
            for buffer in function.params
            if buffer.name in names
        }
        expected = run_threads(function, inputs, meaning=_meaning)
        for name, result in run_ptx(text, function, _packed(function, inputs), traffic).items():
            near = {"rtol": 2e-3, "atol": 1e-2}
            np.testing.assert_allclose(result.astype(float), expected[name].astype(float), **near)
        if "mma.sync" not in text:
            continue  # It copies from the order of memory that the model's interface has.
        multiplied += 1
        assert traffic.over_the_fewest("global") <= 1.25
        assert traffic.over_the_fewest("shared") <= 1.1
    # Architectures without products of bytes sum them by other rules.
    assert multiplied == (0 if is_of_bytes and cpu == "sm_75" else fragments_of)


def _outputs_of(function):
    return {buffer.name for stmt in walk_stmts(function.body) for buffer in stmt.writes}


def _packed(function, inputs):
    """Return arguments as they lie in memory."""
    layouts = {buffer.name: buffer.element_layout for buffer in function.params}
    return {name: layouts[name].pack(array) for name, array in inputs.items()}


def _images():
    """Two convolutions of f16 with padding, one of them with strides."""
    rng = np.random.default_rng(7)
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"], pads=[1, 1, 1, 1], strides=[1, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"], pads=[2, 1, 0, 1]),
    ]
    weights = {"v": (32, 16, 3, 3), "w": (40, 32, 3, 3)}
    graph = helper.make_graph(
        nodes,
        "images",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (1, 16, 10, 14))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (1, 40, 10, 7))],
        [
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float16), name)
            for name, shape in weights.items()
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


@pytest.mark.parametrize(("cpu", "depth"), [("sm_80", 16), ("sm_75", 8)])
def test_a_model_of_f16_runs_on_tensor_cores(library, monkeypatch, cpu, depth):
    onnxruntime = pytest.importorskip("onnxruntime")
    data = _halves()
    artifact = farrier.compile(data, target=f"cuda:{cpu}", verify=False)
    texts = [code.content.decode() for code in artifact.code.objects if code.kind == PTX]
    assert sum(f"mma.sync.aligned.m16n8k{depth}." in text for text in texts) == 3
    x = np.random.default_rng(3).standard_normal((1, 16, 10, 14)).astype(np.float16)
    (expected,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
    (result,) = artifact.run({"x": x}).values()
    assert np.abs(result.astype(float) - expected).max() <= 1e-2 * np.ptp(expected.astype(float))


@pytest.mark.parametrize("precision", ["f16", "bf16", "tf32"])
def test_a_model_of_f32_is_rounded_where_it_is_asked_for(library, precision):
    rng = np.random.default_rng(4)
    w, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 24), (32, 40)))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
        "floats",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (32, 40))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (32, 24))],
        [numpy_helper.from_array(w, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    data = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    options = {"target": "cuda:sm_80", "verify": False}
    exact = farrier.compile(data, **options)
    rounded = farrier.compile(data, precision=precision, **options)
    has_cores = [
        any(b"mma.sync" in each.content for each in a.code.objects) for a in (exact, rounded)
    ]
    assert has_cores == [False, True]
    (result,) = rounded.run({"x": x}).values()
    expected = np.maximum(x.astype(float) @ w, 0)
    error = np.abs(result - expected).max() / np.ptp(expected)
    assert 1e-6 < error <= (2e-2 if precision == "bf16" else 2e-3)


def _bytes():
    """A convolution of bytes whose zero points are not 0, between quantized tensors."""
    rng = np.random.default_rng(5)
    tensors = {
        "w": rng.integers(-127, 128, (24, 16, 3, 3), np.int8),
        "b": rng.integers(-2000, 2000, 24, np.int32),
        **{name: np.float32(scale) for name, scale in (("p", 0.02), ("q", 0.01), ("r", 0.1))},
        "pq": np.float32(0.02) * np.float32(0.01),
        "z": np.uint8(130),
        "none": np.int8(0),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "p", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "p", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "q", "none"], ["wf"]),
        helper.make_node("DequantizeLinear", ["b", "pq"], ["bf"]),
        helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "r", "z"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "r", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "bytes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 9, 12))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 24, 9, 12))],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in tensors.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


@pytest.mark.parametrize(("cpu", "has_cores"), [("sm_80", True), ("sm_75", False)])
def test_a_quantized_model_multiplies_bytes(library, cpu, has_cores):
    onnxruntime = pytest.importorskip("onnxruntime")
    data = _bytes()
    artifact = farrier.compile(data, target=f"cuda:{cpu}", verify=False)
    texts = [code.content.decode() for code in artifact.code.objects if code.kind == PTX]
    assert any("mma.sync.aligned.m16n8k32." in text for text in texts) == has_cores
    x = np.random.default_rng(6).standard_normal((1, 16, 9, 12)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
    (result,) = artifact.run({"x": x}).values()
    assert np.abs(result - expected).max() <= 0.1 + 1e-5  # A step of the last quantization.


@pytest.mark.parametrize("name", ["mma_f16", "mma_i8_i8", "mma_tf32"])
def test_a_long_sum_of_few_results_is_computed_in_parts(name):
    declared = BY_NAME[name]
    program = product(16, 24, 1024, declared)
    space = fragment_parts.space(program, LIMITS, USUAL, [declared])
    function = lower_threads(space.schedule({"parts": 4}).function)
    assert len(launches(function)) == 2
    inputs = inputs_of(program)
    expected = evaluate(program, inputs)["y"].astype(float)
    text = ptx_of(render(function, "sm_80"), "sm_80")
    assert "mma.sync" in text
    near = 1e-3 if declared.total.is_float else 0
    for result in (
        run_threads(function, inputs, meaning=_meaning),
        run_ptx(text, function, inputs),
    ):
        assert np.abs(result["y"] - expected).max() <= near * np.ptp(expected)


# Rows, columns and terms of products that are computed in parts: terms that parts divide.
LONG = [*itertools.product((8, 11, 16, 29, 40), (9, 31), (520, 640, 777, 902, 1024))]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(LONG), 10))
@pytest.mark.parametrize("name", ["mma_f16", "mma_i8_i8"])
def test_parts_of_many_shapes(name, first):
    declared = BY_NAME[name]
    for number, shape in enumerate(LONG[first : first + 10]):
        program = product(*shape, declared, is_transposed=number % 2 == 0)
        space = fragment_parts.space(program, LIMITS, USUAL, [declared])
        function = lower_threads(space.schedule(space.default()).function)
        inputs = inputs_of(program)
        expected = evaluate(program, inputs)["y"].astype(float)
        near = 1e-3 * np.ptp(expected) if declared.total.is_float else 0
        for result in (
            run_threads(function, inputs, meaning=_meaning),
            run_ptx(ptx_of(render(function, "sm_80"), "sm_80"), function, inputs),
        ):
            assert np.abs(result["y"] - expected).max() <= near, shape


def test_a_product_that_fills_the_device_is_not_computed_in_parts():
    program = product(512, 512, 1024, BY_NAME["mma_f16"])
    assert fragment_parts.space(program, LIMITS, USUAL, [BY_NAME["mma_f16"]]) is None
