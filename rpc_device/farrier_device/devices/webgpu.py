"""A GPU as a device, through WebGPU: WGSL modules, buffers, and one queue.

The module needs the package `wgpu`, whose library drives Vulkan, Metal or Direct3D 12. Launches and
copies are recorded in order, and submitted together when the host waits for them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from farrier_device import adapters
from farrier_device.blob import Blob
from farrier_device.devices.device import Code, DeviceError, DeviceLostError, Ticks
from farrier_device.devices.driving import DrivingHost
from farrier_device.devices.host_memory import WallClocked
from farrier_device.devices.timestamps import FEATURE, MOST_PASSES, Timestamps
from farrier_device.devices.webgpu_module import Module, WebGpuMemory, text_of
from farrier_device.measurement import Launch
from farrier_device.webgpu_library import ENABLE_SUBGROUPS, GPU, MOST_BYTES

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
_FLUSH_BYTES = 128 << 20  # The largest cache of a GPU on the market, of AMD's Navi 21.
_WARM_S = 0.01  # Clocks of an idle GPU are up after some milliseconds of work.
_AWAKE_S = 0.05  # A GPU that waits is idle after some tenths of a second.
_SUBMISSION_S = 0.2  # Systems end a submission that takes seconds.


class WebGpuLaunch(NamedTuple):
    """A launch with its arguments; `grid` is the number of thread blocks along two axes."""

    pipeline: Any
    bindings: Any
    grid: tuple[int, int]


class _Received(NamedTuple):
    """A copy to the host in progress: the staging buffer, the number of bytes to skip in it, and
    the host memory that receives the bytes after those."""

    staging: Any
    before: int
    target: memoryview


class WebGpuDevice(WallClocked[WebGpuMemory, WebGpuLaunch]):
    """The adapter with the given name (`adapters.Adapter`); by default the first GPU of this
    machine or, without a GPU, a processor that emulates one.

    `has_open_sizes` means that the sizes of some arrays were unknown to the compiler: an array that
    may be larger than a kernel can address is then rejected. Raises DeviceError if the package or
    the adapter is missing, or if the adapter does not support WebGPU's default limits.
    """

    def __init__(self, adapter: str = "", *, has_open_sizes: bool = False) -> None:
        self._has_open_sizes = has_open_sizes
        try:
            self._wgpu = adapters.import_webgpu()
            self._adapter = adapters.open_adapter(self._wgpu, adapter)
        except adapters.NoAdapterError as error:
            raise DeviceError(str(error)) from None
        self._device = self._requested()
        self._clock = Timestamps.of(self._wgpu, self._device)
        self._entries: dict[str, Module] = {}
        self._encoder: Any = None
        self._pass: Any = None
        self._received: list[_Received] = []
        self._flush: WebGpuMemory | None = None
        self._awake_until = 0.0  # The clock of a GPU goes down some time after its last work.
        self._fence = self.allocate(_WORD, 0)

    def _requested(self) -> Any:
        """Return a `wgpu` device with WebGPU's default limits. Raises DeviceError if the adapter
        does not support them."""
        optional = (FEATURE, *adapters.FEATURES)
        features = [each for each in optional if each in self._adapter.features]
        try:
            return self._adapter.request_device_sync(
                required_limits=LIMITS, required_features=features
            )
        except (self._wgpu.GPUError, RuntimeError) as error:
            raise DeviceError(
                _why_refused(self.name, self._adapter.limits, text_of(error))
            ) from None

    @property
    def name(self) -> str:
        """The name of the adapter, as its driver reports it."""
        return str(self._adapter.info["device"])

    @property
    def is_emulated(self) -> bool:
        """True if the processor emulates the GPU; its times are then not those of a GPU."""
        return bool(self._adapter.info["adapter_type"] == "CPU")

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        """Load the code of a batch. If a module does not compile, binding a launch of that module
        raises the error."""
        self.unload()
        for _, file in code:
            self._add(os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace"))

    def load_modules(self, modules: Mapping[str, str]) -> None:
        """Load WGSL modules, in place of the modules loaded before. Raises DeviceError if a module
        does not compile."""
        self.unload()
        for text in modules.values():
            self._add(text).check()

    def _add(self, text: str) -> Module:
        """Create the module of a WGSL text, and register its entry points. Raises DeviceError if
        the text has no entry point."""
        if adapters.NAGA_SUBGROUPS in self._adapter.features:
            # The functions need this directive in Tint, and naga refuses it.
            text = text.replace(ENABLE_SUBGROUPS, "")
        module = Module(self._wgpu, self._device, text)
        if not module.entries:
            raise DeviceError("this WGSL module has no entry point")
        self._entries |= dict.fromkeys(module.entries, module)
        return module

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
            text = text_of(error)
            if "lost" in text:
                raise DeviceLostError(f"{self.name} is lost") from None
            raise MemoryError(
                f"cannot allocate {nbytes} bytes on {self.name}: {_last_line(text)}"
            ) from None
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
        if any(_overlap(content, each.target) for each in self._received):
            self.synchronize()  # The bytes to send have not arrived yet.
        start, end = offset % _WORD, (offset + len(content)) % _WORD
        if start or (end and offset + len(content) < memory.nbytes):
            first = self._word(memory, offset)[:start]
            last = self._word(memory, offset + len(content))[end:] if end else b""
            content, offset = memoryview(first + bytes(content) + last), offset - start
        elif end:
            content = memoryview(bytes(content) + bytes(_WORD - end))
        if len(content):
            self._submit()  # The recorded steps come before the copy.
            with self._as_device_error():
                self._device.queue.write_buffer(memory.buffer, offset, content)

    def _word(self, memory: WebGpuMemory, offset: int) -> bytes:
        """Return the present value of the aligned 4-byte word that contains the byte at `offset` of
        a memory. All launches and copies are completed first. Only copies of a part of a word need
        this, which are rare."""
        word = bytearray(_WORD)
        self.receive(memory, offset - offset % _WORD, memoryview(word))
        self.synchronize()
        return bytes(word)

    def receive(self, memory: WebGpuMemory, offset: int, target: memoryview) -> None:
        if not len(target.cast("B")):
            return
        before = offset % _WORD
        nbytes = -(-(before + len(target.cast("B"))) // _WORD) * _WORD
        usage = self._wgpu.BufferUsage
        with self._as_device_error():
            staging = self._device.create_buffer(size=nbytes, usage=usage.MAP_READ | usage.COPY_DST)
            start = offset - before
            self._end_pass().copy_buffer_to_buffer(memory.buffer, start, staging, 0, nbytes)
        self._received.append(_Received(staging, before, target.cast("B")))

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
        return WebGpuLaunch(*module.bind(launch.symbol, places), grid)

    def launch(self, bound: WebGpuLaunch) -> None:
        if not bound.grid[0]:
            return
        if self._pass is None:
            with self._as_device_error():
                self._pass = self._recorder().begin_compute_pass()
        self._pass.set_pipeline(bound.pipeline)
        self._pass.set_bind_group(0, bound.bindings)
        self._pass.dispatch_workgroups(*bound.grid)

    def synchronize(self) -> int:
        if self._encoder is not None and not self._received:
            # To map a copy is the one way to wait that all versions of wgpu have.
            self.receive(self._fence, 0, memoryview(bytearray(_WORD)))
        received, self._received = self._received, []
        with self._as_device_error():
            self._submit()
            for staging, before, target in received:
                staging.map_sync(self._wgpu.MapMode.READ)
                target[:] = staging.read_mapped()[before : before + len(target)]
                staging.unmap()
        if received:
            self._awake_until = time.monotonic() + _AWAKE_S
        return 0

    def time(
        self,
        steps: Sequence[WebGpuLaunch],
        repeats: int,
        cold: Sequence[tuple[WebGpuMemory, int]],
    ) -> Ticks:
        """Time the steps by the GPU's timestamps if it supports them. The time of a step starts at
        the end of the previous step, so that the gap between two launches is included."""
        self.synchronize()  # The steps that are queued already do not count.
        if not self.is_emulated and time.monotonic() > self._awake_until:
            self._warm_up(steps)
        with self._as_device_error():
            if self._clock is None:
                return super().time(steps, repeats, cold)
            return self._stamped(self._clock, steps, repeats, bool(cold) and not self.is_emulated)

    def _warm_up(self, steps: Sequence[WebGpuLaunch]) -> None:
        begin = time.monotonic()
        while time.monotonic() < begin + _WARM_S:
            for step in steps:
                self.launch(step)
            self.synchronize()

    def _stamped(
        self, clock: Timestamps, steps: Sequence[WebGpuLaunch], repeats: int, is_cold: bool
    ) -> Ticks:
        each: Ticks = [[] for _ in steps]
        rounds = 1  # This is the number in the next submission.
        while (done := len(each[0])) < repeats:
            begin = time.monotonic()
            rounds = min(rounds, repeats - done)
            ends: list[tuple[int, int]] = []
            run = [step for _ in range(rounds) for step in steps]
            for first in range(0, len(run), MOST_PASSES):
                part = run[first : first + MOST_PASSES]
                starts = [(first + at) % len(steps) == 0 for at in range(len(part))]
                ends += self._stamped_passes(clock, part, [is_cold and new for new in starts])
            for number, (start, end) in enumerate(ends):
                place = number % len(steps)
                before = ends[number - 1][1] if place else start
                each[place].append(max(0, end - before))
            a_round = (time.monotonic() - begin) / rounds
            rounds = max(1, min(MOST_PASSES // len(steps), int(_SUBMISSION_S / a_round)))
        return each

    def _stamped_passes(
        self, clock: Timestamps, run: Sequence[WebGpuLaunch], flushed: Sequence[bool]
    ) -> list[tuple[int, int]]:
        """Run each launch in a compute pass of its own, and return the ticks at which each pass
        began and ended. Before launch i, the caches are flushed if `flushed[i]` is true."""
        for number, (step, is_flushed) in enumerate(zip(run, flushed, strict=True)):
            recorder = self._end_pass()
            if is_flushed:
                recorder.clear_buffer(self._flushing().buffer, 0, _FLUSH_BYTES)
            self._pass = recorder.begin_compute_pass(timestamp_writes=clock.around(number))
            self.launch(step)
        clock.resolve(self._end_pass(), len(run))
        self._submit()
        return clock.read(len(run))

    def _flushing(self) -> WebGpuMemory:
        if self._flush is None:
            self._flush = self.allocate(_FLUSH_BYTES, 0)
        return self._flush

    def ns_of(self, ticks: Sequence[int]) -> list[int]:
        period_ns = 1.0 if self._clock is None else self._clock.period_ns
        return [max(1, round(tick * period_ns)) for tick in ticks]

    def close(self) -> None:
        self._pass = self._encoder = None
        self.unload()

    # -- the queue

    @contextlib.contextmanager
    def _as_device_error(self) -> Iterator[None]:
        """Return a context in which errors of the driver, mostly about a lost device, become
        DeviceErrors."""
        try:
            yield
        except (self._wgpu.GPUError, RuntimeError) as error:
            self._pass = self._encoder = None
            text = text_of(error)
            if "lost" in text:
                raise DeviceLostError(f"{self.name} is lost") from None
            raise DeviceError(f"{self.name} failed: {_last_line(text)}") from None

    def _recorder(self) -> Any:
        if self._encoder is None:
            with self._as_device_error():
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


def driving_host(adapter: str = "") -> DrivingHost[WebGpuDevice]:
    """Open an adapter by its name, with this machine as the host that drives it. Raises
    DeviceError."""
    return DrivingHost(GPU, WebGpuDevice(adapter))


def _why_refused(name: str, has: Mapping[str, int], text: str) -> str:
    for limit, needed in LIMITS.items():
        is_least = limit.startswith("min-")
        if limit in has and (has[limit] > needed if is_least else has[limit] < needed):
            return (
                f"{name} has the limit {limit} of {has[limit]}, but code for WebGPU needs {needed}"
            )
    return f"cannot open {name}: {_last_line(text)}"


def _overlap(source: memoryview, target: memoryview) -> bool:
    """Return whether two byte ranges overlap, source and target of a copy. Read-only memory is
    never a target."""
    if source.readonly or not (len(source) and len(target)):
        return False
    start, other = (ctypes.addressof(ctypes.c_char.from_buffer(view)) for view in (source, target))
    return start < other + len(target) and other < start + len(source)


def _last_line(text: str) -> str:
    """Return the most informative line of an error: wgpu's last line, or in an error of Dawn the
    line before the list of enclosing calls."""
    lines = [line.strip() for line in text.splitlines()]
    causes = [line for line in lines if line and not line.startswith("- While")]
    return (causes or ["no reason was reported"])[-1]
