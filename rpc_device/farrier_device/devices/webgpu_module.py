"""A WGSL module on a device: its bindings, and a compute pipeline for each entry point."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from farrier_device.devices.device import DeviceError
from farrier_device.webgpu_library import MOST_BYTES

_BINDING = re.compile(
    r"^@group\(0\) @binding\((\d+)\) var<storage, (read|read_write)> (\w+): ([^;]+);\n",
    re.MULTILINE,
)
_ENTRY = re.compile(r"@compute[^{]*?fn (\w+)\(")


class WebGpuMemory(NamedTuple):
    """A buffer, and its size in bytes as requested by the caller."""

    buffer: Any
    nbytes: int


class _Declaration(NamedTuple):
    """The declaration of a kernel parameter in a WGSL module."""

    access: str  # read or read_write
    name: str
    type: str

    @property
    def is_written(self) -> bool:
        """True if kernels may write the parameter."""
        return self.access == "read_write"

    @property
    def binding_type(self) -> str:
        """The type of the parameter's binding, as a bind group layout names it."""
        return "storage" if self.is_written else "read-only-storage"


class _Shared(NamedTuple):
    """A compiled variant of a module, in which parameters with the same memory and offset share a
    binding."""

    layout: Any
    module: Any
    pipelines: dict[str, Any]


class Module:
    """A WGSL module, which is compiled when one of its entry points is first bound.

    WebGPU rejects a launch in which two writable bindings overlap, even if the kernel reads both.
    Arguments at the same memory and offset, such as a value and a view of it, therefore share one
    binding: the second parameter gets the name of the first in the module's text.
    """

    def __init__(self, wgpu: Any, device: Any, text: str) -> None:
        self._wgpu, self._device, self._text = wgpu, device, text
        self.entries: Sequence[str] = _ENTRY.findall(text)
        self._declared = [_Declaration(*groups) for _, *groups in _BINDING.findall(text)]
        self._shared: dict[tuple[int, ...], _Shared] = {}

    def check(self) -> None:
        """Compile the module. Raises DeviceError."""
        self._of(tuple(range(len(self._declared))))

    def check_reach(self, places: Sequence[tuple[WebGpuMemory, int]]) -> None:
        """Raise MemoryError if an array may end beyond the bytes that a kernel can address.
        Read-only arguments (constants and sizes) are not checked, because the compiler knows their
        sizes."""
        for (memory, offset), declared in zip(places, self._declared, strict=False):
            if declared.is_written and memory.buffer.size - offset > MOST_BYTES:
                raise MemoryError(
                    f"a buffer has {memory.buffer.size >> 20} MiB, but kernels reach "
                    f"{MOST_BYTES >> 20} MiB only: the inputs are too large for WebGPU"
                )

    def bind(self, entry: str, places: Sequence[tuple[WebGpuMemory, int]]) -> tuple[Any, Any]:
        """Return the pipeline of an entry point, and the bind group of its arguments. Raises
        DeviceError."""
        if len(places) != len(self._declared):
            raise DeviceError(
                f"the launch has {len(places)} arguments, but the module "
                f"takes {len(self._declared)}"
            )
        first: dict[tuple[int, int], int] = {}
        owners = tuple(
            first.setdefault((id(memory.buffer), offset), number) if declared.is_written else number
            for number, ((memory, offset), declared) in enumerate(
                zip(places, self._declared, strict=True)
            )
        )
        shared = self._of(owners)
        if entry not in shared.pipelines:
            shared.pipelines[entry] = self._pipeline(shared, entry)
        return shared.pipelines[entry], self._bindings(shared, owners, places)

    def _of(self, owners: tuple[int, ...]) -> _Shared:
        """Return the variant of the module for these `owners`, and compile it at its first use.
        Parameter i uses the binding of parameter `owners[i]`, which has the same memory and offset
        (i itself if it shares no binding). Raises DeviceError."""
        if owners not in self._shared:
            entries = [
                {
                    "binding": number,
                    "visibility": self._wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": self._declared[number].binding_type},
                }
                for number in sorted(set(owners))
            ]
            layout = self._device.create_bind_group_layout(entries=entries)
            text = _with_shared(self._text, self._declared, owners)
            try:
                module = self._device.create_shader_module(code=text)
            except self._wgpu.GPUError as error:
                raise DeviceError(f"cannot compile the module: {text_of(error)}") from None
            self._shared[owners] = _Shared(layout, module, {})
        return self._shared[owners]

    def _pipeline(self, shared: _Shared, entry: str) -> Any:
        layout = self._device.create_pipeline_layout(bind_group_layouts=[shared.layout])
        try:
            return self._device.create_compute_pipeline(
                layout=layout, compute={"module": shared.module, "entry_point": entry}
            )
        except self._wgpu.GPUError as error:
            raise DeviceError(f"cannot create the pipeline of {entry}: {text_of(error)}") from None

    def _bindings(
        self,
        shared: _Shared,
        owners: Sequence[int],
        places: Sequence[tuple[WebGpuMemory, int]],
    ) -> Any:
        entries = []
        for number in sorted(set(owners)):
            memory, offset = places[number]
            size = min(end_of(memory, offset, places) - offset, MOST_BYTES)
            resource = {"buffer": memory.buffer, "offset": offset, "size": size}
            entries.append({"binding": number, "resource": resource})
        try:
            return self._device.create_bind_group(layout=shared.layout, entries=entries)
        except self._wgpu.GPUError as error:
            raise DeviceError(f"cannot bind the arguments of a launch: {text_of(error)}") from None


def _with_shared(text: str, declared: Sequence[_Declaration], owners: Sequence[int]) -> str:
    """Return the module's text in which parameter i is replaced by parameter `owners[i]`, whose
    binding it shares. Raises DeviceError if the types of the two differ."""
    names: dict[str, str] = {}
    for own, owner in zip(declared, owners, strict=True):
        other = declared[owner]
        if own.type != other.type:
            raise DeviceError(
                f"{own.name} and {other.name} share memory, but have the different types "
                f"{own.type} and {other.type}"
            )
        if own is not other:
            names[own.name] = other.name
    if not names:
        return text
    kept = _BINDING.sub(lambda match: "" if match[3] in names else match[0], text)
    return re.sub(r"\b\w+\b", lambda word: names.get(word[0], word[0]), kept)


def end_of(memory: WebGpuMemory, offset: int, places: Sequence[tuple[WebGpuMemory, int]]) -> int:
    """Return the offset at which the binding of an argument at `offset` of `memory` ends. This is
    the offset of the next argument in the same buffer or, if there is none, the end of the buffer:
    the arguments in `places` do not overlap, and writable bindings must not."""
    ends = [at for other, at in places if other.buffer is memory.buffer and at > offset]
    return min(ends, default=memory.buffer.size)


def text_of(error: Exception) -> str:
    """Return the text of a driver's error, and clear the error's traceback.

    A call in the package `wgpu` holds the error among its locals, and the error's traceback holds
    that call: a reference cycle, in which the frames of callers hold memoryviews. CPython crashes
    if its garbage collector clears a memoryview before the frame that holds it.
    """
    error.__traceback__ = None
    return str(error)
