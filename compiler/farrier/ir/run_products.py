"""The rules that asynchronous products of warpgroups must keep, as `run_threads` checks them.

A product reads its factors and adds to its fragment at any time between the call that starts it and
the barrier that waits for it. It sees only stores to its factors that a barrier has published, and
accesses to its fragment that a barrier of the warpgroup has ordered. Products that add to the same
fragment are ordered among themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.loop import Intrinsic, Stmt
from farrier.ir.threads import is_fetch

Array: TypeAlias = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Begun:
    """A product that a call has started: the threads that run it, the values of the loop variables,
    and the number of barriers of the block before it."""

    call: Intrinsic
    mask: Array
    variables: Mapping[str, Any]
    time: int


class Products:
    """The products under way in some blocks. While `current` runs, accesses are those of a product,
    which `lands` if it has been waited for. `fail` raises an error at a statement."""

    def __init__(self, fail: Callable[[str, Stmt], NoReturn]) -> None:
        self._fail = fail
        self.current: Begun | None = None
        self.lands = False
        # A group for each barrier that waits for products; the last one is open.
        self._groups: list[list[Begun]] = [[]]
        self._unordered: dict[str, Array] = {}  # Elements of fragments.
        self._unfinished: dict[str, Array] = {}  # The number of products that add to each.
        self._unpublished: dict[str, Array] = {}  # Elements of workgroup buffers.

    def allocate(self, buffer: Buffer, size: int) -> None:
        """Enter the elements of all copies of a buffer."""
        if buffer.scope is MemoryScope.WARPGROUP:
            self._unordered[buffer.name] = np.ones(size, bool)
            self._unfinished[buffer.name] = np.zeros(size, np.int64)
        if buffer.scope is MemoryScope.WORKGROUP:
            self._unpublished[buffer.name] = np.zeros(size, bool)

    def begin(self, product: Begun) -> None:
        self._groups[-1].append(product)

    def close(self, most: int) -> list[Begun]:
        """Close the open group, and return the products of all groups but the latest `most`."""
        ended, left = self._groups[: len(self._groups) - most], self._groups[-most:] if most else []
        self._groups = [*left, []]
        return [product for group in ended for product in group]

    def order(self) -> None:
        """Order all accesses to fragments before later products."""
        for elements in self._unordered.values():
            elements[:] = False

    def publish(self) -> None:
        """Make all stores to workgroup buffers visible to later products."""
        for elements in self._unpublished.values():
            elements[:] = False

    def read(self, buffer: Buffer, at: Array, stmt: Stmt, written: Array | None) -> None:
        """Check a read of elements; `written` is the number of barriers before the last write of
        each."""
        if buffer.scope is MemoryScope.WARPGROUP:
            self._touch(buffer, at, stmt)
        if buffer.scope is not MemoryScope.WORKGROUP or self.current is None:
            return
        if np.any(self._unpublished[buffer.name][at]):
            self._fail(f"a product reads an element of {buffer.name} that is not published", stmt)
        if self.lands and written is not None and np.any(written > self.current.time):
            message = f"{buffer.name} is written before a barrier waits for the product that reads"
            self._fail(message, stmt)

    def write(self, buffer: Buffer, at: Array, stmt: Stmt) -> bool:
        """Check a write of elements. Return False if it takes place only when the product is
        waited for."""
        if self.current is None:
            if buffer.scope is MemoryScope.WARPGROUP:
                self._touch(buffer, at, stmt)
            if buffer.scope is MemoryScope.WORKGROUP:
                is_fetched = isinstance(stmt, Intrinsic) and is_fetch(stmt.name)
                self._unpublished[buffer.name][at] = not is_fetched
            return True
        self._unfinished[buffer.name][at] += -1 if self.lands else 1
        return self.lands

    def _touch(self, buffer: Buffer, at: Array, stmt: Stmt) -> None:
        if self.current is not None:
            if not self.lands and np.any(self._unordered[buffer.name][at]):
                self._fail(f"no barrier orders accesses to {buffer.name} before a product", stmt)
            return
        if np.any(self._unfinished[buffer.name][at]):
            self._fail(f"no barrier waits for the product that adds to {buffer.name}", stmt)
        self._unordered[buffer.name][at] = True
