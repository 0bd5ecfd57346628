"""The adapters of this machine: its GPUs for WebGPU and CUDA, and processors that emulate a GPU.

WebGPU needs the package `wgpu`, which is imported when a function of this module first needs it.
`adapters_apart` lists the adapters in a separate process, because a GPU driver starts threads and
may crash.
"""

from __future__ import annotations

import ctypes.util
import dataclasses
import glob
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from farrier_device import codec, describe, python
from farrier_device.describe import MachineDescription
from farrier_device.webgpu_library import F16, SUBGROUPS

ARCH = "webgpu"  # The architecture of a machine that is an adapter.
_L2_BYTES = 1 << 20  # WebGPU does not say: most integrated GPUs have about as much.
_APART_S = 60.0  # A driver starts within seconds.
# The features that code may ask for, by the names that the packages have for them.
NAGA_SUBGROUPS = "subgroup"
FEATURES = {F16: F16, NAGA_SUBGROUPS: SUBGROUPS, SUBGROUPS: SUBGROUPS}
_BACKENDS = ("Vulkan", "Metal", "D3D12")  # OpenGL lacks features of WebGPU.
_RENDER_NODES = ("/dev/dri/renderD*", "/dev/nvidia[0-9]*", "/dev/mali*", "/dev/kgsl-3d*")
# An environment variable may name another package with wgpu's interface.
PACKAGE = "FARRIER_WEBGPU"
_PACKAGES = ("wgpu", "wgpudawn")
# The limits that code for WebGPU depends on, by the specification's names.
_LIMITS = (
    "max-buffer-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-storage-size",
    "max-compute-workgroups-per-dimension",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "min-storage-buffer-offset-alignment",
)


