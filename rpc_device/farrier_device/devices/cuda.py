"""An NVIDIA GPU as a device, by direct use of the CUDA driver: PTX modules, memory, and one
stream."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import os
import re
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from farrier_device.adapters import NoAdapterError
from farrier_device.blob import Blob
from farrier_device.cuda_library import (
    GPU,
    MOST_BLOCKS,
    TensorMap,
    capability,
    is_specific,
    runs_on,
    shared_bytes,
    tensor_maps,
)
from farrier_device.devices.cuda_graphs import CudaGraphs, CudaLaunch
from farrier_device.devices.cuda_maps import encoded
from farrier_device.devices.device import Code, ContextLostError, Device, DeviceError, Ticks
from farrier_device.devices.driving import DrivingHost
from farrier_device.devices.libcuda import (
    LOST,
    MOST_SHARED_BYTES,
    OUT_OF_MEMORY,
    CudaError,
    Driver,
)
from farrier_device.measurement import Launch
from farrier_device.nvidia import capability_of, cuda_of, name_of, number_of, open_driver

_log = logging.getLogger(__name__)
# The oldest CUDA whose driver takes a version of PTX, by the release history in the PTX ISA, as
# NVIDIA's cuda.bindings.utils has it.
_CUDA_OF_PTX = {
    (6, 5): (10, 2),
    (7, 0): (11, 0),
    (7, 1): (11, 1),
    (7, 8): (11, 8),
    (8, 4): (12, 4),
    (8, 6): (12, 7),
    (8, 7): (12, 8),
}
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: it does not wait for the default stream.
_WARM_S = 0.01  # Clocks of an idle GPU are up after some milliseconds of work.
_AWAKE_S = 0.05  # A GPU that waits is idle after some tenths of a second.
_FLUSH_BYTES = 256 << 20  # No GPU has a larger cache: B200 has 126 MiB.
_VERSION = re.compile(r"^\.version (\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(r"^\.target (sm_\w+)", re.MULTILINE)
_ENTRY = re.compile(r"^\.visible \.entry ([\w$.]+)\(([^)]*)\)", re.MULTILINE)


class _Context:
    """The primary context of a GPU, which is released when the device and all its memory have been
    dropped."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.handle = driver.handle("cuDevicePrimaryCtxRetain", number)
        weakref.finalize(self, _attempt, driver, "cuDevicePrimaryCtxRelease_v2", number)


