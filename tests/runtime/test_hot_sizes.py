"""Hot sizes: one artifact, code of its own for the sizes that matter, and code for all others."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from farrier.compilation import specialization
from farrier.errors import UsageError
from farrier.model_tuning.hot import with_shared_kernels
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.records.store import MemoryRecords

RNG = np.random.default_rng(5)


def _model() -> bytes:
    weights = {
        "w": RNG.standard_normal((24, 3, 3, 3)) * 0.2,
        "v": RNG.standard_normal((24, 10)) * 0.2,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString()


SHAPES = {"x": ("batch:1..4", 3, "h:4..64", "w:4..64")}
TARGET = "x86-64-v3"  # The machine's figures decide which kernels do as well as general ones.
HOT = ({"batch": 1, "h": 32, "w": 32}, {"batch": 2, "h": 17, "w": 5})


@pytest.fixture(scope="module")
def model():
    return _model()


@pytest.fixture(scope="module")
def artifact(model):
    return compile_model(model, CompileOptions(TARGET, shapes=SHAPES, hot=HOT, threads=2))


@pytest.mark.parametrize(
    "shape", [(1, 3, 32, 32), (2, 3, 17, 5), (4, 3, 64, 64), (1, 3, 4, 4), (3, 3, 7, 61)]
)
def test_every_size_is_right(model, artifact, shape):
    x = RNG.standard_normal(shape).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    with_hot = artifact.run({"x": x})["y"]
    np.testing.assert_allclose(with_hot, expected, rtol=1e-4, atol=1e-5)


def test_a_session_changes_between_sizes(model, artifact):
    session = artifact.session(2)
    peer = onnxruntime.InferenceSession(model)
    for shape in [(1, 3, 32, 32), (3, 3, 50, 9), (2, 3, 17, 5), (1, 3, 32, 32)]:
        x = RNG.standard_normal(shape).astype(np.float32)
        expected = peer.run(None, {"x": x})[0]
        np.testing.assert_allclose(session.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
    session.close()


def test_hot_kernels_are_those_of_a_static_compile_where_the_time_goes(model, artifact):
    options = CompileOptions(TARGET, shapes={"x": (1, 3, 32, 32)}, threads=2)
    static = compile_model(model, options)
    hot = {kernel.name: kernel.task for kernel in artifact.manifest.kernels}
    fixed = {kernel.name: kernel.task for kernel in static.manifest.kernels}
    # The first has a batch of one; the second takes 1% of the time.
    shared = {"globalaveragepool_24x1x1": 1, "matmul_10_k24": 2}
    assert fixed.keys() - hot.keys() == shared.keys()
    assert all(hot[name] == task for name, task in fixed.items() if name not in shared)
    names = [call.function for call in artifact.calls]
    assert names[0] == static.calls[0].function
    assert [name.partition("_")[0] for name in names] == ["conv3x3", "globalaveragepool", "matmul"]
    assert names[1].startswith("globalaveragepool_d0x24x1x1")
    assert names[2].startswith("matmul_d0x10_k24")


@pytest.fixture
def variants(model, monkeypatch):
    """The arguments of `with_shared_kernels` for the first hot size."""
    seen = []

    def watched(*arguments):
        seen.append(arguments)
        return with_shared_kernels(*arguments)

    monkeypatch.setattr(specialization, "with_shared_kernels", watched)
    compile_model(
        model, CompileOptions(TARGET, shapes=SHAPES, hot=HOT[:1], threads=2, verify=False)
    )
    (arguments,) = seen
    return arguments


def _lent(own, mixed):
    """The keys of the tasks that general kernels stand for."""
    pairs = zip(own.calls, mixed.calls, strict=True)
    return {before.task for before, after in pairs if before.task != after.task}


def test_general_kernels_take_a_small_share_of_a_hot_size(variants):
    own, general, sizes = variants
    time = {
        key: choice.calls * choice.space.seconds(choice.decisions)
        for key, choice in own.choices.items()
    }
    mixed = with_shared_kernels(own, general, sizes)
    lent = _lent(own, mixed)
    assert len(lent) == 2
    assert sum(time[key] for key in lent) < 0.15 * sum(time.values())
    assert max(time, key=lambda key: time[key]) not in lent
    assert all(isinstance(dim, int) for call in mixed.calls for dim in call.dims)
    assert mixed.choices.keys() == {call.task for call in mixed.calls}


def test_tuned_kernels_stay(variants):
    own, general, sizes = variants
    tuned = {
        key: dataclasses.replace(choice, source="tuned") for key, choice in own.choices.items()
    }
    own = dataclasses.replace(own, choices=tuned)
    (lent,) = _lent(own, with_shared_kernels(own, general, sizes))
    assert own.choices[lent].program.name.startswith("matmul")  # It is equal for a batch of one.


def test_a_batch_of_one_shares_the_kernels_of_all_batches(model):
    shapes = {"x": ("batch", 3, 32, 32)}  # typically 1
    plain = compile_model(model, CompileOptions(shapes=shapes, threads=2))
    hot = compile_model(model, CompileOptions(shapes=shapes, hot=({"batch": 1},), threads=2))
    assert hot.manifest.kernels == plain.manifest.kernels
    assert hot.manifest.params_bytes == plain.manifest.params_bytes
    peer = onnxruntime.InferenceSession(model)
    for batch in (1, 2, 5, 1):
        x = RNG.standard_normal((batch, 3, 32, 32)).astype(np.float32)
        expected = peer.run(None, {"x": x})[0]
        np.testing.assert_allclose(hot.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_weights_in_one_layout_are_stored_once(model, artifact):
    options = CompileOptions(TARGET, shapes={"x": (1, 3, 32, 32)}, threads=2)
    static = compile_model(model, options)
    assert artifact.manifest.params_bytes < 3 * static.manifest.params_bytes


def test_hot_sizes_out_of_range(model):
    with pytest.raises(UsageError, match="h is 65 in --hot"):
        compile_model(model, CompileOptions(shapes=SHAPES, hot=({"h": 65},)))


def test_open_dims_are_tuned_for_typical_sizes(model):
    shapes = {"x": ("batch:1..4", 3, 8, "w:4..9")}
    records = MemoryRecords()  # The machine decides which schedules win.
    tuned = compile_model(
        model, CompileOptions(shapes=shapes, trials=2, threads=1), records=records
    )
    kernels = {kernel.task for kernel in tuned.manifest.kernels}
    assert kernels & {record.task for record in records}
    for shape in [(4, 3, 8, 9), (1, 3, 8, 5)]:
        x = RNG.standard_normal(shape).astype(np.float32)
        (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
        np.testing.assert_allclose(tuned.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
