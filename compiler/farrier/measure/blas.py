"""Restrict numpy's BLAS to one core, so that other work can use the others.

OpenBLAS, which numpy's wheels contain, divides a product among its threads, which afterwards spin
for about 25 ms, each on a core, in case another product follows.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

# The number of threads is global to the process, so changes to it are serialized.
_limiting = threading.Lock()


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Compute matrix products on one core within the `with` block; other threads that enter such a
    block wait."""
    with _limiting, _libraries().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
