"""Whole models with bf16 operands: how far they are from f32, and who is refused."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import farrier
from bench import models
from farrier.errors import UsageError
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.records import MemoryRecords
from farrier.targets import host
from farrier_device.measurement import Status

needs_bf16 = pytest.mark.skipif(
    "avx512_bf16" not in host().features, reason="this machine has no bf16 dot products"
)

# By name: the model, and the largest error as a share of the output's range.
MODELS = {
    "resnet": (models.build("resnet18", size=64, classes=11), 2e-2),
    "resnext": (models.build("resnext50", size=64, classes=11), 2e-2),
    "mobilenet": (models.build("mobilenet_v2", size=64, classes=11), 5e-2),
    "bert": (
        models.build("bert_base", layers=2, width=96, heads=3, tokens=38, vocabulary=50),
        2e-2,
    ),
    "bert of odd length": (
        models.build("bert_base", layers=1, width=44, heads=2, tokens=13, batch=2, vocabulary=50),
        2e-2,
    ),
    "vit": (models.build("vit_b16", layers=2, width=48, heads=3, size=80, classes=11), 2e-2),
}


def both(data, threads):
    """The artifact in bf16, its outputs, and ONNX Runtime's."""
    artifact = farrier.compile(data, threads=threads, precision="bf16", verify=False)
    rng = np.random.default_rng(3)
    arrays = {
        spec.name: rng.standard_normal(spec.shape, np.float32)
        if spec.dtype == "f32"
        else rng.integers(0, 2, spec.shape)
        for spec in artifact.manifest.inputs
    }
    names = [spec.name for spec in artifact.manifest.outputs]
    expected = onnxruntime.InferenceSession(data).run(names, arrays)
    return artifact, artifact.run(arrays), dict(zip(names, expected, strict=True))


@needs_bf16
@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_bf16_is_near_f32(name):
    data, allowed = MODELS[name]
    artifact, actual, expected = both(data, threads=2)
    assert not any(kernel.rule.startswith("sketch/") for kernel in artifact.manifest.kernels)
    errors = [np.abs(actual[n] - e).max() / np.abs(e).max() for n, e in expected.items()]
    assert max(errors) < allowed
    assert max(errors) > 1e-5  # A smaller error would mean that it is not bf16.


@needs_bf16
def test_weights_take_half_the_room():
    data, _ = MODELS["bert"]
    plain = farrier.compile(data, verify=False).manifest
    narrow = farrier.compile(data, precision="bf16", verify=False).manifest
    assert (plain.precision, narrow.precision) == ("f32", "bf16")
    assert narrow.params_bytes < 0.6 * plain.params_bytes


@needs_bf16
def test_the_report_states_the_error():
    data, allowed = MODELS["bert"]
    report = farrier.compile(data, precision="bf16").report
    assert report["precision"] == "bf16"
    verification = report["verification"]
    assert 1e-5 < verification["max_error"] < allowed <= verification["tolerance"]


@pytest.mark.long
@needs_bf16
def test_candidates_are_compared_as_bf16():
    data, allowed = MODELS["bert"]
    records = MemoryRecords()
    options = CompileOptions(precision="bf16", trials=32)
    artifact = compile_model(data, options, records=records)
    assert artifact.report["verification"]["max_error"] < allowed
    # A candidate that cannot be built is rejected, and all others are right.
    statuses = {record.status for record in records}
    assert Status.OK in statuses <= {Status.OK, Status.REJECTED}


def test_a_target_without_the_instructions_is_refused():
    data, _ = MODELS["bert"]
    with pytest.raises(UsageError) as caught:
        farrier.compile(data, target="x86-64-v3", precision="bf16")
    assert "avx512_bf16" in caught.value.message
    assert "x86-64-v3" in caught.value.message
    assert "--precision f32" in caught.value.hint