class CudaMemory:
    """GPU memory, which is freed when the last reference to it is dropped."""

    def __init__(self, context: _Context, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        weakref.finalize(self, _free, context, address)


class LentMemory:
    """GPU memory that another library owns and frees."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes


def _free(context: _Context, address: int) -> None:
    """Free GPU memory, from any thread and whatever context is current, because other libraries may
    drop arrays anywhere."""
    driver = context.driver
    with contextlib.suppress(CudaError):  # Where the context is gone, so is the memory.
        driver.call("cuCtxPushCurrent_v2", context.handle)
        _attempt(driver, "cuMemFree_v2", address)
        driver.handle("cuCtxPopCurrent_v2")


def _attempt(driver: Driver, name: str, *arguments: Any) -> None:
    with contextlib.suppress(CudaError):
        driver.call(name, *arguments)


class CudaDevice(Device[CudaMemory, CudaLaunch]):
    """A GPU, selected by name (`nvidia.find_gpus`) or by number, by default the first GPU.
    `library` is used in place of the driver's library. Raises DeviceError if the driver or the GPU
    is missing."""

    def __init__(self, name: str = "", library: Any = None) -> None:
        self._driver, self._number = _opened(name, library)
        self.name = name_of(self._driver, self._number)
        self.capability = capability_of(self._driver, self._number)
        self._last = ""  # The kernel that was launched last.
        with self._as_device_error():
            self._context: _Context | None = _Context(self._driver, self._number)
            self._enter()
            self._stream = self._driver.handle("cuStreamCreate", _NON_BLOCKING)
        self._graphs = CudaGraphs(self._driver)
        self._modules: list[int] = []
        self._functions: dict[str, int] = {}
        self._arguments: dict[str, int] = {}  # The number of those of each entry point.
        self._shared: dict[str, int] = {}  # Bytes of shared memory that launches set.
        self._maps: dict[str, list[TensorMap]] = {}  # The tensor maps behind other arguments.
        self._sent: list[Any] = []  # Bytes that copies may not have read yet.
        self._awake_until = 0.0  # The clock of a GPU goes down some time after its last work.

    def _enter(self) -> _Context:
        """Make this device's context current on the calling thread, because another device or
        library may have made another context current."""
        if self._context is None:
            raise DeviceError(f"{self.name} was closed")
        with self._as_device_error():
            self._driver.call("cuCtxSetCurrent", self._context.handle)
        return self._context

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver. Raises DeviceError."""
        self._enter()
        with self._as_device_error():
            self._driver.call(name, *arguments)

    @contextlib.contextmanager
    def _as_device_error(self) -> Iterator[None]:
        """Return a context in which errors of the driver become DeviceErrors that name the kernel
        launched last."""
        try:
            yield
        except CudaError as error:
            last = f", after {self._last} was launched" if self._last else ""
            kind = ContextLostError if error.code in LOST else DeviceError
            raise kind(f"{self.name}: {error}{last}") from None

    @property
    def is_emulated(self) -> bool:
        """True if the processor emulates the GPU; its times are then not those of a GPU."""
        return self._driver.is_emulated

    # -- code

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        texts = [os.pread(file, os.fstat(file).st_size, 0) for _, file in code]
        self.load_modules(
            {str(place): text.decode(errors="replace") for place, text in enumerate(texts)}
        )

    def load_modules(
        self, modules: Mapping[str, str], cubins: Mapping[str, bytes] | None = None
    ) -> None:
        """Load PTX modules, in place of the modules loaded before. A module with a cubin (compiled
        binary) that the driver accepts is loaded from the cubin. Raises DeviceError."""
        self.unload()
        self._enter()
        assembled = self._loaded(cubins or {})
        for name, text in modules.items():
            module = assembled.get(name)
            why = _why_not(text, self.name, self.capability, cuda_of(self._driver))
            if why and module is None:
                raise DeviceError(why)
            try:
                if module is None:
                    module = self._driver.handle("cuModuleLoadData", text.encode())
                    self._modules.append(module)
                of_launches, self._maps = shared_bytes(text), self._maps | tensor_maps(text)
                for entry, parameters in _ENTRY.findall(text):
                    self._arguments[entry] = parameters.count(".param")
                    function = self._driver.handle("cuModuleGetFunction", module, entry.encode())
                    self._functions[entry] = function
                    if nbytes := of_launches.get(entry, 0):
                        self._shared[entry] = nbytes
                        self._driver.call("cuFuncSetAttribute", function, MOST_SHARED_BYTES, nbytes)
            except CudaError as error:
                kind = ContextLostError if error.code in LOST else DeviceError
                raise kind(f"{self.name} cannot load {name}: {error}") from None

    def _loaded(self, cubins: Mapping[str, bytes]) -> dict[str, int]:
        """Load cubins, and return the handles of their modules by name. Cubins that the driver
        rejects, because they are for another architecture or from a newer toolkit, are omitted;
        their modules are loaded from PTX instead."""
        modules: dict[str, int] = {}
        for name, content in cubins.items():
            try:
                modules[name] = self._driver.handle("cuModuleLoadData", content)
            except CudaError as error:
                if error.code in LOST:
                    raise ContextLostError(f"{self.name} cannot load {name}: {error}") from None
                _log.warning(
                    "%s compiles the PTX instead, because it does not accept the cubins: %s",
                    self.name,
                    error,
                )
                break
            self._modules.append(modules[name])
        return modules

    def unload(self) -> None:
        self._enter()
        self._graphs.clear()
        for module in self._modules:
            self._call("cuModuleUnload", module)
        self._modules, self._functions = [], {}
        self._arguments, self._shared, self._maps = {}, {}, {}

    # -- memory

    def allocate(self, nbytes: int, position: int) -> CudaMemory:
        context = self._enter()
        with self._as_device_error():
            try:
                address = self._driver.handle("cuMemAlloc_v2", max(1, nbytes))
            except CudaError as error:
                if error.code != OUT_OF_MEMORY:
                    raise
                raise MemoryError(
                    f"{nbytes} bytes are needed on {self.name}, but only {self._free_bytes()} "
                    "are free"
                ) from None
        return CudaMemory(context, address, nbytes)

    def _free_bytes(self) -> int:
        total = ctypes.c_uint64()
        return self._driver.handle("cuMemGetInfo_v2", ctypes.byref(total))

    def clear(self, memory: CudaMemory, nbytes: int) -> None:
        if nbytes:
            self._call("cuMemsetD8Async", memory.address, 0, nbytes, self._stream)

    def copy_in(self, memory: CudaMemory, blob: Blob) -> None:
        content = bytearray(blob.nbytes)
        blob.read_into(memoryview(content))
        self.send(memoryview(content), memory, 0)

    def copy_out(self, memory: CudaMemory, nbytes: int) -> memoryview:
        content = memoryview(bytearray(nbytes))
        self.receive(memory, 0, content)
        self.synchronize()
        return content

    def send(self, source: memoryview, memory: CudaMemory, offset: int) -> None:
        content = source.cast("B")
        if not (count := len(content)):
            return
        kind = ctypes.c_char * count
        held = kind.from_buffer_copy(content) if content.readonly else kind.from_buffer(content)
        self._sent.append(held)
        at, address = memory.address + offset, ctypes.addressof(held)
        self._call("cuMemcpyHtoDAsync_v2", at, address, count, self._stream)

    def receive(self, memory: CudaMemory, offset: int, target: memoryview) -> None:
        content = target.cast("B")
        if not (count := len(content)):
            return
        held = (ctypes.c_char * count).from_buffer(content)
        self._sent.append(held)
        at, address = memory.address + offset, ctypes.addressof(held)
        self._call("cuMemcpyDtoHAsync_v2", address, at, count, self._stream)

    def copy_within(
        self, source: CudaMemory, start: int, memory: CudaMemory, offset: int, nbytes: int
    ) -> None:
        if nbytes:
            ends = memory.address + offset, source.address + start
            self._call("cuMemcpyDtoDAsync_v2", *ends, nbytes, self._stream)

    def wrap(self, address: int, nbytes: int) -> LentMemory:
        """Return an object for GPU memory at an address that another library owns and frees."""
        return LentMemory(address, nbytes)

    @property
    def number(self) -> int:
        """The number of the GPU in the driver's order."""
        return self._number

    @property
    def stream(self) -> int:
        """The handle of the CUDA stream that all launches and copies use."""
        return self._stream

    # -- launches

    def bind(self, launch: Launch, places: Sequence[tuple[CudaMemory, int]]) -> CudaLaunch:
        function = self._functions.get(launch.symbol)
        if function is None:
            raise DeviceError(f"no module has an entry point {launch.symbol}")
        maps = self._maps.get(launch.symbol, [])
        if len(places) != (count := self._arguments[launch.symbol] - len(maps)):
            raise DeviceError(f"{launch.symbol} takes {count} arguments, not {len(places)}")
        blocks = math.prod(launch.grid)
        if blocks > MOST_BLOCKS:
            raise MemoryError(
                f"{launch.symbol} needs {blocks} blocks, but a launch has at most "
                f"{MOST_BLOCKS}: the inputs are too large for CUDA"
            )
        [threads] = launch.block
        values = (ctypes.c_uint64 * len(places))(*(each.address + at for each, at in places))
        first = ctypes.addressof(values)
        size = ctypes.sizeof(ctypes.c_uint64)
        with self._as_device_error():
            held = [encoded(self._driver, each, values[each.position]) for each in maps]
        pointers = (ctypes.c_void_p * (len(places) + len(maps)))(
            *(first + size * number for number in range(len(places))),
            *(address for _, address in held),
        )
        nbytes = self._shared.get(launch.symbol, 0)
        owners = values, held
        return CudaLaunch(launch.symbol, function, blocks, threads, nbytes, owners, pointers)

    def launch(self, bound: CudaLaunch) -> None:
        if not bound.blocks:
            return
        self._last = bound.symbol
        shape = (bound.blocks, 1, 1, bound.threads, 1, 1)
        settings = bound.shared_bytes, self._stream, bound.pointers, None
        self._call("cuLaunchKernel", bound.function, *shape, *settings)

    def launch_all(self, bound: Sequence[CudaLaunch]) -> None:
        steps = [each for each in bound if each.blocks]
        self._enter()
        with self._as_device_error():
            is_graph = self._graphs.launch(steps, self._stream)
        if is_graph:
            self._last = f"{steps[0].symbol} and what follows it"
            return
        for each in steps:
            self.launch(each)

    def synchronize(self) -> int:
        self._call("cuStreamSynchronize", self._stream)
        self._sent.clear()
        self._awake_until = time.monotonic() + _AWAKE_S
        return 0

    def time(
        self, steps: Sequence[CudaLaunch], repeats: int, cold: Sequence[tuple[CudaMemory, int]]
    ) -> Ticks:
        """Time the steps by events on the stream; a tick is a nanosecond. To cool the caches before
        a round, more bytes are written than the cache holds."""
        flush = self.allocate(_FLUSH_BYTES, 0) if cold and not self.is_emulated else None
        self._warm_up(steps)
        self._enter()
        with self._as_device_error():
            return self._timed(steps, repeats, flush)

    def _timed(self, steps: Sequence[CudaLaunch], repeats: int, flush: CudaMemory | None) -> Ticks:
        each: Ticks = [[] for _ in steps]
        start, end = (self._driver.handle("cuEventCreate", 0) for _ in range(2))
        for _ in range(repeats):
            if flush is not None:
                self.clear(flush, _FLUSH_BYTES)
            for step, samples in zip(steps, each, strict=True):
                self._call("cuEventRecord", start, self._stream)
                self.launch(step)
                self._call("cuEventRecord", end, self._stream)
                self.synchronize()
                samples.append(round(self._driver.milliseconds(start, end) * 1e6))
        for event in (start, end):
            self._call("cuEventDestroy_v2", event)
        return each

    def _warm_up(self, steps: Sequence[CudaLaunch]) -> None:
        """Run the steps until an idle GPU has raised its clocks."""
        if self.is_emulated or time.monotonic() < self._awake_until:
            return
        begin = time.monotonic()
        while time.monotonic() < begin + _WARM_S:
            for step in steps:
                self.launch(step)
            self.synchronize()

    def ns_of(self, ticks: Sequence[int]) -> list[int]:
        return [max(1, tick) for tick in ticks]

    def close(self) -> None:
        if self._context is None:
            return
        # A kernel may have failed, after which the context does nothing more.
        with contextlib.suppress(DeviceError):
            self.unload()
            self._call("cuStreamDestroy_v2", self._stream)
        self._context = None


def driving_host(name: str = "") -> DrivingHost[CudaDevice]:
    """Open a GPU by its name, with this machine as the host that drives it. Raises DeviceError."""
    return DrivingHost(GPU, CudaDevice(name))


def why_not_on(architecture: str, library: Any = None) -> str:
    """Return the reason why this machine's GPU cannot run code for an architecture such as sm_80;
    "" if it can run the code."""
    try:
        driver, number = _opened("", library)
    except DeviceError as error:
        return str(error)
    has = capability_of(driver, number)
    return _why_not_capability(architecture, "the GPU here", has)


def _opened(name: str, library: Any) -> tuple[Driver, int]:
    try:
        driver = open_driver(library)
        number = number_of(name, library) if name else 0
        return driver, driver.integer("cuDeviceGet", number)
    except (NoAdapterError, CudaError) as error:
        raise DeviceError(str(error)) from None


def _why_not(text: str, name: str, has: tuple[int, int], cuda: tuple[int, int]) -> str:
    """Return the reason why a GPU cannot run the PTX module `text`; "" if it can. `name` is the
    GPU's name, `has` its compute capability, and `cuda` the CUDA version of its driver."""
    version, target = _VERSION.search(text), _TARGET.search(text)
    if version is None or target is None:
        return "a module is not PTX: the artifact is damaged"
    if why := _why_not_capability(target[1], name, has):
        return why
    ptx = int(version[1]), int(version[2])
    needed = _CUDA_OF_PTX.get(ptx, (0, 0))
    if cuda >= needed:
        return ""
    (major, minor), (wanted, least) = cuda, needed
    return (
        f"the driver of {name} supports CUDA {major}.{minor}, but PTX {ptx[0]}.{ptx[1]} needs a "
        f"driver for CUDA {wanted}.{least} or later; update the driver"
    )


def _why_not_capability(needed: str, name: str, has: tuple[int, int]) -> str:
    if runs_on(needed, has):
        return ""
    present = "".join(map(str, has))
    if not is_specific(needed):
        return f"the kernels need {needed} or later, but {name} is sm_{present}"
    wanted = ".".join(map(str, capability(needed)))
    return f"the kernels need compute capability {wanted} ({needed}), but {name} is sm_{present}"
