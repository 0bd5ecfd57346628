"""The kinds of devices, each with the kind of code object that it loads and a sandbox profile.

To add a kind, add a file with its device and a line here, or a simulator in another package
(`farrier_device.simulators`). Only the child that measures imports the module of a device.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable

from farrier_device import cuda_library, simulators, webgpu_library
from farrier_device.devices.device import AnyDevice
from farrier_device.library_form import HOST_CODE
from farrier_device.measurement import MeasureRequest
from farrier_device.profiles import CUDA, HOST, SIMULATOR, WEBGPU, Profile


class UnknownKindError(Exception):
    """A request contains code of a kind that no device here loads."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceKind:
    """A kind of device. `device` is the function that opens a device, as `module:name`; the
    function takes no arguments, or the name of one of several devices of this machine. `profile` is
    the profile of the sandbox in which the device runs."""

    device: str
    profile: Profile = HOST

    def opener(self, name: str = "") -> Callable[[], AnyDevice]:
        """Return a function that opens the device with the given name, by default the first device;
        the function may raise DeviceError. The device's module is imported now, because the sandbox
        will keep its file from being read. The exception is a driver that is a Python package: its
        import may start threads, which would stay outside of the sandbox."""
        if self.profile.is_package:
            return lambda: self._loaded(name)()
        return self._loaded(name)

    def _loaded(self, name: str) -> Callable[[], AnyDevice]:
        module, _, kind = self.device.partition(":")
        opener: Callable[..., AnyDevice] = getattr(importlib.import_module(module), kind)
        return functools.partial(opener, name) if name else opener


KINDS = {
    HOST_CODE: DeviceKind("farrier_device.devices.host:HostDevice"),
    webgpu_library.WGSL: DeviceKind("farrier_device.devices.webgpu:WebGpuDevice", WEBGPU),
    webgpu_library.LIBRARY: DeviceKind("farrier_device.devices.webgpu:driving_host", WEBGPU),
    cuda_library.PTX: DeviceKind("farrier_device.devices.cuda:CudaDevice", CUDA),
    cuda_library.LIBRARY: DeviceKind("farrier_device.devices.cuda:driving_host", CUDA),
}
_OF_ARCH = {cuda_library.ARCH: cuda_library.PTX}


def kind_named(kind: str) -> DeviceKind:
    """Return the kind of device that loads a kind of code. Raises UnknownKindError."""
    if kind in KINDS:
        return KINDS[kind]
    for simulator in simulators.installed().values():
        if kind in simulator.kinds:
            return DeviceKind(simulator.kinds[kind], SIMULATOR)
    raise UnknownKindError(f"this machine has no device that runs code of the kind {kind!r}")


def code_of(arch: str) -> str:
    """Return the kind of code that a GPU with this architecture runs."""
    return _OF_ARCH.get(arch, webgpu_library.WGSL)


def kinds_with(kind: str) -> frozenset[str]:
    """Return the kinds of code that a runner for code of this kind can measure: all kinds of the
    same driver or simulator, and the host's."""
    host = {each for each, of in KINDS.items() if of.profile is HOST}
    if kind in KINDS:
        profile = KINDS[kind].profile
        return frozenset({*host, *(each for each, of in KINDS.items() if of.profile is profile)})
    for simulator in simulators.installed().values():
        if kind in simulator.kinds:
            return frozenset({*host, *simulator.kinds})
    raise UnknownKindError(f"this machine has no device that runs code of the kind {kind!r}")


def kind_of(request: MeasureRequest) -> str:
    """Return the kind of a request's code objects. Raises UnknownKindError if this version has no
    device for the kind, or if the code objects are of different kinds."""
    kinds = sorted({code.kind for code in request.code})
    if len(kinds) != 1:
        raise UnknownKindError(f"a request must have code of one kind, but has {kinds}")
    [kind] = kinds
    kind_named(kind)
    return kind
