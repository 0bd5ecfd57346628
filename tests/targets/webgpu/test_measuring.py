"""Kernels and models that are measured on this machine's adapter, in a sandboxed child."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from farrier.errors import UsageError
from farrier.measure.local import LocalDevice
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.progress import Warned
from farrier.records import MemoryRecords
from farrier.targets import parse_target
from farrier.targets.webgpu.machines import FIGURES, figures_of
from farrier.targets.webgpu.runner import WebGpuRunner
from farrier.testing import kernels
from farrier_device import adapters
from farrier_device.devices.webgpu_module import end_of
from farrier_device.measurement import (
    Argument,
    Candidate,
    CodeObject,
    Launch,
    MeasureRequest,
    Role,
    Status,
    TimingPolicy,
)
from farrier_device.webgpu_library import WGSL
from tests.targets.webgpu import webgpu
from tests.targets.webgpu.test_models import _model
from tests.targets.webgpu.test_models import _weights as weights

SMALL = _model(
    [
        helper.make_node("Gemm", ["x", "w"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"]),
    ],
    [("x", TensorProto.FLOAT, [4, 24])],
    [("y", TensorProto.FLOAT, [4, 10])],
    weights(w=(24, 10)),
)
HEAD = """
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
"""
DOUBLE = "@compute @workgroup_size(64) fn {}(@builtin(global_invocation_id) g: vec3<u32>)"
RIGHT = HEAD + DOUBLE.format("right") + "{ y[g.x] = 2.0 * x[g.x]; }"
WRONG = HEAD + DOUBLE.format("wrong") + "{ y[g.x] = 3.0 * x[g.x]; }"
# A loop ends after 65,536 iterations on llvmpipe, so it takes many blocks to hang.
LOOP = "for (var i = 0; i < 65000; i++) { y[g.x] = sqrt(y[g.x] + 1.0); }"
HANGS = HEAD + DOUBLE.format("hangs") + f"{{ {LOOP} }}"
BROKEN = HEAD + DOUBLE.format("broken") + "{ y[g.x] = nothing; }"
QUICK = TimingPolicy(min_repeats=3, max_repeats=4, min_time_s=0.0, timeout_s=0.2)


@pytest.fixture(scope="module")
def here():
    webgpu.device()
    with LocalDevice(WebGpuRunner()) as local:
        yield local


def _measure(here, *texts):
    """Measure entry points of modules on 64 elements, in order."""
    ones, twos = (bytes.fromhex(word) * 64 for word in ("0000803f", "00000040"))
    args = (
        Argument(Role.INPUT, 256, blob=here.blobs.put(ones)),
        Argument(Role.OUTPUT, 256, expected=here.blobs.put(twos)),
    )
    names = {RIGHT: "right", WRONG: "wrong", HANGS: "hangs", BROKEN: "broken"}
    candidates = tuple(
        Candidate((Launch(names[text], None, (60_000 if text == HANGS else 1,), (64,)),), args)
        for text in texts
    )
    code = tuple(CodeObject(here.blobs.put(text.encode()), WGSL) for text in dict.fromkeys(texts))
    return here.runner.measure(MeasureRequest(code, candidates, QUICK), here.blobs)


def test_kernels_are_measured_and_a_hung_one_is_ended(here):
    result = _measure(here, RIGHT, WRONG, HANGS, RIGHT)
    assert result.fault is None, result.message
    statuses = [each.status for each in result.results]
    assert statuses == [Status.OK, Status.WRONG, Status.TIMEOUT, Status.OK]
    assert 3 <= len(result.results[0].samples_ns) <= 4
    assert result.sandbox.startswith("denials+landlock")
    assert result.emulated == adapters.find_adapter().is_emulated


def test_a_module_that_does_not_compile_rejects_its_candidate_alone(here):
    result = _measure(here, BROKEN, RIGHT)
    assert [each.status for each in result.results] == [Status.REJECTED, Status.OK]
    assert "cannot compile the module" in result.results[0].message


@pytest.mark.slow
def test_kernels_are_tuned_and_what_is_emulated_is_not_kept():
    webgpu.device()
    records, warnings = MemoryRecords(), []

    def listen(event):
        warnings.append(event.message if isinstance(event, Warned) else "")

    options = CompileOptions(target="webgpu", trials=4)
    artifact = compile_model(SMALL, options, records=records, listener=listen)
    measured = [record for record in records if record.samples_ns]
    assert {record.made_by for record in measured} <= parse_target("webgpu").backend.rules
    assert len({record.decisions for record in measured}) > 1
    assert artifact.report["verification"]["max_error"] < 1e-5
    is_emulated = adapters.find_adapter().is_emulated
    assert artifact.report["verification"]["emulated"] == is_emulated
    assert any("is emulated" in each for each in warnings) == is_emulated


def test_arguments_in_one_buffer_are_bound_side_by_side():
    gpu = webgpu.device()
    whole, other = gpu.allocate(4096, 0), gpu.allocate(512, 1)
    places = [(whole, 1024), (other, 0), (whole, 0), (whole, 2048)]
    assert [end_of(*place, places) for place in places] == [2048, 512, 1024, 4096]


def test_a_gpu_with_a_name_has_figures_and_a_source():
    for name, figures in FIGURES.items():
        target = parse_target(name)
        assert target.backend.peaks(target, 1).operations == figures.operations > 1e10
        assert figures.source
        assert figures_of(f"{target.cpu} (RADV)") == figures
    assert parse_target("webgpu:videocore7").host == parse_target("rpi5")
    assert figures_of("llvmpipe") is None


def test_what_another_gpu_measures_says_nothing_of_a_named_one(monkeypatch):
    webgpu.device()
    target = parse_target("webgpu:rtx-3090")
    why = target.backend.why_not_measured_here(target)
    if adapters.find_adapter().model.startswith(target.cpu):
        assert why == ""
        return
    adapter = adapters.find_adapter()
    software = f"this machine has no GPU, only {adapter.name}, which is software"
    another = f"the GPU of this machine is {adapter.name}"
    assert why == (software if adapter.is_emulated else another)
    with pytest.raises(UsageError, match=re.escape(why)) as error:
        compile_model(SMALL, CompileOptions(target="webgpu:rtx-3090", trials=1))
    assert "--no-verify" in error.value.hint


def test_a_cost_model_sees_the_figures_of_a_gpu_under_names_of_their_own():
    task = kernels.kernel(next(iter(kernels.REGIONS)))
    of = {name: parse_target(name) for name in ("webgpu", "webgpu:m1", "webgpu:rtx-3090")}
    spaces = {name: target.backend.space(task, target, 1) for name, target in of.items()}
    about = {name: space.about for name, space in spaces.items()}
    assert about["webgpu:m1"]["machine.gpu.units"] == math.log2(1 + 8)
    slow, fast = (about[name]["machine.gpu.bandwidth"] for name in ("webgpu:m1", "webgpu:rtx-3090"))
    assert slow < fast
    assert all(name.startswith(("task.", "machine.gpu.")) for name in about["webgpu"])
    assert about["webgpu"]["task.operations"] > 0


def test_arguments_in_one_place_share_a_binding():
    """A launch reads a value twice, for one as it is and for one as a view of it."""
    gpu = webgpu.device()
    texts = [
        f"@group(0) @binding({n}) var<storage, read_write> {name}: array<f32>;\n"
        for n, name in enumerate("xvy")
    ]
    gpu.load_modules(
        {"sum": "".join(texts) + DOUBLE.format("sum") + "{ y[g.x] = x[g.x] - 3.0 * v[g.x]; }"}
    )
    there, result = gpu.allocate(256, 0), gpu.allocate(256, 1)
    gpu.send(memoryview(np.arange(64, dtype=np.float32)).cast("B"), there, 0)
    for view, expected in (((there, 0), -2.0), ((gpu.allocate(256, 2), 0), 1.0)):
        gpu.launch(gpu.bind(Launch("sum", None, (1,), (64,)), [(there, 0), view, (result, 0)]))
        values = np.frombuffer(gpu.copy_out(result, 256), np.float32)
        np.testing.assert_array_equal(values, expected * np.arange(64, dtype=np.float32))
