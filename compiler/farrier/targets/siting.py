"""The role of a backend that decides where each kernel runs: on the device that a target describes,
or on the host that drives the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from farrier_device.program import HOST

if TYPE_CHECKING:
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.targets.scheduling import Peaks
    from farrier.targets.target import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """The place where a kernel runs: the memory space `space` of a device or host. If a kernel of a
    device target runs on the host, `reason` is a clause that explains why; otherwise it is ""."""

    space: str = HOST
    reason: str = ""


HERE = Site()  # Of a machine that has one space.


class Siting(Protocol):
    """The division of a target into the machines that run its kernels: for a host with an
    accelerator, the host and the accelerator.

    The backend of each of these machines schedules and compiles the kernels that run there.
    `enclosed` then converts the resulting objects to the format of the whole target.
    """

    def parts(self, target: Target) -> Mapping[str, Target]:
        """Return the machines of a target, keyed by the memory space in which the kernels of
        each run. A host that runs kernels comes first; the machine that the target describes
        comes last."""
        return {HOST: target}

    def why_not_on_device(self, program: TensorProgram | Function, target: Target) -> str:
        """Return the reason why the last machine of `parts` cannot run a kernel, as a clause for a
        message; "" if it can run the kernel."""
        return ""

    def rates(self, target: Target) -> Mapping[str, Peaks]:
        """Return the peak rates of the machines of `parts`, by the same keys. Return an empty
        mapping if the rates are not known well enough to decide which of the machines should run a
        model."""
        return {}

    def enclosed(self, content: bytes, space: str) -> bytes:
        """Return the object `content`, which the backend of the machine with memory space `space`
        compiled, in the object format of the whole target."""
        return content


def site_of(program: TensorProgram | Function, target: Target) -> Site:
    """Return the site of a kernel: the device if it can run the kernel, and otherwise its host."""
    host, *others = target.backend.parts(target)
    if not others:
        return Site(host)
    reason = target.backend.why_not_on_device(program, target)
    return Site(host, reason) if reason else Site(others[-1])
