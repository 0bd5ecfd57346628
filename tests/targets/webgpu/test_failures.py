"""Errors of one sentence with a way out: missing drivers and limits, changed artifacts."""

from __future__ import annotations

import contextlib
import gc
import sys
import types
import zipfile

import numpy as np
import pytest

import farrier
from farrier.errors import ArtifactError, NoDeviceError, UsageError
from farrier.targets import parse_target
from farrier.targets.webgpu.runner import WebGpuRunner
from farrier_device import adapters
from farrier_device.devices import webgpu as devices_webgpu
from farrier_device.devices.device import DeviceError
from farrier_device.devices.webgpu import WebGpuDevice
from farrier_device.measurement import Launch, MeasureRequest
from farrier_device.webgpu_library import GPU
from tests.targets.webgpu import webgpu
from tests.targets.webgpu.test_measuring import RIGHT, SMALL


def _package(*natives):
    """The package, with these adapters as (name, type, backend)."""
    each = [
        types.SimpleNamespace(
            info={
                "device": name,
                "adapter_type": kind,
                "backend_type": backend,
                "description": "a driver",
            },
            features={"shader-f16", "texture-atomic"},
            limits={"max-buffer-size": 1 << 30, "max-texture-array-layers": 2},
        )
        for name, kind, backend in natives
    ]
    gpu = types.SimpleNamespace(enumerate_adapters_sync=lambda: each)
    return types.SimpleNamespace(gpu=gpu)


LLVMPIPE = ("llvmpipe", "CPU", "Vulkan")
RADEON = ("Radeon", "DiscreteGPU", "Vulkan")


def test_gpus_come_first_and_twins_have_names_that_differ(monkeypatch):
    package = _package(LLVMPIPE, RADEON, ("Radeon", "DiscreteGPU", "OpenGL"), RADEON)
    monkeypatch.setattr(adapters, "import_webgpu", lambda: package)
    there = adapters.find_adapters()
    assert [(each.name, each.model) for each in there] == [
        ("Radeon", "Radeon"),
        ("Radeon #2", "Radeon"),
        ("llvmpipe", "llvmpipe"),
    ]
    assert there[0].features == ("shader-f16",)
    assert there[0].limits == {"max-buffer-size": 1 << 30}
    assert adapters.find_adapter("Radeon #2") == there[1]
    with pytest.raises(adapters.NoAdapterError, match="no adapter 'Arc'; it has Radeon, Radeon #2"):
        adapters.find_adapter("Arc")


@pytest.mark.parametrize(
    ("library", "package"), [(None, "libvulkan1"), ("libvulkan.so.1", "mesa-vulkan-drivers")]
)
def test_a_missing_loader_or_driver_is_named_by_its_package(monkeypatch, library, package):
    monkeypatch.setattr(adapters, "_RENDER_NODES", ())
    monkeypatch.setattr(adapters.ctypes.util, "find_library", lambda name: library)
    with pytest.raises(adapters.NoAdapterError, match=package):
        adapters.open_adapter(_package(("llvmpipe", "CPU", "OpenGL")))


def test_only_software_where_a_gpu_is_named(monkeypatch):
    monkeypatch.setattr(adapters, "_RENDER_NODES", ())
    with pytest.raises(
        adapters.NoAdapterError, match=r"cannot use Radeon: .* only .* llvmpipe.* software"
    ):
        adapters.open_adapter(_package(LLVMPIPE), "Radeon")


def test_a_device_file_that_is_closed_to_the_user_is_named(tmp_path, monkeypatch):
    node = tmp_path / "renderD128"
    node.write_bytes(b"")
    monkeypatch.setattr(adapters, "_RENDER_NODES", (f"{tmp_path}/renderD*",))
    assert adapters.closed_files(adapters._RENDER_NODES) == []
    monkeypatch.setattr(adapters.os, "access", lambda path, mode: False)
    with pytest.raises(adapters.NoAdapterError, match=f"no permission to open {node}; .* group"):
        adapters.open_adapter(_package())


def test_without_the_package_nothing_is_measured(monkeypatch):
    monkeypatch.delenv(adapters.PACKAGE, raising=False)
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(NoDeviceError, match=r"farrier\[webgpu\]"):
        WebGpuRunner().measure(MeasureRequest((), ()), None)


