"""Measure in the simulator, which any machine has: kernels by cycles, models by results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farrier.targets.dae.device import LIBRARY, SPACE, SimulatedDevice
from farrier_device.devices.device import AnyDevice, Code
from farrier_device.devices.driving import DrivingHost
from farrier_device.devices.host import HostDevice
from farrier_device.library_form import HOST_CODE
from farrier_device.runners.in_process import InProcessRunner


class _Simulator:
    """The device that the code of a batch needs: the accelerator, or a host that drives it."""

    def __init__(self) -> None:
        self.accelerator = SimulatedDevice()
        self._device: AnyDevice = self.accelerator

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        kinds = {each.kind for each, _ in code}
        if kinds == {LIBRARY}:
            self._device = DrivingHost(SPACE, self.accelerator)
        elif kinds == {HOST_CODE}:
            self._device = HostDevice()
        else:
            self._device = self.accelerator
        self._device.load(code, threads, pin)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


class SimulatorRunner(InProcessRunner):
    """Implements `farrier.measure.Runner`. The code of hosts runs in this process, too."""

    def __init__(self) -> None:
        super().__init__(_Simulator)

    def name_of(self, device: Any) -> str:
        return str(device.accelerator.name)

    def is_emulated(self, device: AnyDevice) -> bool:
        return True
