"""numpy's BLAS on one core: beside others that work.

OpenBLAS, which numpy's wheels bring, shares a product among threads of its own, and those go on
spinning for some 25 ms, each on a core, in case another product comes.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

_limiting = threading.Lock()  # the number of threads is the process's: nobody restores another's


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Products of matrices take one core; who else asks for that waits."""
    with _limiting, _libraries().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
