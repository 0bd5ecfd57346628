"""The kinds of devices, each with the kind of code object that it loads and a sandbox's profile.

A new kind is a file with its device, and a line here, or a simulator of another package
(`farrier_device.simulators`). The module of a device is imported by the child that measures, and by
nobody else.
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
    """A request has code that no device here loads."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceKind:
    """A kind of device. `device` names the function that opens one, as `module:name`; it takes no
    arguments, or the name of one of several devices of this machine. `profile` is that of the
    sandbox in which it runs."""

    device: str
    profile: Profile = HOST

    def opener(self, name: str = "") -> Callable[[], AnyDevice]:
        """Return what opens the device of a name, by default the first one; it may raise
        DeviceError. Its module is imported before the walls are up, which keep it from being read,
        but for that of a package: it may start threads, and those would stay outside."""
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
    raise UnknownKindError(f"there is no device here for code of the kind {kind!r}")


def code_of(arch: str) -> str:
    """Return the kind of code that a GPU of an architecture runs."""
    return _OF_ARCH.get(arch, webgpu_library.WGSL)


def kinds_with(kind: str) -> frozenset[str]:
    """Return the kinds of code that a runner for one kind measures: those of one driver or
    simulator, and of the host."""
    host = {each for each, of in KINDS.items() if of.profile is HOST}
    if kind in KINDS:
        profile = KINDS[kind].profile
        return frozenset({*host, *(each for each, of in KINDS.items() if of.profile is profile)})
    for simulator in simulators.installed().values():
        if kind in simulator.kinds:
            return frozenset({*host, *simulator.kinds})
    raise UnknownKindError(f"there is no device here for code of the kind {kind!r}")


def kind_of(request: MeasureRequest) -> str:
    """Return the kind of the code objects of a request. Raises UnknownKindError if this version
    has no device for them, or if they are not all of one kind."""
    kinds = sorted({code.kind for code in request.code})
    if len(kinds) != 1:
        raise UnknownKindError(f"a request has code of the kinds {kinds}, and one kind is wanted")
    [kind] = kinds
    kind_named(kind)
    return kind