class NoAdapterError(Exception):
    """This machine has no adapter, or none with the requested name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Adapter:
    """A GPU, or a processor that emulates one.

    `features` and `limits` are the features and limits that code may request, by their names in
    WebGPU. `arch` is the adapter's instruction-set architecture, if it has one. `units` is the
    number of units that run blocks of threads, if the driver reports it. If a driver reports
    several adapters under the same name, all but the first have a number appended to the name
    (`NAME #2`).
    """

    name: str
    model: str  # The name as its driver has it.
    driver: str
    is_emulated: bool  # A processor runs the code: its times say nothing of a GPU.
    features: tuple[str, ...]
    limits: Mapping[str, int]
    arch: str = ARCH
    units: int = 1
    l2_bytes: int = _L2_BYTES

    def machine(self) -> MachineDescription:
        """Return the description of the adapter as a measuring machine, with this machine as its
        host."""
        host = dataclasses.replace(describe.describe(), memory_bytes=0)
        return MachineDescription(
            arch=self.arch,
            cpu=self.model,
            features=self.features,
            cores=self.units,
            l1_bytes=self.limits["max-compute-workgroup-storage-size"],
            l2_bytes=self.l2_bytes,
            l3_bytes=0,
            memory_bytes=self.limits["max-buffer-size"],
            emulated=self.is_emulated,
            host=json.dumps(codec.encode(host), sort_keys=True),
        )


def adapters_apart() -> tuple[Adapter, ...]:
    """Return the adapters of this machine, listed by a separate process. Raises NoAdapterError."""
    try:
        done = subprocess.run(
            python.command_of(_print), capture_output=True, text=True, timeout=_APART_S, check=False
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        if "failed" in answer:
            raise NoAdapterError(answer["failed"])
        return codec.decode(tuple[Adapter, ...], answer["adapters"])
    except (subprocess.TimeoutExpired, OSError, ValueError, LookupError) as error:
        raise NoAdapterError(f"the GPU drivers of this machine do not answer: {error}") from None


def _print() -> None:
    """Print the adapters as JSON, or the reason why there is none."""
    from farrier_device import nvidia  # It returns adapters.

    adapters: list[Adapter] = []
    failed = ""
    for find in (find_adapters, nvidia.find_gpus):
        try:
            adapters += find()
        except NoAdapterError as error:
            failed = failed or str(error)
    answer: dict[str, Any] = {"failed": failed}
    if adapters:
        answer = {"adapters": codec.encode(tuple(adapters))}
    print(json.dumps(answer))


def chosen(adapters: Sequence[Adapter], name: str = "") -> Adapter:
    """Return the adapter with the given name, or the first adapter if no name is given. Raises
    NoAdapterError."""
    for adapter in adapters:
        if name in ("", adapter.name):
            return adapter
    if all(adapter.is_emulated for adapter in adapters):
        raise NoAdapterError(
            f"cannot use {name}: the only adapter here is {adapters[0].name}, which is "
            f"software: {_why_no_gpu()}"
        )
    names = ", ".join(adapter.name for adapter in adapters)
    raise NoAdapterError(f"this machine has no adapter {name!r}; it has {names}")


def find_adapters() -> tuple[Adapter, ...]:
    """Return the adapters of this machine, GPUs first. Raises NoAdapterError if there is none, or
    if the package `wgpu` is missing."""
    return tuple(adapter for adapter, _ in _all(import_webgpu()))


def find_adapter(name: str = "") -> Adapter:
    """Return the adapter with the given name, or the first adapter if no name is given. Raises
    NoAdapterError."""
    return chosen(find_adapters(), name)


def open_adapter(webgpu: Any, name: str = "") -> Any:
    """Return the `wgpu` object of the adapter with the given name, or of the first adapter. Raises
    NoAdapterError."""
    there = _all(webgpu)
    adapter = chosen([each for each, _ in there], name)
    return next(native for each, native in there if each is adapter)


def import_webgpu() -> Any:
    """Import the package `wgpu` and return it. Raises NoAdapterError if it is missing."""
    # The loader of Vulkan complains on the standard error if this is not set.
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")
    package = os.environ.get(PACKAGE, _PACKAGES[0])
    if package not in _PACKAGES:
        raise NoAdapterError(
            f"the variable {PACKAGE} is {package!r}; it must be one of {', '.join(_PACKAGES)}"
        )
    try:
        return importlib.import_module(package)
    except ImportError:
        way_out = "'farrier[webgpu]'" if package == _PACKAGES[0] else package
        raise NoAdapterError(f"WebGPU needs the package {package}: pip install {way_out}") from None


def _all(webgpu: Any) -> list[tuple[Adapter, Any]]:
    natives = [
        native
        for native in webgpu.gpu.enumerate_adapters_sync()
        if native.info["backend_type"] in _BACKENDS
    ]
    if not natives:
        raise NoAdapterError(f"this machine has no adapter for WebGPU: {_why_no_gpu()}")
    natives.sort(key=_is_processor)
    names = numbered(native.info["device"] for native in natives)
    return [(_described(name, native), native) for name, native in zip(names, natives, strict=True)]


def numbered(names: Iterable[str]) -> list[str]:
    """Return the names made unique: `["a", "a", "b"] → ["a", "a #2", "b"]`."""
    seen: dict[str, int] = {}
    each = []
    for name in names:
        count = seen[name] = seen.get(name, 0) + 1
        each.append(name if count == 1 else f"{name} #{count}")
    return each


def _described(name: str, native: Any) -> Adapter:
    limits = native.limits
    return Adapter(
        name=name,
        model=str(native.info["device"]),
        driver=str(native.info["description"]),
        is_emulated=_is_processor(native),
        features=tuple(sorted({FEATURES[each] for each in native.features if each in FEATURES})),
        limits={limit: int(limits[limit]) for limit in _LIMITS if limit in limits},
    )


def _is_processor(native: Any) -> bool:
    return bool(native.info["adapter_type"] == "CPU")


def _why_no_gpu() -> str:
    """Return a message that explains why no GPU is available and how to make one available."""
    if sys.platform != "linux":
        return "the system has no driver for a GPU"
    if closed := closed_files(_RENDER_NODES):
        return (
            f"this user has no permission to open {' and '.join(closed)}; add the user to the "
            "group that owns the file (usually render or video), or pass the file to the "
            "container"
        )
    if ctypes.util.find_library("vulkan") is None:
        return "the Vulkan loader is missing; install it, for example Debian's libvulkan1"
    return "a Vulkan driver is missing; install the GPU vendor's, or Debian's mesa-vulkan-drivers"


def closed_files(patterns: Sequence[str]) -> list[str]:
    """Return the GPU device files that match the patterns and that this process has no permission
    to open."""
    paths = sorted(path for pattern in patterns for path in glob.glob(pattern))
    return [path for path in paths if not os.access(path, os.R_OK | os.W_OK)]
