"""A GPU as a device, through WebGPU: modules of WGSL, buffers, and one queue.

Needs the package `wgpu`, whose library drives Vulkan, Metal or Direct3D 12. Launches and copies are
recorded in order, and submitted together when the host waits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from farrier_device.blob import Blob
from farrier_device.devices.device import Code, DeviceError, Ticks
from farrier_device.devices.host_memory import WallClocked
from farrier_device.measurement import Launch
from farrier_device.webgpu_library import MOST_BYTES

# WebGPU's default limits, which every adapter has: code for `webgpu` needs no more.
LIMITS = {
    "max-storage-buffers-per-shader-stage": 8,
    "max-compute-workgroup-storage-size": 16_384,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-storage-buffer-binding-size": MOST_BYTES,
    "min-storage-buffer-offset-alignment": 256,
}
_BLOCKS_A_ROW = 65_535  # A row of a grid has at most these, by the default limits.
_WORD = 4  # Bytes: copies begin and end at multiples of it.
_BINDING = re.compile(r"@binding\((\d+)\) var<storage, (read|read_write)>")
_ENTRY = re.compile(r"@compute[^{]*?fn (\w+)\(")


class WebGpuMemory(NamedTuple):
    """A buffer, and its size in bytes as it was asked for."""

    buffer: Any
    nbytes: int


class WebGpuLaunch(NamedTuple):
    """A launch with its arguments; `grid` counts blocks along two axes."""

    pipeline: Any
    bindings: Any
    grid: tuple[int, int]


class WebGpuDevice(WallClocked[WebGpuMemory, WebGpuLaunch]):
    """The first GPU of this machine, or if it has none, a processor that emulates one.

    `has_open_sizes` says that the compiler has not seen the size of every array: an array that may
    be larger than a kernel can reach is refused. Raises DeviceError if the package or an adapter is
    missing.
    """

    def __init__(self, *, has_open_sizes: bool = False) -> None:
        self._has_open_sizes = has_open_sizes
        self._wgpu = _import_wgpu()
        self._adapter = _find_adapter(self._wgpu)
        self._device = self._adapter.request_device_sync(required_limits=LIMITS)
        self._entries: dict[str, _Module] = {}
        self._encoder: Any = None
        self._pass: Any = None
        self._received: list[tuple[Any, memoryview]] = []
        self._fence = self.allocate(_WORD, 0)

    @property
    def name(self) -> str:
        """The adapter's name, as its driver has it."""
        return str(self._adapter.info["device"])

    @property
    def is_emulated(self) -> bool:
        """True if the processor runs the code, whose times say nothing of a GPU."""
        return bool(self._adapter.info["adapter_type"] == "CPU")

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        texts = (os.pread(file, os.fstat(file).st_size, 0) for _, file in code)
        modules = {str(at): text.decode(errors="replace") for at, text in enumerate(texts)}
        self.load_modules(modules)

    def load_modules(self, modules: Mapping[str, str]) -> None:
        """Load modules of WGSL, in place of the code before them. Raises DeviceError."""
        self.unload()
        for text in modules.values():
            module = _Module(self._wgpu, self._device, text)
            for entry in _ENTRY.findall(text):
                self._entries[entry] = module

    def unload(self) -> None:
        self._entries = {}

    def allocate(self, nbytes: int, position: int) -> WebGpuMemory:
        usage = self._wgpu.BufferUsage
        size = max(_WORD, -(-nbytes // _WORD) * _WORD)
        try:
            buffer = self._device.create_buffer(
                size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
            )
        except self._wgpu.GPUError as error:
            raise MemoryError(f"{nbytes} bytes on {self.name}: {error}") from None
        return WebGpuMemory(buffer, nbytes)

    def clear(self, memory: WebGpuMemory, nbytes: int) -> None:
        self._end_pass().clear_buffer(memory.buffer, 0, -(-nbytes // _WORD) * _WORD)

    def copy_in(self, memory: WebGpuMemory, blob: Blob) -> None:
        content = bytearray(blob.nbytes)
        blob.read_into(memoryview(content))
        self.send(memoryview(content), memory, 0)

    def copy_out(self, memory: WebGpuMemory, nbytes: int) -> memoryview:
        content = memoryview(bytearray(nbytes))
        self.receive(memory, 0, content)
        self.synchronize()
        return content

    def send(self, source: memoryview, memory: WebGpuMemory, offset: int) -> None:
        content = source.cast("B")
        if len(content) % _WORD:
            if offset + len(content) < memory.nbytes:
                raise DeviceError(f"a copy of {len(content)} bytes would write a part of a word")
            content = memoryview(bytes(content) + bytes(-len(content) % _WORD))
        if len(content):
            self._submit()  # The recorded steps come before the copy.
            self._device.queue.write_buffer(memory.buffer, offset, content)

    def receive(self, memory: WebGpuMemory, offset: int, target: memoryview) -> None:
        nbytes = -(-len(target.cast("B")) // _WORD) * _WORD
        if not nbytes:
            return
        usage = self._wgpu.BufferUsage
        staging = self._device.create_buffer(size=nbytes, usage=usage.MAP_READ | usage.COPY_DST)
        self._end_pass().copy_buffer_to_buffer(memory.buffer, offset, staging, 0, nbytes)
        self._received.append((staging, target.cast("B")))

    def bind(self, launch: Launch, places: Sequence[tuple[WebGpuMemory, int]]) -> WebGpuLaunch:
        module = self._entries.get(launch.symbol)
        if module is None:
            raise DeviceError(f"no module has an entry point {launch.symbol}")
        blocks = 1
        for count in launch.grid:
            blocks *= count
        rows = -(-blocks // _BLOCKS_A_ROW)
        grid = (min(blocks, _BLOCKS_A_ROW), rows)
        if self._has_open_sizes:
            module.check_reach(places)
        return WebGpuLaunch(module.pipeline(launch.symbol), module.bindings(places), grid)

    def launch(self, bound: WebGpuLaunch) -> None:
        if not bound.grid[0]:
            return
        if self._pass is None:
            self._pass = self._recorder().begin_compute_pass()
        self._pass.set_pipeline(bound.pipeline)
        self._pass.set_bind_group(0, bound.bindings)
        self._pass.dispatch_workgroups(*bound.grid)

    def synchronize(self) -> int:
        if self._encoder is not None and not self._received:
            # To map a copy is the one way to wait that all versions of wgpu have.
            self.receive(self._fence, 0, memoryview(bytearray(_WORD)))
        self._submit()
        received, self._received = self._received, []
        for staging, target in received:
            staging.map_sync(self._wgpu.MapMode.READ)
            target[:] = staging.read_mapped()[: len(target)]
            staging.unmap()
        return 0

    def time(
        self,
        steps: Sequence[WebGpuLaunch],
        repeats: int,
        cold: Sequence[tuple[WebGpuMemory, int]],
    ) -> Ticks:
        self.synchronize()  # The steps that are queued already do not count.
        return super().time(steps, repeats, cold)

    def close(self) -> None:
        self._pass = self._encoder = None
        self.unload()

    # -- the queue

    def _recorder(self) -> Any:
        if self._encoder is None:
            self._encoder = self._device.create_command_encoder()
        return self._encoder

    def _end_pass(self) -> Any:
        if self._pass is not None:
            self._pass.end()
            self._pass = None
        return self._recorder()

    def _submit(self) -> None:
        if self._encoder is not None:
            self._device.queue.submit([self._end_pass().finish()])
            self._encoder = None


class _Module:
    """A module of WGSL: its layout of bindings, and a pipeline for each entry point."""

    def __init__(self, wgpu: Any, device: Any, text: str) -> None:
        self._wgpu, self._device = wgpu, device
        try:
            self._module = device.create_shader_module(code=text)
        except wgpu.GPUError as error:
            raise DeviceError(f"the module does not compile: {error}") from None
        accesses = self._accesses = [access for _, access in _BINDING.findall(text)]
        self._layout = device.create_bind_group_layout(
            entries=[
                {
                    "binding": number,
                    "visibility": wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": "read-only-storage" if access == "read" else "storage"},
                }
                for number, access in enumerate(accesses)
            ]
        )
        self._pipelines: dict[str, Any] = {}

    def pipeline(self, entry: str) -> Any:
        if entry not in self._pipelines:
            layout = self._device.create_pipeline_layout(bind_group_layouts=[self._layout])
            try:
                self._pipelines[entry] = self._device.create_compute_pipeline(
                    layout=layout, compute={"module": self._module, "entry_point": entry}
                )
            except self._wgpu.GPUError as error:
                raise DeviceError(f"{entry} makes no pipeline: {error}") from None
        return self._pipelines[entry]

    def check_reach(self, places: Sequence[tuple[WebGpuMemory, int]]) -> None:
        """Raise MemoryError if an array may end beyond what a kernel reaches. Constants, which
        alone are only read, have sizes that the compiler has seen."""
        for (memory, offset), access in zip(places, self._accesses, strict=False):
            if access == "read_write" and memory.buffer.size - offset > MOST_BYTES:
                raise MemoryError(
                    f"a buffer has {memory.buffer.size >> 20} MiB, and kernels reach "
                    f"{MOST_BYTES >> 20}: sizes of the inputs are too large for WebGPU"
                )

    def bindings(self, places: Sequence[tuple[WebGpuMemory, int]]) -> Any:
        if len(places) != len(self._accesses):
            raise DeviceError(f"a launch has {len(places)} arguments, not {len(self._accesses)}")
        entries = []
        for number, (memory, offset) in enumerate(places):
            size = min(memory.buffer.size - offset, MOST_BYTES)
            resource = {"buffer": memory.buffer, "offset": offset, "size": size}
            entries.append({"binding": number, "resource": resource})
        try:
            return self._device.create_bind_group(layout=self._layout, entries=entries)
        except self._wgpu.GPUError as error:
            raise DeviceError(f"the arguments of a launch cannot be bound: {error}") from None


def _import_wgpu() -> Any:
    # The loader of Vulkan complains on the standard error if this is not set.
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")
    try:
        import wgpu
    except ImportError:
        raise DeviceError("WebGPU needs the package wgpu: pip install 'farrier[webgpu]'") from None
    return wgpu


def _find_adapter(wgpu: Any) -> Any:
    adapters = [
        adapter
        for adapter in wgpu.gpu.enumerate_adapters_sync()
        if adapter.info["backend_type"] in ("Vulkan", "Metal", "D3D12")
    ]
    if not adapters:
        raise DeviceError(
            "no adapter for WebGPU: a driver for Vulkan is missing, such as Debian's "
            "mesa-vulkan-drivers or the GPU vendor's"
        )
    return min(adapters, key=lambda adapter: adapter.info["adapter_type"] == "CPU")
