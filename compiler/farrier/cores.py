"""Work on large arrays, shared by the cores of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def on_cores(
    function: Callable[[T], None], parts: Sequence[T], then: Callable[[T], None] | None = None
) -> None:
    """Calls `function` with each of the parts, some at a time, and `then` with one after another in
    their order, each when it is done, while later ones are worked on. Raises what a call raises.

    numpy works without Python's lock, so that copies and sums take a share of the time; and so does
    the memory that they write to, which a virtual machine may take up to 4 ms a megabyte to hand
    out.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as cores:
        for part, _ in zip(parts, cores.map(function, parts), strict=True):
            if then is not None:
                then(part)
