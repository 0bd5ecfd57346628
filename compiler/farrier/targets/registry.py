"""The registry of the installed backends, by architecture.

Only code that receives the name or the description of a machine, from a user, a message or an
artifact, looks a backend up here. Code that has a target reads `Target.backend`.

Another package registers its backend as an entry point of the group `farrier.backends` that refers
to an instance of `Backend`.
"""

from __future__ import annotations

import functools
import importlib

from farrier.errors import UsageError
from farrier.plugins import BACKENDS, plugins
from farrier.targets.backend import Backend
from farrier_device.arch import in_64_bits

# Farrier's own, by architecture: modules with a BACKEND, imported when one of their machines is
# named. Nothing else in the core knows them.
_OWN = {
    "x86_64": "farrier.targets.x86",
    "aarch64": "farrier.targets.arm",
    "riscv64": "farrier.targets.riscv",
    "webgpu": "farrier.targets.webgpu",
    "nvptx64": "farrier.targets.cuda",
    "dae": "farrier.targets.dae",
    **dict.fromkeys(
        ("thumbv6m", "thumbv7m", "thumbv7em", "thumbv8m.main", "thumbv8.1m.main", "riscv32"),
        "farrier.targets.bare",
    ),
}


def own_backends() -> tuple[Backend, ...]:
    """Return the backends that are part of Farrier, as opposed to those of other packages."""
    return tuple(map(_own, dict.fromkeys(_OWN.values())))


@functools.cache
def backends() -> tuple[Backend, ...]:
    """Return all backends, those of Farrier first. Raises UsageError if the backend of another
    package cannot be loaded."""
    return (*own_backends(), *_others())


def backend_for(arch: str) -> Backend:
    """Return the backend for an architecture. Raises UsageError if no backend supports it."""
    if arch in _OWN:
        return _own(_OWN[arch])
    for backend in _others():
        if arch in backend.archs:
            return backend
    if wide := in_64_bits(arch):
        raise UsageError(
            f"no code generator for {arch}, a 32-bit system: 64-bit Linux ({wide}) and a 64-bit "
            "Python are needed",
            hint="install a 64-bit system, which most of these processors can run",
        )
    served = sorted(arch for backend in backends() for arch in backend.archs)
    raise UsageError(
        f"no code generator for {arch}",
        hint=f"there are some for {', '.join(served)}; `farrier targets` lists machines",
    )


@functools.cache
def _own(module: str) -> Backend:
    backend: Backend = importlib.import_module(module).BACKEND
    return backend


@functools.cache
def _others() -> tuple[Backend, ...]:
    """Return the backends that other packages register. The first call reads the metadata of all
    installed distributions, which is slow."""
    installed = plugins(BACKENDS, "backend", Backend, "a subclass of Backend")  # type: ignore[type-abstract]
    return tuple(plugin.loaded for plugin in installed)
