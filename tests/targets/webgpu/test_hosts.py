"""Models of which the GPU runs a part, and its host the rest."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from onnx import TensorProto, helper

import farrier
from farrier.cli.inspection import _artifact_lines
from farrier.errors import ArtifactError, FarrierError, UsageError
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.targets import parse_target, read_target
from farrier.targets.driven import target as driven
from tests.targets.webgpu import webgpu

onnxruntime = pytest.importorskip("onnxruntime")
node, value = helper.make_node, helper.make_tensor_value_info


def _model(nodes, inputs, outputs):
    graph = helper.make_graph(
        nodes, "model", [value(*each) for each in inputs], [value(*each) for each in outputs]
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


# A product, bytes of it, the row of its largest element and a product of rows on the GPU; f64 of it
# on the host.
MIXED = _model(
    [
        node("MatMul", ["x", "w"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("ArgMax", ["r"], ["best"], axis=1, keepdims=0),
        node("Cast", ["r"], ["wide"], to=TensorProto.DOUBLE),
        node("Greater", ["r", "h"], ["was_negative"]),
        node("Gather", ["w", "best"], ["rows"], axis=1),
        node("MatMul", ["x", "rows"], ["y"]),
    ],
    [("x", TensorProto.FLOAT, ["n", 8]), ("w", TensorProto.FLOAT, [8, 24])],
    [
        ("y", TensorProto.FLOAT, None),
        ("best", TensorProto.INT64, None),
        ("wide", TensorProto.DOUBLE, None),
        ("was_negative", TensorProto.BOOL, None),
    ],
)


def _feed(rows):
    rng = np.random.default_rng(rows)
    return {
        "x": rng.standard_normal((rows, 8)).astype(np.float32),
        "w": rng.standard_normal((8, 24)).astype(np.float32),
    }


def _assert_as_onnxruntime(artifact, model, *feeds):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for feed in feeds:
        outputs = artifact.run(feed).values()
        for expected, output in zip(session.run(None, feed), outputs, strict=True):
            assert output.dtype == expected.dtype
            np.testing.assert_allclose(output, expected, 1e-4, 1e-4)


@pytest.fixture(scope="module")
def artifact():
    webgpu.device()
    return farrier.compile(MIXED, target="webgpu")


def test_a_model_runs_on_both(artifact, tmp_path):
    _assert_as_onnxruntime(artifact, MIXED, _feed(3), _feed(7), _feed(1))
    kinds = {code.path: code.kind for code in artifact.manifest.code}
    assert kinds.pop("code/host.so") == "elf"
    assert set(kinds.values()) == {"wgsl"}
    path = artifact.save(tmp_path / "mixed.farrier")
    _assert_as_onnxruntime(farrier.load(path), MIXED, _feed(5))


def test_each_kernel_on_the_host_has_a_reason(artifact):
    kernels = artifact.manifest.kernels
    on_host = {kernel.name: kernel.reason for kernel in kernels if kernel.space == "host"}
    (reason,) = on_host.values()
    assert "is f64, which kernels of WebGPU cannot write" in reason
    assert all(not kernel.reason for kernel in kernels if kernel.space == "gpu")
    lines = [*_artifact_lines(artifact)]
    for name, reason in on_host.items():
        assert f"kernel: {name} runs on the host: {reason}" in lines


def test_a_host_has_a_name():
    target = parse_target("rpi5+webgpu")
    assert target.host == parse_target("rpi5")
    assert target.threads == 4
    assert read_target(json.loads(json.dumps(target.to_dict()))) == target
    assert target.fingerprint != parse_target("webgpu").fingerprint
    assert dataclasses.replace(target, host=None) == target.part("gpu")
    assert parse_target("host+webgpu").host == parse_target("host")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rpi6+webgpu", "unknown target 'rpi6'"),
        ("rpi5+webgpx", "unknown target 'webgpx'"),
        ("webgpu+rpi5", "no host drives it"),
        ("webgpu+webgpu", "webgpu is a device"),
    ],
)
def test_a_half_that_is_unknown_or_in_the_wrong_place_is_named(name, message):
    with pytest.raises(UsageError, match=message) as error:
        parse_target(name)
    assert error.value.hint


def test_a_model_for_another_host_is_compiled_and_not_run():
    target = "rpi5+webgpu" if parse_target("host").arch == "x86_64" else "x86-64-v3+webgpu"
    with pytest.raises(UsageError, match="cannot be measured or verified here: this machine is"):
        farrier.compile(MIXED, target=target)
    artifact = farrier.compile(MIXED, target=target, verify=False)
    with pytest.raises(ArtifactError, match=r"kernels run on the host, .*; this machine is"):
        artifact.run(_feed(2))


def test_without_a_host_a_kernel_that_needs_one_is_an_error(monkeypatch):
    monkeypatch.setattr("farrier.targets.webgpu.backend.baseline", lambda: None)
    with pytest.raises(FarrierError, match=r"wide.* is f64, which kernels of WebGPU") as error:
        compile_model(MIXED, CompileOptions("webgpu", verify=False))
    assert "--target host" in str(error.value)
    assert driven.baseline() is not None


BYTES = _model(
    [
        node("Greater", ["x", "half"], ["mask"]),
        node("Where", ["mask", "x", "half"], ["clipped"]),
        node("MatMul", ["clipped", "x"], ["y"]),
        node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
    ],
    [
        ("x", TensorProto.FLOAT, [5, 5]),
        ("half", TensorProto.FLOAT, []),
        ("n", TensorProto.INT64, [3]),
    ],
    [
        ("y", TensorProto.FLOAT, None),
        ("mask", TensorProto.BOOL, None),
        ("f", TensorProto.FLOAT, None),
    ],
)


def test_bytes_and_wide_integers_are_exact():
    webgpu.device()
    artifact = farrier.compile(BYTES, target="webgpu", verify=False)
    assert {kernel.space for kernel in artifact.manifest.kernels} == {"gpu"}
    x = np.random.default_rng(3).standard_normal((5, 5)).astype(np.float32)
    wide = np.array([3 << 40, -(5 << 33), 7], np.int64)
    _assert_as_onnxruntime(artifact, BYTES, {"x": x, "half": np.array(0.5, np.float32), "n": wide})


def test_a_part_of_a_word_is_copied():
    gpu = webgpu.device()
    memory = gpu.allocate(12, 0)
    gpu.send(memoryview(bytes(range(12))), memory, 0)
    gpu.send(memoryview(b"\xff\xfe\xfd"), memory, 2)
    received = bytearray(6)
    gpu.receive(memory, 1, memoryview(received))
    gpu.synchronize()
    assert received == bytes([1, 0xFF, 0xFE, 0xFD, 5, 6])


def test_bytes_are_sent_once_they_have_arrived():
    gpu = webgpu.device()
    first, second = gpu.allocate(8, 0), gpu.allocate(8, 1)
    gpu.send(memoryview(b"farriers"), first, 0)
    between, received = bytearray(8), bytearray(8)
    gpu.receive(first, 0, memoryview(between))
    gpu.send(memoryview(between), second, 0)
    gpu.receive(second, 0, memoryview(received))
    gpu.synchronize()
    assert received == b"farriers"


def test_bf16_is_refused():
    with pytest.raises(UsageError, match=r"precision bf16 .*webgpu does not have") as error:
        farrier.compile(BYTES, target="webgpu", precision="bf16", verify=False)
    assert "--precision f32" in error.value.hint


def _between(size):
    """A model of a host kernel, one of the GPU, and a host kernel, of matrices of a size."""
    return _model(
        [
            node("MatMul", ["d", "d"], ["wide"]),
            node("Cast", ["wide"], ["f"], to=TensorProto.FLOAT),
            node("Softmax", ["f"], ["s"]),
            node("Cast", ["s"], ["e"], to=TensorProto.DOUBLE),
            node("ReduceMax", ["e"], ["y"], axes=[1]),
        ],
        [("d", TensorProto.DOUBLE, [size, size])],
        [("y", TensorProto.DOUBLE, None)],
    )


@pytest.mark.parametrize(("size", "spaces"), [(4, {"host"}), (300, {"host", "gpu"})])
def test_a_value_does_not_go_to_the_gpu_and_back_for_a_tiny_kernel(size, spaces):
    webgpu.device()
    artifact = farrier.compile(_between(size), target="webgpu", verify=False)
    assert {kernel.space for kernel in artifact.manifest.kernels} == spaces
    on_host = [kernel.reason for kernel in artifact.manifest.kernels if kernel.space == "host"]
    assert any("lies between kernels of the host" in each for each in on_host) is (size == 4)
    d = np.random.default_rng(1).standard_normal((size, size))
    _assert_as_onnxruntime(artifact, _between(size), {"d": d})


@pytest.mark.parametrize(
    ("target", "spaces"),
    [("rpi5+webgpu:videocore7", {"host"}), ("rpi5+webgpu:mali-g610", {"gpu"})],
)
def test_a_model_for_a_slow_gpu_stays_on_the_host(target, spaces):
    weight = ("w", TensorProto.FLOAT, [512, 512])
    inputs, outputs = [("x", TensorProto.FLOAT, [256, 512]), weight], ("y", TensorProto.FLOAT, None)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Softmax", ["h"], ["y"])]
    model = _model(nodes, inputs, [outputs])
    artifact = farrier.compile(model, target=target, verify=False)
    kernels = artifact.manifest.kernels
    assert {kernel.space for kernel in kernels} == spaces
    reason = "V3D 7.1 is no faster than its host: by peak rates the model takes"
    assert all(kernel.reason.startswith(reason) == (kernel.space == "host") for kernel in kernels)


def test_few_short_rows_have_a_schedule():
    """Two rows of four elements are shared by less than the fewest threads that share a row."""
    webgpu.device()
    model = _model(
        [node("Softmax", ["x"], ["y"])],
        [("x", TensorProto.FLOAT, [2, 4])],
        [("y", TensorProto.FLOAT, None)],
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    _assert_as_onnxruntime(farrier.compile(model, target="webgpu", verify=False), model, {"x": x})


PLACES = _model(
    [
        node("Constant", [], ["k"], value_ints=[7]),
        node("ArgMax", ["x"], ["best"], axis=1),
        node("TopK", ["x", "k"], ["values", "places"]),
        node("NonZero", ["x"], ["filled"]),
        node("Gather", ["table", "best"], ["taken"]),
    ],
    [
        ("x", TensorProto.FLOAT, [5, 300]),
        ("table", TensorProto.INT64, [300]),
    ],
    [
        ("best", TensorProto.INT64, None),
        ("values", TensorProto.FLOAT, None),
        ("places", TensorProto.INT64, None),
        ("filled", TensorProto.INT64, None),
        ("taken", TensorProto.INT64, None),
    ],
)


def test_the_gpu_finds_the_places_of_elements():
    webgpu.device()
    artifact = farrier.compile(PLACES, target="webgpu", verify=False)
    assert {kernel.space for kernel in artifact.manifest.kernels} == {"gpu"}
    x = np.random.default_rng(0).integers(-9, 9, (5, 300)).astype(np.float32)
    table = np.random.default_rng(1).integers(-(1 << 60), 1 << 60, 300)
    _assert_as_onnxruntime(artifact, PLACES, {"x": x, "table": table})
