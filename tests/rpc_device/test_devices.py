"""Devices: the host, and one with a memory space and a queue of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from farrier_device import comparison, devices
from farrier_device.devices.device import DeviceError
from farrier_device.devices.host import HostDevice
from farrier_device.measurement import (
    Blame,
    Candidate,
    CodeObject,
    DeviceFault,
    Launch,
    MeasureRequest,
    Status,
    TimingPolicy,
)
from farrier_device.native import Library
from farrier_device.runners.local import ChildRunner
from tests.rpc_device.device_contract import DeviceContract

sys.path.insert(0, str(Path(__file__).with_name("strange")))
import queue_device


class TestHost(DeviceContract):
    kind = "elf"

    def new(self):
        return HostDevice()

    @pytest.fixture
    def code(self, library):
        return library

    def test_a_grid_is_refused(self, device):
        with pytest.raises(DeviceError, match="right has a grid"):
            device.bind(Launch("right", grid=(2, 1, 1)), [])


class TestQueue(DeviceContract):
    kind = queue_device.KIND

    def new(self):
        return queue_device.QueueDevice()

    @pytest.fixture
    def code(self):
        return queue_device.CODE


class TestRunner:
    """Whole batches on the queue, in a sandboxed child."""

    @pytest.fixture
    def request_of(self, folder, doubling):
        def of(*symbols: str, kind: str = queue_device.KIND) -> MeasureRequest:
            host = doubling.candidate("")
            candidates = tuple(
                Candidate((Launch(symbol, ((0, 0), (1, 0)), grid=(1,)),), host.args)
                for symbol in symbols
            )
            code = CodeObject(folder.add(queue_device.CODE), kind)
            policy = TimingPolicy(min_repeats=3, max_repeats=4, min_time_s=0.0)
            return MeasureRequest((code,), candidates, policy)

        return of

    def test_a_batch(self, strange, monkeypatch, folder, request_of):
        strange("with_queue")
        kind = devices.DeviceKind("nobody:here", queue_device.PROFILE)
        monkeypatch.setitem(devices.KINDS, queue_device.KIND, kind)
        with ChildRunner() as runner:
            result = runner.measure(request_of("right", "wrong", "code_three", "no_such"), folder)
        assert [each.status for each in result.results] == [
            Status.OK,
            Status.WRONG,
            Status.CRASHED,
            Status.REJECTED,
        ], result
        assert 3 <= len(result.results[0].samples_ns) <= 4
        assert result.results[2].code == 3
        assert "seccomp+landlock" in result.sandbox

    def test_a_kind_that_is_not_here_is_for_another_device(self, runner, folder, request_of):
        result = runner.measure(request_of("right", kind="quantum"), folder)
        assert (result.fault, result.blame) == (DeviceFault.BROKEN, Blame.AGENT)
        assert "'quantum'" in result.message


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i8", "u16", "i32", "u64", "bool"])
def test_the_standard_library_compares_as_the_native_code(library, dtype):
    random = np.random.default_rng(5)
    numpy = np.dtype({"f": "f", "i": "i", "u": "u", "b": "u"}[dtype[0]] + str(_bytes(dtype)))
    top = 2 if dtype == "bool" else 100
    out, expected = (random.integers(0, top, 37).astype(numpy) for _ in range(2))
    expected[3] = top - 1
    for padding in (None, int(expected[3:4].view(f"u{numpy.itemsize}")[0])):
        if padding is not None and numpy.itemsize > 4:
            continue  # The native code's mark has 32 bits.
        with Library.from_bytes(library) as native:
            wanted = native.max_error(
                out.ctypes.data, expected.ctypes.data, out.nbytes, dtype, padding
            )
        views = [memoryview(each.tobytes()) for each in (out, expected)]
        assert comparison.max_error(*views, dtype, padding) == pytest.approx(wanted, rel=1e-12)


def _bytes(dtype: str) -> int:
    bits = int("".join(filter(str.isdigit, dtype)) or 8)
    return bits // 8


def test_dtypes_that_the_standard_library_does_not_read():
    with pytest.raises(ValueError, match="bf16"):
        comparison.max_error(memoryview(b"ab"), memoryview(b"ab"), "bf16")
