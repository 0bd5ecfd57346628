"""Helpers that compile what a test wrote, load it and call it with numpy arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from farrier.ir.loop import Function
from farrier.targets import Target, host
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.codegen.link import link
from farrier.targets.cpu.codegen.support import support_object
from farrier.targets.cpu.codegen.workspace import plan
from farrier_device.native import Library, Pool, pointers


@pytest.fixture(scope="session")
def target() -> Target:
    return host()


@pytest.fixture
def load(target: Target) -> Iterator[Callable[..., Library]]:
    """Modules of LLVM text, linked with the support library and loaded."""
    with contextlib.ExitStack() as stack:

        def linked(*texts: str) -> Library:
            objects = [compile_text(text, target) for text in texts]
            return stack.enter_context(Library.from_bytes(link([*objects, support_object(target)])))

        yield linked


@pytest.fixture
def pool_of() -> Iterator[Callable[[Library, int], Pool]]:
    """Pools that are shut down when the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda library, threads: stack.enter_context(Pool(library, threads=threads))


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy of `array` whose first byte lies at a multiple of 64."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.fixture
def run_function(load, pool_of, target: Target) -> Callable[..., None]:
    """Compile a loop function and call it with arrays, one a param, in place."""

    def run(function: Function, *arrays: np.ndarray, threads: int = 1) -> None:
        library = load(emit_function(function, target))
        pool = pool_of(library, threads)
        held = [aligned(a) for a in arrays]
        needed = plan(function)
        assert not needed.per_worker  # `differential` has a place for slices
        scratch = aligned(np.zeros(max(needed.shared_bytes, 1), np.uint8))
        addresses = [a.ctypes.data for a in (*held, scratch)]
        assert library.entry(function.name)(pointers(addresses), pool.address) == 0
        for array, result in zip(arrays, held, strict=True):
            array[...] = result

    return run
