"""The kinds of devices, each with the kind of code object that it loads and a sandbox's profile.

A new kind is a file with its device, and a line here. The module of a device is imported by the
child that measures, and by nobody else.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable

from farrier_device import cuda_library, webgpu_library
from farrier_device.devices.device import AnyDevice
from farrier_device.library_form import HOST_CODE
from farrier_device.measurement import MeasureRequest
from farrier_device.profiles import CUDA, HOST, WEBGPU, Profile


class UnknownKindError(Exception):
    """A request has code that no device here loads."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceKind:
    """`device` names what opens one, as `module:name`; it takes no arguments, or the name of one of
    several devices of this machine. `profile` is that of the sandbox in which it runs."""

    device: str
    profile: Profile = HOST

    def opener(self, name: str = "") -> Callable[[], AnyDevice]:
        """Import what opens the device of a name, by default the first one; it may
        raise DeviceError."""
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


def code_of(arch: str) -> str:
    """Return the kind of code that a GPU of an architecture runs."""
    return _OF_ARCH.get(arch, webgpu_library.WGSL)


def kinds_with(kind: str) -> frozenset[str]:
    """Return the kinds of code that a runner for one kind measures: those of one driver, and of the
    host."""
    profile = KINDS[kind].profile
    return frozenset(each for each, of in KINDS.items() if of.profile in (profile, HOST))


def kind_of(request: MeasureRequest) -> str:
    """Return the kind of the code objects of a request. Raises UnknownKindError if this version
    has no device for them, or if they are not all of one kind."""
    kinds = sorted({code.kind for code in request.code})
    if len(kinds) != 1:
        raise UnknownKindError(f"a request has code of the kinds {kinds}, and one kind is wanted")
    [kind] = kinds
    if kind not in KINDS:
        raise UnknownKindError(f"there is no device here for code of the kind {kind!r}")
    return kind
