"""The role of a backend that says where kernels may run: on the device that a target is for, or on
the host that drives it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from farrier_device.program import HOST

if TYPE_CHECKING:
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.targets.target import Target


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """The space of a kernel. `reason` is a clause that explains why it runs on the host of a
    device; "" for other kernels."""

    space: str = HOST
    reason: str = ""


HERE = Site()  # Of a machine that has one space.


class Siting(Protocol):
    """A division of a target into the machines that run its kernels.

    The kernels of a part are scheduled and compiled by the backend of that part, as for any target.
    `enclosed` makes their objects ones of the whole.
    """

    def parts(self, target: Target) -> Mapping[str, Target]:
        """Return the machines that a target consists of, by the space in which the kernels of each
        run: a host first, if it runs any, and the machine that the target is for last."""
        return {HOST: target}

    def why_not_on_device(self, program: TensorProgram | Function, target: Target) -> str:
        """Return the reason why the last part of a target cannot run a kernel, a clause; "" where
        it can."""
        return ""

    def enclosed(self, content: bytes, space: str) -> bytes:
        """Return an object that `compile` of a part has made as one of the whole target's."""
        return content


def site_of(program: TensorProgram | Function, target: Target) -> Site:
    """Return the site of a kernel: the device that the target is for where it can run there."""
    host, *others = target.backend.parts(target)
    if not others:
        return Site(host)
    reason = target.backend.why_not_on_device(program, target)
    return Site(host, reason) if reason else Site(others[-1])
