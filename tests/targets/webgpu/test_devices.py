"""The guarantees of devices, for a GPU and for a host that drives one."""

from __future__ import annotations

import base64
import functools
import json

import pytest

from farrier_device.devices.driving import DrivingHost
from farrier_device.devices.webgpu import WebGpuDevice
from farrier_device.program import (
    Allocate,
    Call,
    Copy,
    Launch,
    Memory,
    Place,
    Program,
    Wait,
    program_to_json,
)
from farrier_device.webgpu_library import GPU, LIBRARY, WGSL
from tests.rpc_device.device_contract import NBYTES, DeviceContract
from tests.rpc_device.doubling import COUNT, linked_kernels
from tests.targets.webgpu import webgpu

DOUBLE = f"""
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1) fn right() {{
  for (var i = 0; i < {COUNT}; i++) {{ y[i] = 2.0 * x[i]; }}
}}
"""
X, Y, A, B = Place("x"), Place("y"), Place("a", 0, GPU), Place("b", 0, GPU)
_STEPS = {
    "right": (
        Allocate("a", GPU, NBYTES),
        Allocate("b", GPU, NBYTES),
        Copy(X, A, NBYTES),
        Launch("right", GPU, (A, B), grid=(1,), block=(1,)),
        Copy(B, Y, NBYTES),
        Wait(GPU),
    ),
    "code_three": (Call("code_three", (X, Y)),),
}


_host = functools.cache(linked_kernels)


class TestGpu(DeviceContract):
    kind = WGSL
    alignment = 256
    has_codes = False

    def new(self):
        webgpu.device()
        return WebGpuDevice()

    @pytest.fixture
    def code(self):
        return DOUBLE.encode()


class TestDrivingHost(DeviceContract):
    kind = LIBRARY

    def new(self):
        webgpu.device()
        return DrivingHost(GPU, WebGpuDevice())

    @pytest.fixture
    def code(self):
        memories = (Memory("x", NBYTES), Memory("y", NBYTES))
        programs = {
            name: json.loads(program_to_json(Program(memories, (), (), {}, (), steps)))
            for name, steps in _STEPS.items()
        }
        host = base64.b64encode(_host()).decode()
        library = {"kernels": {"right": DOUBLE}, "host": host, "programs": programs}
        return json.dumps(library).encode()
