"""An object that stands for libcuda's functions, over the emulator."""
# ruff: noqa: N802, N815

from __future__ import annotations

import ctypes
import itertools
import threading

import numpy as np

from farrier_device.cuda_library import MAP_BYTES, ROW_BYTES
from farrier_device.devices.libcuda import (
    L2_BYTES,
    MAJOR,
    MINOR,
    MOST_SHARED_BYTES,
    SHARED_BYTES,
    THREADS,
    UNITS,
)
from tests.targets.cuda import emulator
from tests.targets.cuda.fetches import encoded_map
from tests.targets.cuda.memory import Memory
from tests.targets.cuda.ptx import PtxError, kernels_of

ILLEGAL_ADDRESS, INVALID_CONTEXT, NO_BINARY = 700, 201, 209
_INVALID_VALUE = 1
_MOST_ROWS = 256  # Of a tile that a tensor map describes.
_STATIC_BYTES = 48 << 10  # Of shared memory that a launch may set without an attribute.
ASSEMBLED = b"ELF"  # What stands before the PTX of a cubin that this driver can run.
_NAMES = {
    _INVALID_VALUE: b"CUDA_ERROR_INVALID_VALUE",
    2: b"CUDA_ERROR_OUT_OF_MEMORY",
    100: b"CUDA_ERROR_NO_DEVICE",
    INVALID_CONTEXT: b"CUDA_ERROR_INVALID_CONTEXT",
    NO_BINARY: b"CUDA_ERROR_NO_BINARY_FOR_GPU",
    ILLEGAL_ADDRESS: b"CUDA_ERROR_ILLEGAL_ADDRESS",
}
_ATTRIBUTES = {UNITS: 4, L2_BYTES: 1 << 20, SHARED_BYTES: 228 << 10, THREADS: 1024}


def _bytes(address, nbytes):
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


