"""Helpers that compile what a test wrote, load it and call it with numpy arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from farrier.codegen.link import link
from farrier.codegen.llvm import compile_text
from farrier.codegen.support import support_object
from farrier.target import Target, host
from farrier_device.native import Library, Pool


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
