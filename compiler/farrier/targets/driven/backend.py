"""The base class of backends for devices that a host drives: all code that does not depend on the
kind of device."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farrier.errors import UsageError
from farrier.targets.backend import Backend
from farrier.targets.driven.target import DrivenTarget
from farrier_device.library_form import HOST_CODE
from farrier_device.measurement import Launch
from farrier_device.program import HOST

if TYPE_CHECKING:
    from farrier.artifact.code import CodeObject, ModelCode
    from farrier.ir.loop import Function
    from farrier.partition.program import DriverProgram
    from farrier.targets.driven.package import Plan
    from farrier.targets.interface import Interface
    from farrier.targets.linked import LinkedModel
    from farrier.targets.running import Loaded
    from farrier.targets.target import Target
    from farrier_device.devices.device import AnyDevice


class DrivenBackend(Backend):
    """A backend for devices with a memory space of their own. An interpreter on the host runs the
    driver program of a model.

    A subclass provides the schedules of kernels for the device, their source text (`render`), and
    the opened device (`open`).
    """

    space_of_device: str
    kernel_kind: str  # The kind of a code object that is the text of a kernel.
    library_kind: str  # The kind of a library, which is measured.

    @abc.abstractmethod
    def render(self, function: Function, target: Target) -> str:
        """Return the source text of a lowered kernel for the device. Raises CompilerError."""

    @abc.abstractmethod
    def open(self, code: ModelCode) -> tuple[AnyDevice, str]:
        """Open the device and load a model's kernels; return the device and its name. Raises
        DeviceError."""

    # -- describing machines

    def driven_by(self, target: Target, host: Target) -> Target:
        """Return the device `target` with `host` as the machine that drives it. Raises UsageError
        if `host` is itself a device."""
        assert isinstance(target, DrivenTarget)
        if isinstance(host, DrivenTarget):
            raise UsageError(
                f"{host.cpu} is a device, and the host of {target.cpu} is a processor",
                hint="name the processor first, as in x86-64-v3+webgpu",
            )
        return dataclasses.replace(target, host=host)

    # -- where kernels run

    def parts(self, target: Target) -> Mapping[str, Target]:
        assert isinstance(target, DrivenTarget)
        return _parts(target, self.space_of_device)

    def enclosed(self, content: bytes, space: str) -> bytes:
        from farrier.targets.driven.objects import of_host

        return of_host(content) if space == HOST else content

    # -- running its code on this machine

    @property
    def code_kinds(self) -> frozenset[str]:
        return frozenset({self.kernel_kind, HOST_CODE})

    def threads(self, part: Mapping[str, Any]) -> tuple[int, int]:
        from farrier.targets.driven.part import DrivenPart

        driven = DrivenPart.of_json(part)
        return driven.threads, driven.max_threads

    def load(self, code: ModelCode, threads: int) -> Loaded:
        from farrier.targets.driven.loading import load

        return load(code, threads, self.space_of_device, self.open)

    # -- the steps of a compilation

    def compile(self, functions: Sequence[Function], target: Target) -> list[bytes]:
        from farrier.targets.driven.objects import written

        return [written({each.name: self.render(each, target) for each in functions}, {})]

    def plan(
        self,
        program: DriverProgram,
        kernels: Mapping[str, Interface],
        target: Target,
        threads: int,
        beside: Any = None,
    ) -> Plan:
        from farrier.targets.driven.package import plan

        return plan(program, kernels, target, threads, beside)

    def assemble(
        self,
        planned: Plan,
        objects: Sequence[bytes],
        target: Target,
        hot: Mapping[tuple[int, ...], Any],
    ) -> LinkedModel:
        from farrier.targets.driven.package import assemble

        assert isinstance(target, DrivenTarget)
        return assemble(planned, objects, target, self.library_kind, self.files)

    def files(self, kernels: Mapping[str, str]) -> Sequence[CodeObject]:
        """Return the code objects of an artifact that contain the device's kernels. `kernels` maps
        the name of each kernel to its source text. By default, each kernel has a code object of its
        own, whose file name consists of the last 90 characters of the kernel's name."""
        from farrier.artifact.code import CodeObject

        kind = self.kernel_kind
        return [
            CodeObject(f"code/{name[-90:]}.{kind}", kind, (name,), text.encode())
            for name, text in kernels.items()
        ]

    def library(self, objects: Sequence[bytes], symbols: Sequence[str], target: Target) -> bytes:
        from farrier.targets.driven.objects import joined

        assert isinstance(target, DrivenTarget)
        # The symbols are names of programs, which call host functions by any of their names.
        return joined(objects, target.host)

    def kernel_code(self, objects: Sequence[bytes], target: Target) -> Sequence[tuple[str, bytes]]:
        from farrier.targets.driven.objects import kernels_of

        assert isinstance(target, DrivenTarget)
        kernels, host = kernels_of(objects, target.host)
        modules = [(self.kernel_kind, text.encode()) for text in kernels.values()]
        return [*modules, *([(HOST_CODE, host)] if host else [])]

    def launches(self, kernel: Interface) -> tuple[Launch, ...]:
        from farrier.ir.dim import number

        return tuple(
            Launch(f"{kernel.name}{entry.suffix}", None, (number(entry.blocks),), (entry.threads,))
            for entry in kernel.entries
        )


@functools.cache
def _parts(target: DrivenTarget, space: str) -> Mapping[str, Target]:
    if target.host is None:
        return {space: target}
    return {HOST: target.host, space: dataclasses.replace(target, host=None)}