class Library:
    """A machine with one GPU of a capability, whose driver is for some version of CUDA. With
    `codes` a kernel that fails is a code of the driver, as it is on a GPU, and no PtxError. A
    `machine` (`compiled.Machine`) runs the kernels in the emulator's place."""

    def __init__(
        self,
        capability=(8, 0),
        cuda=12080,
        free_bytes=1 << 30,
        devices=1,
        codes=False,
        machine=None,
    ):
        self._codes, self._code = codes, 0
        self._machine = machine
        self._capability, self._cuda = capability, cuda
        self._free, self._devices = free_bytes, devices
        self.memory = Memory()
        self.loaded = []  # The kinds of modules.
        self.launches = []  # The names of kernels that have run.
        self.calls = []  # The names of functions that launch, copy or update, in order.
        self._graphs = {}
        self._sizes = {}
        self._modules = {}
        self._functions = {}
        self._most_shared = {}  # Bytes that launches of a function may set.
        self._handles = itertools.count(1)
        self.retained = 0  # The references to the primary context.
        self._contexts = threading.local()  # The stack of each thread.

    def fail(self, code):
        """Have the context be lost by a kernel."""
        self._code = code

    def cuInit(self, flags):
        return 0 if self._devices else 100

    def cuDriverGetVersion(self, version):
        version._obj.value = self._cuda
        return 0

    def cuGetErrorName(self, code, name):
        name._obj.value = _NAMES.get(code)
        return 0

    def cuDeviceGetCount(self, count):
        count._obj.value = self._devices
        return 0

    def cuDeviceGet(self, device, number):
        device._obj.value = number
        return 0

    def cuDeviceGetName(self, name, nbytes, device):
        name.value = b"Emulated"
        return 0

    def cuDeviceGetAttribute(self, value, attribute, device):
        major, minor = self._capability
        value._obj.value = {MAJOR: major, MINOR: minor, **_ATTRIBUTES}[attribute]
        return 0

    def cuDeviceGetPCIBusId(self, text, nbytes, device):
        text.value = b"0000:01:00.0"
        return 0

    def cuDeviceTotalMem_v2(self, nbytes, device):
        nbytes._obj.value = self._free
        return 0

    def _handle(self, result, *arguments):
        result._obj.value = next(self._handles)
        return 0

    cuStreamCreate = cuEventCreate = _handle

    def cuDevicePrimaryCtxRetain(self, context, number):
        self.retained += 1
        return self._handle(context)

    def cuDevicePrimaryCtxRelease_v2(self, number):
        self.retained -= 1
        return 0

    @property
    def entered(self):
        """The stack of contexts of this thread."""
        return self._contexts.__dict__.setdefault("stack", [])

    def cuCtxSetCurrent(self, context):
        self.entered[-1:] = [context]
        return 0

    def cuCtxPushCurrent_v2(self, context):
        self.entered.append(context)
        return 0

    def cuCtxPopCurrent_v2(self, context):
        context._obj.value = self.entered.pop()
        return 0

    def _done(self, *arguments):
        return 0

    def cuStreamSynchronize(self, stream):
        return self._code  # A context that is lost stays so.

    cuStreamDestroy_v2 = cuEventRecord = cuEventDestroy_v2 = _done

    def cuEventElapsedTime(self, milliseconds, start, end):
        milliseconds._obj.value = 1.0
        return 0

    def cuModuleLoadData(self, module, text):
        is_cubin = text.startswith((ASSEMBLED, b"\x7fELF"))
        text = text.removeprefix(ASSEMBLED)
        own = b".target sm_%d%d" % self._capability
        if is_cubin and not any(own + end in text for end in (b"\n", b"a\n")):
            return NO_BINARY
        self.loaded.append("cubin" if is_cubin else "ptx")
        self._handle(module)
        kernels = self._modules[module._obj.value] = kernels_of(text.decode())
        if self._machine is not None:
            self._machine.add(kernels.values())
        return 0

    def cuModuleUnload(self, module):
        del self._modules[module]
        return 0

    def cuModuleGetFunction(self, function, module, name):
        self._handle(function)
        self._functions[function._obj.value] = self._modules[module][name.decode()]
        return 0

    def cuFuncSetAttribute(self, function, attribute, value):
        if attribute != MOST_SHARED_BYTES or value > _ATTRIBUTES[SHARED_BYTES]:
            return _INVALID_VALUE
        self._most_shared[function] = value
        return 0

    def cuTensorMapEncodeTiled(self, result, kind, rank, address, sizes, strides, box, steps, *how):
        def words(at, kind, count):
            return list((kind * count).from_address(at))

        (width, height), (stride,) = (
            words(sizes, ctypes.c_uint64, 2),
            words(strides, ctypes.c_uint64, 1),
        )
        columns, rows = words(box, ctypes.c_uint32, 2)
        element = {0: 1, 1: 2}[kind]
        is_right = rank == 2 and how == (0, 3, 2, 0) and words(steps, ctypes.c_uint32, 2) == [1, 1]
        aligned = not (result % 64 or address % 16 or stride % 16) and stride == width * element
        if not (is_right and aligned and columns * element == ROW_BYTES and rows <= _MOST_ROWS):
            return _INVALID_VALUE
        described = encoded_map(address, element, width, height, rows)
        ctypes.memmove(result, described, len(described))
        return 0

    def cuMemGetInfo_v2(self, free, total):
        free._obj.value = self._free
        return 0

    def cuMemAlloc_v2(self, address, nbytes):
        if not self.entered:
            return INVALID_CONTEXT
        if nbytes > self._free:
            return 2
        address._obj.value = self.memory.allocate(nbytes)
        self._sizes[address._obj.value] = nbytes
        self._free -= nbytes
        return 0

    def cuMemFree_v2(self, address):
        if not self.entered:
            return INVALID_CONTEXT
        self.memory.free(address)
        self._free += self._sizes.pop(address)
        return 0

    def cuMemsetD8Async(self, address, byte, nbytes, stream):
        self.memory.write(address, np.full(nbytes, byte, np.uint8))
        return 0

    def cuMemcpyHtoDAsync_v2(self, address, source, nbytes, stream):
        self.calls.append("cuMemcpyHtoDAsync_v2")
        self.memory.write(address, _bytes(source, nbytes))
        return 0

    def cuMemcpyDtoHAsync_v2(self, target, address, nbytes, stream):
        self.calls.append("cuMemcpyDtoHAsync_v2")
        _bytes(target, nbytes)[:] = self.memory.read(address, nbytes)
        return 0

    def cuMemcpyDtoDAsync_v2(self, target, source, nbytes, stream):
        self.calls.append("cuMemcpyDtoDAsync_v2")
        self.memory.write(target, self.memory.read(source, nbytes))
        return 0

    def cuLaunchKernel(self, function, *rest):
        (blocks, _, _, threads, _, _), (shared, _, pointers, _) = rest[:6], rest[6:]
        self.calls.append("cuLaunchKernel")
        address = ctypes.addressof(pointers)
        return self._run(self._bound(function, blocks, threads, shared, address))

    def _bound(self, function, blocks, threads, shared, pointers):
        """Return a launch with the values of its arguments, which the driver copies."""
        kernel = self._functions[function]
        assert shared == kernel.launched_bytes <= self._most_shared.get(function, _STATIC_BYTES)
        places = (ctypes.c_void_p * len(kernel.params)).from_address(pointers)
        values = [
            bytes((ctypes.c_char * MAP_BYTES).from_address(each))
            if name in kernel.maps
            else ctypes.c_uint64.from_address(each).value
            for name, each in zip(kernel.params, places, strict=True)
        ]
        return kernel, blocks, threads, values

    def _run(self, bound):
        kernel, blocks, threads, values = bound
        self.launches.append(kernel.name)
        try:
            runner = emulator if self._machine is None else self._machine
            runner.launch(kernel, blocks, threads, values, self.memory)
        except PtxError:
            if not self._codes:
                raise
            self._code = ILLEGAL_ADDRESS
        return 0

    # -- graphs: lists of nodes by their handles, in the order of their dependencies

    def cuGraphCreate(self, graph, flags):
        self._handle(graph)
        self._graphs[graph._obj.value] = {}
        return 0

    def cuGraphAddKernelNode(self, node, graph, before, count, params):
        nodes = self._graphs[graph]
        assert list(before[:count]) == list(nodes)[-1:]
        self._handle(node)
        nodes[node._obj.value] = self._of(params._obj)
        return 0

    def _of(self, params):
        (blocks, *ones), (threads, *others) = params.grid, params.block
        assert ones == others == [1, 1]
        shared = params.shared_bytes
        return self._bound(params.function, blocks, threads, shared, params.pointers)

    def cuGraphInstantiateWithFlags(self, executable, graph, flags):
        self._handle(executable)
        self._graphs[executable._obj.value] = dict(self._graphs[graph])
        return 0

    def cuGraphExecKernelNodeSetParams(self, executable, node, params):
        self.calls.append("cuGraphExecKernelNodeSetParams")
        assert node in self._graphs[executable]
        self._graphs[executable][node] = self._of(params._obj)
        return 0

    def cuGraphLaunch(self, executable, stream):
        self.calls.append("cuGraphLaunch")
        for bound in self._graphs[executable].values():
            self._run(bound)
        return 0

    def cuGraphDestroy(self, graph):
        del self._graphs[graph]
        return 0

    cuGraphExecDestroy = cuGraphDestroy
