"""Every backend keeps the contract of backends."""

from __future__ import annotations

import pytest

from bench.boards import bare
from farrier.testing import BackendContract


class TestX86(BackendContract):
    module = "farrier.targets.x86"
    machine = "x86-64-v3"


class TestArm(BackendContract):
    module = "farrier.targets.arm"
    machine = "rpi5"


class TestRiscv(BackendContract):
    module = "farrier.targets.riscv"
    machine = "rv64gc"

    def run(self, artifact, inputs, threads):
        if lacks := bare.missing("riscv64"):
            pytest.skip(lacks)
        return bare.run(artifact, inputs, threads)


class TestWebGpu(BackendContract):
    module = "farrier.targets.webgpu"
    machine = "webgpu"


class TestCuda(BackendContract):
    module = "farrier.targets.cuda"
    machine = "cuda:sm_80"


class TestBare(BackendContract):
    module = "farrier.targets.bare"
    machine = "mps2-an386"


class TestDae(BackendContract):
    module = "farrier.targets.dae"
    machine = "dae:small"

    @property
    def rules(self):
        """Kernels of floats run on the host."""
        return self.backend.rules | self.target.host.backend.rules
