"""Kernels and models that are measured on a GPU of NVIDIA, in a sandboxed child. The driver is
emulated, so its times are marked as such, and nothing learns from them."""

from __future__ import annotations

import pytest

from farrier.errors import NoDeviceError
from farrier.measure.local import LocalDevice
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.progress import Warned
from farrier.records import MemoryRecords
from farrier.targets import parse_target, to_text
from farrier.targets.cuda.runner import CudaRunner
from farrier_device import adapters, agent, devices, nvidia
from farrier_device.cuda_library import ARCH, LIBRARY, PTX
from farrier_device.describe import MachineDescription
from farrier_device.devices import libcuda
from farrier_device.library_form import HOST_CODE
from farrier_device.loop import describe_device
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
from farrier_device.nvml import Nvml, NvmlError
from farrier_device.runners.local import ChildRunner
from farrier_farm.devices.classes import DeviceClass
from tests.targets.cuda import driver
from tests.targets.cuda.libcuda import Library
from tests.targets.cuda.test_models import LAYERS_OF_FOUR as SMALL

HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n"
DOUBLE = """
.visible .entry {name}(.param .u64 {name}_x, .param .u64 {name}_y)
{{
	.reg .b64 %rd<8>;
	.reg .b32 %r<8>;
	ld.param.b64 %rd1, [{name}_x];
	ld.param.b64 %rd2, [{name}_y];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, {step};
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	ld.global.b32 %r2, [%rd4];
	mul.rn.f32 %r3, %r2, {factor};
$again_{name}:
	st.global.b32 [%rd5], %r3;
	{loop}
	ret;
}}
"""
TWO, THREE = "0f40000000", "0f40400000"
RIGHT = HEAD + DOUBLE.format(name="right", step=4, factor=TWO, loop="")
WRONG = HEAD + DOUBLE.format(name="wrong", step=4, factor=THREE, loop="")
FAULTY = HEAD + DOUBLE.format(name="faulty", step=4096, factor=TWO, loop="")
HANGS = HEAD + DOUBLE.format(name="hangs", step=4, factor=TWO, loop="bra.uni $again_hangs;")
LATER = RIGHT.replace("right", "later").replace("sm_80", "sm_90")
NAMES = {RIGHT: "right", WRONG: "wrong", FAULTY: "faulty", HANGS: "hangs", LATER: "later"}
QUICK = TimingPolicy(min_repeats=3, max_repeats=4, min_time_s=0.0, timeout_s=0.3)


@pytest.fixture
def here(tmp_path, monkeypatch):
    driver.install(tmp_path, monkeypatch)
    with LocalDevice(CudaRunner()) as local:
        yield local


def _measure(here, *texts):
    """Measure entry points of modules on 64 elements, in order."""
    ones, twos = (bytes.fromhex(word) * 64 for word in ("0000803f", "00000040"))
    args = (
        Argument(Role.INPUT, 256, blob=here.blobs.put(ones)),
        Argument(Role.OUTPUT, 256, expected=here.blobs.put(twos)),
    )
    candidates = tuple(Candidate((Launch(NAMES[text], None, (1,), (64,)),), args) for text in texts)
    code = tuple(CodeObject(here.blobs.put(text.encode()), PTX) for text in dict.fromkeys(texts))
    return here.runner.measure(MeasureRequest(code, candidates, QUICK), here.blobs)


def test_kernels_are_measured_and_a_faulty_and_a_hung_one_harm_no_other(here):
    """A kernel that fails takes the context of its process; the next one has a fresh process."""
    result = _measure(here, RIGHT, WRONG, FAULTY, RIGHT, HANGS, RIGHT)
    assert result.fault is None, result.message
    statuses = [each.status for each in result.results]
    assert statuses == [
        *(Status.OK, Status.WRONG, Status.CRASHED, Status.OK, Status.TIMEOUT, Status.OK)
    ]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS, after faulty was launched" in result.results[2].message
    assert 3 <= len(result.results[0].samples_ns) <= 4
    assert result.sandbox.startswith("denials+landlock")
    assert result.emulated
    assert result.device == "cuda:Emulated"


def test_code_for_a_later_architecture_is_rejected(here):
    result = _measure(here, LATER)
    assert [each.status for each in result.results] == [Status.REJECTED]
    assert "need sm_90 or later, but Emulated is sm_80" in result.results[0].message


@pytest.mark.slow
def test_kernels_are_tuned_and_what_is_emulated_is_not_kept(here):
    records, warnings = MemoryRecords(), []

    def listen(event):
        warnings.append(event.message if isinstance(event, Warned) else "")

    options = CompileOptions(target="cuda:sm_80", trials=2)
    artifact = compile_model(SMALL, options, records=records, listener=listen)
    assert len({record.decisions for record in records if record.samples_ns}) > 1
    assert artifact.report["verification"]["emulated"]
    assert any("is emulated" in each for each in warnings)


