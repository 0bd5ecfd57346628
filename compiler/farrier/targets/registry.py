"""The backends of this installation, by architecture.

It is asked where the name or the description of a machine comes in: from a user, in a message, in
an artifact. A target knows its backend (`Target.backend`), so that nobody else asks.

A backend of another package registers itself as an entry point of the group `farrier.backends`,
whose object is an instance of `Backend`.
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
        ("thumbv7m", "thumbv7em", "thumbv8m.main", "thumbv8.1m.main", "riscv32"),
        "farrier.targets.bare",
    ),
}


def own_backends() -> tuple[Backend, ...]:
    """Return Farrier's own backends."""
    return tuple(map(_own, dict.fromkeys(_OWN.values())))


@functools.cache
def backends() -> tuple[Backend, ...]:
    """Return all backends, Farrier's own first. Raises UsageError for one of another package that
    cannot be loaded."""
    return (*own_backends(), *_others())


def backend_for(arch: str) -> Backend:
    """Return the backend for machines of an architecture. Raises UsageError where there is none."""
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
    """Return the backends of other packages. To look for them reads every installed
    distribution."""
    installed = plugins(BACKENDS, "backend", Backend, "a subclass of Backend")  # type: ignore[type-abstract]
    return tuple(plugin.loaded for plugin in installed)
