"""The target class of devices that a host drives."""

from __future__ import annotations

import dataclasses
import functools
from typing import Self

from farrier.errors import UsageError
from farrier.targets.registry import backend_for
from farrier.targets.target import Target
from farrier_device import codec, describe


@dataclasses.dataclass(frozen=True, slots=True)
class DrivenTarget(Target):
    """A device, and the `host` that drives it and runs the kernels that the device cannot run. If
    `host` is None, compiling such a kernel is an error."""

    host: Target | None = None

    @property
    def threads(self) -> int:
        """The number of threads of the host."""
        return 1 if self.host is None else self.host.threads

    @classmethod
    def from_dict(cls, raw: object) -> Self:
        if not isinstance(raw, dict):
            raise ValueError("target: an object is needed")
        from farrier.targets.names import read_target

        host = raw.get("host")
        fields = {name: value for name, value in raw.items() if name != "host"}
        target = codec.decode(cls, fields, unknown=codec.Unknown.REFUSED, name="target")
        return target if host is None else dataclasses.replace(target, host=read_target(host))


@functools.cache
def baseline() -> Target | None:
    """Return the default host of a device for which the user names no host: a generic machine of
    this machine's architecture, with one thread. None if no backend supports the architecture."""
    here = describe.describe()
    try:
        backend = backend_for(here.arch)
    except UsageError:
        return None
    generic = [each.description for each in backend.machines.values() if each.generic]
    return backend.target(dataclasses.replace((*generic, here)[0], cores=1))