def test_without_a_driver_the_error_has_a_way_out(monkeypatch):
    monkeypatch.setattr(libcuda, "_LIBRARY", "libcuda-that-is-nowhere.so.1")
    with LocalDevice(CudaRunner()) as local:
        with pytest.raises(NoDeviceError, match="NVIDIA's driver is not installed") as error:
            _measure(local, RIGHT)
        assert "farrier-device --adapter" in error.value.hint


def test_gpus_are_adapters_that_an_agent_offers(here):
    (gpu,) = [each for each in adapters.adapters_apart() if each.arch == ARCH]
    assert gpu == nvidia.find_gpu()
    assert (gpu.name, gpu.driver) == ("cuda:Emulated", "CUDA 12.8")
    assert gpu.features == ("sm_75", "sm_80")
    assert gpu.is_emulated
    assert devices.code_of(gpu.arch) == PTX
    assert devices.kinds_with(PTX) == {HOST_CODE, PTX, LIBRARY}
    description = gpu.machine()
    target = parse_target(to_text(description))
    assert (target.cpu, target.architecture) == ("Emulated", "sm_80")
    with pytest.raises(adapters.NoAdapterError, match="cannot use cuda:H100"):
        nvidia.find_gpu("cuda:H100")


def test_an_agent_measures_with_the_gpu_of_a_name(here):
    others, measuring = agent._adapters("cuda:Emulated")
    kind = devices.code_of(measuring.arch)
    with ChildRunner(adapter=measuring.name, code=kind, emulated=True, pin=False) as runner:
        said = describe_device("0", runner, "", {}, others, measuring)
    assert (said.arch, said.cpu, said.emulated) == (ARCH, "Emulated", True)
    assert list(said.kinds) == sorted({HOST_CODE, PTX, LIBRARY})
    assert said.sandbox.startswith("denials+landlock")
    assert "cuda:Emulated" in [each.name for each in said.adapters]
    machine = MachineDescription(
        *(said.arch, said.cpu, tuple(said.features), said.cores),
        *(said.l1_bytes, said.l2_bytes, said.l3_bytes, said.memory_bytes, said.emulated),
        host=said.host,
    )
    assert DeviceClass.of(machine).id.startswith("emulated-4c-")


def test_what_another_gpu_measures_says_nothing_of_a_named_one(library):
    backend = parse_target("cuda:a100").backend
    why = backend.why_not_measured_here(parse_target("cuda:a100"))
    assert why == "the GPU of this machine is Emulated"
    assert backend.why_not_measured_here(parse_target("cuda:sm_80")) == ""


class _Nvml:
    """NVML's functions, of a GPU that is hot; a call of `refuses` fails."""

    def __init__(self, *refuses):
        self.calls, self._refuses = [], refuses

    def __getattr__(self, name):
        figures = {
            "nvmlDeviceGetTemperature": 88,
            "nvmlDeviceGetTemperatureThreshold": 92,
            "nvmlDeviceGetClockInfo": 1200,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetDefaultApplicationsClock": 1590,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x41,
        }

        def call(*arguments):
            self.calls.append((name, arguments))
            if name in self._refuses:
                return 4  # NVML_ERROR_NO_PERMISSION
            if name in figures:
                arguments[-1]._obj.value = figures[name]
            return 0

        return call


def test_a_gpu_tells_how_hot_it_is_and_its_clocks_are_locked_where_that_is_permitted():
    library = _Nvml()
    gpu = Nvml("0000:01:00.0", library)
    health = gpu.look()
    assert (health.celsius, health.limit_celsius) == (88.0, 87.0)
    assert (health.clock_mhz, health.max_clock_mhz) == (1200, 1980)
    assert health.hot == "88 °C, limit 87 °C, hardware thermal slowdown"
    with gpu.locked_clocks() as clock:
        assert clock == 1590
    assert library.calls[-1][0] == "nvmlDeviceResetGpuLockedClocks"
    with Nvml("0000:01:00.0", _Nvml("nvmlDeviceSetGpuLockedClocks")).locked_clocks() as clock:
        assert clock is None
    with pytest.raises(NvmlError, match="returned code 4"):
        Nvml("0000:01:00.0", _Nvml("nvmlInit_v2"))


def test_the_table_of_signatures_has_each_function_that_the_emulator_has():
    """A function that is called without a signature would cut its addresses to 32 bits."""
    named = {name for name in dir(Library) if name.startswith("cu")}
    assert named == set(libcuda.SIGNATURES)
