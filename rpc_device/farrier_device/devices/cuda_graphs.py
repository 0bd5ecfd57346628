"""Sequences of launches as CUDA graphs, each of which the driver starts with a single call.

A graph is created for each sequence of kernels and grids; a model therefore has a graph for each
set of its dims. If only other arguments change, they are updated in the existing graph.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from farrier_device.devices.libcuda import CudaError, Driver

_MOST = 64  # Graphs: the models of a process, with the dims of their last runs.
_FUNCTIONS = ("cuGraphInstantiateWithFlags", "cuGraphExecKernelNodeSetParams")


class CudaLaunch(NamedTuple):
    """A launch with its arguments: `pointers` point to the elements of `values`. `shared_bytes` are
    those of shared memory beyond what the module declares."""

    symbol: str
    function: int
    blocks: int
    threads: int
    shared_bytes: int
    values: Any
    pointers: Any


class NodeParams(ctypes.Structure):
    """The C structure CUDA_KERNEL_NODE_PARAMS_v1."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("pointers", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
    )


class _Graph(NamedTuple):
    """An executable graph, its nodes in order, and the launches whose arguments the nodes contain
    now."""

    executable: int
    nodes: tuple[int, ...]
    held: list[CudaLaunch]


class CudaGraphs:
    """The CUDA graphs of a context."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._graphs: dict[tuple[tuple[int, int, int], ...], _Graph] = {}
        self._seen: dict[tuple[tuple[int, int, int], ...], None] = {}
        self._are_possible = all(map(driver.has, _FUNCTIONS))

    def launch(self, launches: Sequence[CudaLaunch], stream: int) -> bool:
        """Start the launches, in order, as one graph. Return False if the caller has to start them
        separately: a sequence becomes a graph at its second use. Raises CudaError."""
        if len(launches) < 2 or not self._are_possible:
            return False
        key = tuple((each.function, each.blocks, each.threads) for each in launches)
        graph = self._graphs.pop(key, None)
        if graph is None:
            if key not in self._seen:
                self._seen[key] = None
                _forget_oldest(self._seen)
                return False
            graph = self._made(launches)
        self._graphs[key] = graph  # The last one is that of the last run.
        if len(self._graphs) > _MOST:
            self._destroy(self._graphs.pop(next(iter(self._graphs))))
        self._update(graph, launches)
        self._driver.call("cuGraphLaunch", graph.executable, stream)
        return True

    def clear(self) -> None:
        """Destroy all graphs, because their kernels are about to be unloaded."""
        for graph in self._graphs.values():
            self._destroy(graph)
        self._graphs, self._seen = {}, {}

    def _made(self, launches: Sequence[CudaLaunch]) -> _Graph:
        driver = self._driver
        graph = driver.handle("cuGraphCreate", 0)
        nodes: list[int] = []
        for each in launches:
            before = (ctypes.c_void_p * 1)(*nodes[-1:])
            params = ctypes.byref(_params(each))
            count = min(1, len(nodes))
            nodes.append(driver.handle("cuGraphAddKernelNode", graph, before, count, params))
        executable = driver.handle("cuGraphInstantiateWithFlags", graph, 0)
        driver.call("cuGraphDestroy", graph)
        return _Graph(executable, tuple(nodes), list(launches))

    def _update(self, graph: _Graph, launches: Sequence[CudaLaunch]) -> None:
        for place, (node, held, new) in enumerate(
            zip(graph.nodes, graph.held, launches, strict=True)
        ):
            if held is not new:
                params = ctypes.byref(_params(new))
                self._driver.call("cuGraphExecKernelNodeSetParams", graph.executable, node, params)
                graph.held[place] = new

    def _destroy(self, graph: _Graph) -> None:
        with contextlib.suppress(CudaError):  # Where the context is gone, so is the graph.
            self._driver.call("cuGraphExecDestroy", graph.executable)


def _params(launch: CudaLaunch) -> NodeParams:
    grid = (ctypes.c_uint * 3)(launch.blocks, 1, 1)
    block = (ctypes.c_uint * 3)(launch.threads, 1, 1)
    pointers = ctypes.addressof(launch.pointers)
    shared = launch.shared_bytes
    return NodeParams(launch.function, grid, block, shared, pointers, None)


def _forget_oldest(seen: dict[tuple[tuple[int, int, int], ...], None]) -> None:
    if len(seen) > _MOST:
        del seen[next(iter(seen))]