def test_another_package_is_one_of_those_that_are_known(monkeypatch):
    monkeypatch.setenv(adapters.PACKAGE, "os")
    with pytest.raises(adapters.NoAdapterError, match="'os'; it must be one of wgpu, wgpudawn"):
        adapters.import_webgpu()


def test_a_driver_that_does_not_answer_is_an_error_of_one_sentence(monkeypatch):
    monkeypatch.setattr(adapters.python, "command_of", lambda main: [sys.executable, "-c", "1 / 0"])
    with pytest.raises(
        adapters.NoAdapterError, match="the GPU drivers of this machine do not answer"
    ):
        adapters.adapters_apart()


def test_a_feature_that_the_adapter_lacks_is_named():
    webgpu.device()
    backend = parse_target("webgpu").backend
    assert backend.why_not_here("webgpu", "any", ()) == ""
    reason = backend.why_not_here("webgpu", "any", ("shader-f128",))
    assert " has " in reason
    assert reason.endswith("the code needs shader-f128")


def test_a_limit_that_the_adapter_lacks_is_named(monkeypatch):
    limits = devices_webgpu.LIMITS | {"max-compute-workgroup-storage-size": 1 << 30}
    webgpu.device()
    monkeypatch.setattr(devices_webgpu, "LIMITS", limits)
    with pytest.raises(
        DeviceError, match=r"has the limit max-compute-workgroup-storage-size of \d+, .* needs"
    ):
        WebGpuDevice()


def test_memory_that_the_gpu_does_not_have_is_an_error_that_names_both():
    gpu = webgpu.device()
    with pytest.raises(MemoryError, match=f"{1 << 42} bytes on {gpu.name[:8]}"):
        gpu.allocate(1 << 42, 0)


def test_a_lost_device_is_an_error_that_names_it():
    webgpu.device()
    gpu = WebGpuDevice()
    gpu.load_modules({"right": RIGHT})
    places = [(gpu.allocate(256, number), 0) for number in range(2)]
    bound = gpu.bind(Launch("right", None, (1,), (64,)), places)
    gpu._device.destroy()
    with pytest.raises(DeviceError, match=f"{gpu.name[:8]}.* lost"):
        gpu.time([bound], 1, ())
    with pytest.raises(DeviceError, match="is lost"):
        gpu.allocate(64, 0)


def test_a_device_that_is_lost_between_runs_is_opened_anew_once(monkeypatch):
    webgpu.device()
    artifact = farrier.compile(SMALL, target="webgpu", verify=False)
    session = artifact.session()
    feed = {"x": np.ones((4, 24), np.float32)}
    (before,) = session.run(feed).values()
    before = before.copy()
    lost = session.code.device(GPU)
    lost._device.destroy()
    (after,) = session.run(feed).values()
    np.testing.assert_array_equal(after, before)
    assert session.code.device(GPU) is not lost
    # A second loss is an error.
    monkeypatch.setattr(session.code, "_reopened", lambda: (GPU, lost))
    session.code.device(GPU)._device.destroy()
    with pytest.raises(NoDeviceError, match="lost, and was lost again"):
        session.run(feed)


def test_the_error_of_a_lost_device_keeps_no_frame_in_a_cycle():
    """CPython crashes if its collector clears a view of memory before a frame that holds it."""
    webgpu.device()
    gpu = WebGpuDevice()
    memory = gpu.allocate(256, 0)
    gpu._device.destroy()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with contextlib.suppress(DeviceError):
            gpu.send(memoryview(bytearray(256)), memory, 0)
        with contextlib.suppress(DeviceError):
            gpu.allocate(64, 0)
        gc.collect()
        assert not [each for each in gc.garbage if isinstance(each, types.FrameType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def test_a_precision_without_instructions_is_refused():
    with pytest.raises(UsageError, match="precision bf16") as error:
        farrier.compile(SMALL, target="webgpu", precision="bf16")
    assert "--precision" in error.value.hint


@pytest.mark.parametrize("member", ["program.json", "code/"])
def test_a_program_or_a_module_that_was_changed_is_refused(tmp_path, member):
    webgpu.device()
    path = farrier.compile(SMALL, target="webgpu", verify=False).save(tmp_path / "a.farrier")
    changed = tmp_path / "b.farrier"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as target:
        for info in source.infolist():
            content = source.read(info)
            if info.filename.startswith(member):
                content = content.replace(b"0", b"1")
            target.writestr(info, content)
    with pytest.raises(ArtifactError) as error:
        farrier.load(changed).session()
    assert error.value.hint
