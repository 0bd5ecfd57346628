"""One attention, as native code, against ONNX Runtime: any lengths, masks that leave nothing."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ir.types import DType
from farrier.lower.program import to_program
from farrier.ops import run_graph
from farrier.options.precision import Precision
from farrier.partition import extract_tasks
from farrier.passes import Settings, optimize
from farrier.targets import host
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.rules import attention as attention_rule
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import run_compiled

EXAMPLES = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
lengths = st.one_of(st.sampled_from((1, 7, 16, 33, 197)), st.integers(1, 70))


def attention(heads, queries, keys, depth, width, mask=None):
    """ONNX bytes of softmax(q kᵀ / √depth + mask) v, from q, k, v [1, length, heads * depth]; a
    length is open where it is a name."""
    nodes, constants = [], []

    def extent(length):
        return -1 if isinstance(length, str) else length

    def constant(name, array):
        constants.append(numpy_helper.from_array(array, name))
        return name

    def node(op, *inputs, **attributes):
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def split(name, length, size):
        shape = constant(f"{name}_shape", np.array([1, extent(length), heads, size], np.int64))
        return node("Reshape", name, shape)

    def value(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    q = node("Transpose", split("q", queries, depth), perm=(0, 2, 1, 3))
    k = node("Transpose", split("k", keys, depth), perm=(0, 2, 3, 1))
    v = node("Transpose", split("v", keys, width), perm=(0, 2, 1, 3))
    scores = node("MatMul", q, k)
    scores = node("Mul", scores, constant("scale", np.float32(depth**-0.5)))
    inputs = [
        value("q", 1, queries, heads * depth),
        value("k", 1, keys, heads * depth),
        value("v", 1, keys, heads * width),
    ]
    if mask is not None:
        inputs.append(value("mask", *mask.shape))
        scores = node("Add", scores, "mask")
    context = node("MatMul", node("Softmax", scores, axis=-1), v)
    whole = constant("whole", np.array([1, extent(queries), heads * width], np.int64))
    joined = node("Transpose", context, perm=(0, 2, 1, 3))
    nodes.append(helper.make_node("Reshape", [joined, whole], ["y"]))
    outputs = [value("y", 1, queries, heads * width)]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


def run_both(model, arrays, threads, precision="f32"):
    artifact = farrier.compile(model, threads=threads, verify=False, precision=precision)
    assert {"attention", "attention_tile"} & {kernel.rule for kernel in artifact.manifest.kernels}
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (actual,) = artifact.session(threads).run(arrays).values()
    (expected,) = session.run(None, arrays)
    return actual, expected


def operands(rng, heads, queries, keys, depth, width):
    """Queries, keys and values; scores between -30 and 30 or so."""
    sizes = {"q": (queries, depth), "k": (keys, depth), "v": (keys, width)}
    return {
        name: rng.standard_normal((1, length, heads * size), np.float32) * 3
        for name, (length, size) in sizes.items()
    }


@EXAMPLES
@given(
    heads=st.integers(1, 5),
    queries=lengths,
    keys=lengths,
    depth=st.integers(1, 40),
    width=st.integers(1, 40),
    threads=st.integers(1, 3),
    masked=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_attention(heads, queries, keys, depth, width, threads, masked, seed):
    rng = np.random.default_rng(seed)
    mask = None
    if masked:
        mask = np.where(rng.random((queries, keys)) < 0.4, -np.inf, 0).astype(np.float32)
        mask[rng.random(queries) < 0.2] = -np.inf  # Such a row is NaN, as with padding.
    arrays = operands(rng, heads, queries, keys, depth, width)
    arrays |= {} if mask is None else {"mask": mask}
    model = attention(heads, queries, keys, depth, width, mask)
    actual, expected = run_both(model, arrays, threads)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=3e-5)


@pytest.mark.skipif("avx512_bf16" not in host().features, reason="no bf16 dot products here")
@EXAMPLES
@given(
    heads=st.integers(1, 3),
    queries=lengths,
    keys=lengths,
    depth=st.integers(1, 40),
    width=st.integers(1, 40),
    threads=st.integers(1, 3),
    masked=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_attention_in_bf16(heads, queries, keys, depth, width, threads, masked, seed):
    """Either product may have sums in groups or none: operands are bf16, so that only the weights
    are rounded."""
    rng = np.random.default_rng(seed)
    arrays = operands(rng, heads, queries, keys, depth, width)
    arrays = {name: a.astype(DType.BF16.numpy).astype(np.float32) for name, a in arrays.items()}
    mask = None
    if masked:
        mask = np.where(rng.random((queries, keys)) < 0.4, -np.inf, 0).astype(np.float32)
        mask[:, rng.integers(keys)] = 0
        arrays["mask"] = mask
    model = attention(heads, queries, keys, depth, width, mask)
    actual, expected = run_both(model, arrays, threads, "bf16")
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2**-8 * np.abs(arrays["v"]).max())


@settings(max_examples=10, deadline=None)
@given(
    precision=st.sampled_from(("f32", "bf16") if "avx512_bf16" in host().features else ("f32",)),
    heads=st.integers(1, 3),
    queries=st.integers(1, 50),
    keys=st.sampled_from((256 + 128, 3 * 256, 1024)),
    depth=st.sampled_from((8, 16, 40)),
    width=st.sampled_from((8, 16, 40)),
    pick=st.integers(0, 100_000),
)
def test_blocks_of_keys(precision, heads, queries, keys, depth, width, pick):
    """Masks that leave nothing of a block, of all blocks but one, of a whole row."""
    rng = np.random.default_rng(pick)
    mask = np.where(rng.random((queries, keys)) < 0.4, -np.inf, 0).astype(np.float32)
    mask[::5] = -np.inf
    mask[1::5, 128:] = -np.inf
    mask[2::5, :-128] = -np.inf
    mask[1::5, 0] = mask[2::5, -1] = mask[3::5, 0] = mask[4::5, 0] = 0
    chosen = Settings(host(), 2, precision=Precision(precision))
    model = attention(heads, queries, keys, depth, width, mask)
    graph = optimize(import_model(model, {}).graph, chosen)
    (task,) = (t for t in extract_tasks(graph)[0].values() if "softmax" in t.name)
    program = to_program(task.region, "kernel", task.constant_inputs)
    space = attention_rule.space(program, host(), 2)
    candidates = space.candidates()
    blocked = candidates[space.columns(candidates)["keys"] < keys]
    function = final_loops(space, space.decisions(blocked[pick % len(blocked)]))
    arrays = {
        v.name: mask.reshape(v.type.static_shape)
        if v.type.static_shape[-2:] == mask.shape
        else rng.standard_normal(v.type.static_shape).astype(v.type.dtype.numpy)
        for v in task.region.inputs
    }
    (actual,) = run_compiled(function, arrays, threads=2).values()
    (expected,) = run_graph(task.region, arrays).values()
    assert np.isnan(expected).any()
    allowed = 3e-6 if precision == "f32" else 2e-2
    np.testing.assert_allclose(actual, expected, rtol=0, atol=allowed)


def test_groups_of_keys_and_values_are_stored_together():
    target = host()
    if "avx512_bf16" not in target.features:
        pytest.skip("this machine has no bf16 dot products")
    settings = Settings(target, 2, precision=Precision.BF16)
    graph = optimize(import_model(attention(2, 33, 36, 16, 16), {}).graph, settings)
    (task,) = (t for t in extract_tasks(graph)[0].values() if "softmax" in t.name)
    program = to_program(task.region, "kernel", task.constant_inputs)
    space = attention_rule.space(program, target, 2)
    text = emit_function(final_loops(space, space.default()), target)
    assert "dpbf16ps" in text
    assert "store i16" not in text
    assert "load i16" not in text


@pytest.mark.parametrize("keys", [7, 32, 197])
def test_a_row_that_is_masked_whole_is_not_a_number(keys):
    rng = np.random.default_rng(keys)
    mask = np.zeros((1, 1, 5, keys), np.float32)
    mask[..., 2, :] = -np.inf
    arrays = operands(rng, 2, 5, keys, 8, 8) | {"mask": mask}
    actual, expected = run_both(attention(2, 5, keys, 8, 8, mask), arrays, 2)
    assert np.isnan(expected[0, 2]).all()
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=3e-5)


def test_scores_of_a_long_sequence_are_never_stored():
    """Memory grows with the length, not with its square: a block of rows has scores of a block of
    keys."""
    model = attention(heads=2, queries=4096, keys=4096, depth=64, width=64)
    artifact = farrier.compile(model, threads=2, verify=False)
    scores = 2 * 4096 * 4096 * 4
    assert artifact.manifest.backend["workspace_bytes"] < scores / 16


@pytest.mark.parametrize("typical", [7, 64, 128])
def test_an_open_number_of_keys_is_taken_in_groups(typical):
    """No unrolled step reaches beyond the last group, whatever it does where keys are typical."""
    if "avx512_bf16" not in host().features:
        pytest.skip("this machine has no bf16 dot products")
    model = attention(2, "n", "n", 64, 64)
    artifact = farrier.compile(
        model,
        shapes=dict.fromkeys("qkv", (1, "n:1..300", 128)),
        typical={"n": typical},
        threads=2,
        verify=False,
        precision="bf16",
    )
    peer = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 64, 77, 300):
        arrays = {n: rng.standard_normal((1, count, 128)).astype(np.float32) for n in "qkv"}
        (actual,) = artifact.run(arrays).values()
        (expected,) = peer.run(None, arrays)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=3e-2)
