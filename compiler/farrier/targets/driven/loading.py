"""The loader of models for a device and its host into this process."""

from __future__ import annotations

from collections.abc import Callable

from farrier.artifact.code import CodeObject, ModelCode
from farrier.errors import ArtifactError
from farrier.targets.driven.entry import DrivenEntry
from farrier.targets.driven.part import DrivenPart, HostPart
from farrier.targets.names import why_not_here
from farrier_device.devices.device import AnyDevice, DeviceError
from farrier_device.devices.host import HostDevice
from farrier_device.library_form import HOST_CODE
from farrier_device.program import HOST


def load(
    code: ModelCode,
    threads: int,
    space: str,
    open_device: Callable[[ModelCode], tuple[AnyDevice, str]],
) -> DrivenEntry:
    """Load the model's kernels on the host and on the device in the memory space `space`;
    `open_device` opens the device with its kernels. Raises ArtifactError."""
    part = DrivenPart.of_json(code.backend)
    if code.program is None:
        raise ArtifactError("the artifact has no program for its kernels: it is damaged")
    devices: dict[str, AnyDevice] = {}
    try:
        for library in code.objects:
            if library.kind == HOST_CODE:
                devices[HOST] = _host(library, part.host, threads)
        devices[space], name = open_device(code)
    except DeviceError as error:
        for device in devices.values():
            device.close()
        raise ArtifactError(str(error)) from None

    def reopened() -> tuple[str, AnyDevice]:
        return space, open_device(code)[0]

    return DrivenEntry(code.program, devices, part.workspace, name, reopened)


def _host(library: CodeObject, part: HostPart | None, threads: int) -> HostDevice:
    """Return the host device with the host's kernels loaded. Raises ArtifactError if this machine
    cannot run them."""
    if part is None:
        raise ArtifactError("the artifact does not tell for which host it is: it is damaged")
    if why := why_not_here(part.arch, part.cpu, part.features):
        raise ArtifactError(
            f"some of its kernels run on the host, {part.cpu} ({part.arch}); {why}",
            hint="compile it here, or for a host like this one: --target host+DEVICE",
        )
    host = HostDevice()
    host.load_library(library.content, threads)
    return host
