"""The errors of a driver, a GPU or a kernel that does not work, in one sentence each."""

from __future__ import annotations

import numpy as np
import pytest

import farrier
from farrier.errors import NoDeviceError
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.architectures import ARCHITECTURES
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier_device.adapters import NoAdapterError
from farrier_device.devices import libcuda as driver
from farrier_device.devices.cuda import CudaDevice, why_not_on
from farrier_device.devices.device import DeviceError
from farrier_device.measurement import Launch
from farrier_device.nvidia import find_gpus
from tests.ir.kernels import KERNELS
from tests.targets.cuda.libcuda import ILLEGAL_ADDRESS, Library
from tests.targets.cuda.ptx import PtxError
from tests.targets.cuda.test_models import LAYERS_OF_FOUR


def _reverse(cpu="sm_80"):
    return ptx_of(render(lower_threads(KERNELS["reverse"][0]), cpu), cpu)


def _run(text, nbytes=64, offset=0, initialized=1):
    gpu = CudaDevice(library=Library())
    gpu.load_modules({"reverse": text})
    places = [(gpu.allocate(nbytes, position), offset) for position in range(2)]
    for memory, _ in places[:initialized]:
        gpu.clear(memory, nbytes)
    gpu.launch(gpu.bind(Launch("reverse_0", None, (4,), (4,)), places))
    assert gpu.synchronize() == 0


def test_no_driver(monkeypatch):
    monkeypatch.setattr(driver, "_LIBRARY", "libcuda-that-is-nowhere.so.1")
    with pytest.raises(DeviceError, match="is missing: NVIDIA's driver is not installed"):
        CudaDevice()
    assert "is missing" in why_not_on("sm_80")


def test_no_gpu():
    with pytest.raises(DeviceError, match="finds no GPU on this machine"):
        CudaDevice(library=Library(devices=0))


def test_a_gpu_that_the_driver_does_not_describe(monkeypatch):
    library = Library()
    monkeypatch.setattr(library, "cuDeviceTotalMem_v2", lambda *arguments: ILLEGAL_ADDRESS)
    with pytest.raises(NoAdapterError, match="does not describe its GPUs: cuDeviceTotalMem_v2"):
        find_gpus(library)


def test_code_for_a_later_architecture():
    gpu = CudaDevice(library=Library(capability=(7, 5)))
    with pytest.raises(DeviceError, match="need sm_80 or later, but Emulated is sm_75"):
        gpu.load_modules({"reverse": _reverse()})
    assert "sm_120 or later" in why_not_on("sm_120", Library())
    assert why_not_on("sm_75", Library()) == ""


def test_code_for_one_compute_capability():
    text = _reverse("sm_90a")
    CudaDevice(library=Library(capability=(9, 0))).load_modules({"reverse": text})
    for capability, name in (((8, 0), "sm_80"), ((10, 0), "sm_100")):
        library = Library(capability=capability)
        why = rf"need compute capability 9\.0 \(sm_90a\), but Emulated is {name}"
        with pytest.raises(DeviceError, match=why):
            CudaDevice(library=library).load_modules({"reverse": text})
        assert "need compute capability 9.0 (sm_90a)" in why_not_on("sm_90a", library)


@pytest.mark.parametrize("cpu", ARCHITECTURES)
def test_a_driver_that_is_older_than_the_ptx(cpu):
    text = _reverse(cpu)
    capability = (9, 0) if cpu == "sm_90a" else (12, 0)
    CudaDevice(library=Library(capability=capability)).load_modules({"reverse": text})
    gpu = CudaDevice(library=Library(capability=capability, cuda=10010))
    with pytest.raises(DeviceError, match=r"supports CUDA 10\.1, but PTX \d\.\d needs .* CUDA \d+"):
        gpu.load_modules({"reverse": text})


def test_memory_that_does_not_suffice():
    gpu = CudaDevice(library=Library(free_bytes=1000))
    held = gpu.allocate(600, 0)
    with pytest.raises(
        MemoryError, match="500 bytes are needed on Emulated, but only 400 are free"
    ):
        gpu.allocate(500, 0)
    del held
    assert gpu.allocate(500, 0)


def test_a_kernel_that_fails_is_named_and_ends_the_session(library):
    artifact = farrier.compile(LAYERS_OF_FOUR, target="cuda:sm_80", verify=False)
    feed = {"x": np.ones((4, 24), np.float32)}
    session = artifact.session()
    session.run(feed)
    library.fail(ILLEGAL_ADDRESS)
    for _ in range(2):
        with pytest.raises(NoDeviceError) as error:
            session.run(feed)
        assert "CUDA_ERROR_ILLEGAL_ADDRESS, after matmul" in error.value.message
        assert "start the process again" in error.value.hint
    session.close()


def test_a_graph_that_loses_the_context_is_named(library, monkeypatch):
    session = farrier.compile(LAYERS_OF_FOUR, target="cuda:sm_80", verify=False).session()
    feed = {"x": np.ones((4, 24), np.float32)}
    for _ in range(3):
        session.run(feed)
    monkeypatch.setattr(library, "cuGraphLaunch", lambda *arguments: ILLEGAL_ADDRESS)
    with pytest.raises(NoDeviceError, match="ILLEGAL_ADDRESS, after matmul") as error:
        session.run(feed)
    assert "start the process again" in error.value.hint


def test_a_launch_that_the_driver_would_misread():
    gpu = CudaDevice(library=Library())
    gpu.load_modules({"reverse": _reverse()})
    place = gpu.allocate(64, 0), 0
    with pytest.raises(DeviceError, match="reverse_0 takes 2 arguments, not 1"):
        gpu.bind(Launch("reverse_0", None, (4,), (4,)), [place])
    with pytest.raises(
        MemoryError, match="reverse_0 needs 4294967296 blocks, but a launch has at most"
    ):
        gpu.bind(Launch("reverse_0", None, (1 << 16, 1 << 16), (4,)), [place, place])


def test_an_event_that_fails_is_an_error_of_the_device(monkeypatch):
    library = Library()
    gpu = CudaDevice(library=library)
    monkeypatch.setattr(library, "cuEventCreate", lambda *arguments: 2)
    with pytest.raises(DeviceError, match="cuEventCreate returned CUDA_ERROR_OUT_OF_MEMORY"):
        gpu.time([], 1, ())


def test_the_emulator_names_what_is_wrong():
    text = _reverse()
    _run(text)
    with pytest.raises(PtxError, match=r"outside of the \d+ bytes of its array: ld.global"):
        _run(text, nbytes=16)
    with pytest.raises(PtxError, match="depends on memory that nobody has written"):
        _run(text.replace("st.shared", "// st.shared"))
    with pytest.raises(PtxError, match=r"depends on memory that nobody has written: st\.global"):
        _run(text, initialized=0)
    with pytest.raises(PtxError, match=r"race, with no barrier after .st\.shared.*ld\.shared"):
        _run(text.replace("bar.sync", "// bar.sync"))
    with pytest.raises(PtxError, match=r"race, with no barrier after .st\.global.*st\.global"):
        _run(text.replace("%ctaid.x", "0"))
    with pytest.raises(PtxError, match="does not have: frobnicate"):
        _run(text.replace("bar.sync", "frobnicate.b32"))
    with pytest.raises(PtxError, match="no multiple of 4"):
        _run(text, offset=2)
