"""The runner that measures on the simulator, on any machine: kernels in simulated cycles, models by
the sum of host time and simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farrier.targets.dae.device import LIBRARY, SPACE, SimulatedDevice
from farrier_device.devices.device import AnyDevice, Code, DeviceError, Ticks
from farrier_device.devices.driving import DrivingHost
from farrier_device.devices.host import HostDevice
from farrier_device.library_form import HOST_CODE
from farrier_device.runners.in_process import InProcessRunner


class _SimulatedHost(DrivingHost[SimulatedDevice]):
    """A host that drives the simulator. The time of a model is the wall-clock time of its calls on
    the host plus the cycles of its launches; copies count as 0. A model runs once, because its
    simulated part takes the same time in each run."""

    def time(self, steps: Any, repeats: int, cold: Any) -> Ticks:
        if steps[0].part is not None:
            return [ticks * repeats for ticks in super().time(steps, 1, cold)]
        return [[_model_ns(step)] * repeats for step in steps]


def simulated_host() -> DrivingHost[SimulatedDevice]:
    """Return a new simulator together with this machine as its host."""
    return _SimulatedHost(SPACE, SimulatedDevice())


def _model_ns(step: Any) -> int:
    """Run a model's driver program once, and return the total nanoseconds of its calls and
    launches. Raises DeviceError."""
    code, times = step.interpreter.run_timed(step.memories, step.sizes)
    if code:
        raise DeviceError(f"returned code {code}")
    return sum(map(sum, times))


class _Simulator:
    """The device that measures a batch. It depends on the kind of the batch's code: the simulated
    accelerator alone, a host that drives the simulated accelerator, or the host alone."""

    def __init__(self) -> None:
        self.accelerator = SimulatedDevice()
        self._device: AnyDevice = self.accelerator

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        kinds = {each.kind for each, _ in code}
        if kinds == {LIBRARY}:
            self._device = _SimulatedHost(SPACE, self.accelerator)
        elif kinds == {HOST_CODE}:
            self._device = HostDevice()
        else:
            self._device = self.accelerator
        self._device.load(code, threads, pin)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


class SimulatorRunner(InProcessRunner):
    """The implementation of `farrier.measure.Runner` for the simulator. Code for the host runs in
    this process."""

    def __init__(self) -> None:
        super().__init__(_Simulator)

    def name_of(self, device: Any) -> str:
        return "simulator"
