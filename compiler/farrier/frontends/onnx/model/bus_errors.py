"""Keep the process alive if a memory-mapped file is truncated while it is read.

Reading a page of a mapping beyond the end of its file raises SIGBUS, which ends the process, in
numpy as in ONNX Runtime. The handler here replaces such a page by zeros, so that the reader reaches
its next check of the file, which reports the change. The handler is native code, because it may run
in any thread, with or without Python's lock. It records each replaced page, so that only
compilations of the page's own model fail.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from farrier.errors import StorageError
from farrier.frontends.onnx.model.file import Model
from farrier.llvm import initialized

# `struct sigaction` of 64-bit Linux, in glibc and in musl: the handler, a mask of 128 bytes, flags,
# and a word of libc's own.
_MASK_BYTES, _SA_SIGINFO = 128, 4
_MACHINES = ("x86_64", "aarch64")
_NOTED = 4096  # The number of pages that are recorded, the latest ones; a power of two.

# The siginfo's code and address lie at 8 and 16 (Linux, include/uapi/asm-generic/siginfo.h). Any
# signal other than a bad address in a file keeps its meaning: the default action, once the read is
# tried again.
_TEXT = f"""
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare ptr @signal(i32, ptr)

@seen = global i64 0
@pages = global [{_NOTED} x i64] zeroinitializer

define void @on_bus_error(i32 %number, ptr %info, ptr %context) {{
entry:
  %code_at = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code_at
  %address_at = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %address_at
  %start = and i64 %address, -{mmap.PAGESIZE}
  %page = inttoptr i64 %start to ptr
  %in_file = icmp eq i32 %code, 2
  br i1 %in_file, label %replace, label %leave
replace:
  %made = call ptr @mmap(ptr %page, i64 {mmap.PAGESIZE}, i32 3, i32 50, i32 -1, i64 0)
  %is_there = icmp eq ptr %made, %page
  %count = atomicrmw add ptr @seen, i64 1 monotonic
  %slot = and i64 %count, {_NOTED - 1}
  %note = getelementptr [{_NOTED} x i64], ptr @pages, i64 0, i64 %slot
  store atomic i64 %start, ptr %note monotonic, align 8
  br i1 %is_there, label %done, label %leave
leave:
  %before = call ptr @signal(i32 %number, ptr null)
  br label %done
done:
  ret void
}}
"""


class _Action(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_char * _MASK_BYTES),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_Pages = ctypes.c_uint64 * _NOTED

_lock = threading.Lock()
_inside = 0  # The number of compilations that are guarded now.
_before = _Action()  # The action on a bus error before the first of them.


@contextlib.contextmanager
def reading(model: Model) -> Iterator[None]:
    """A context for reading a model's files in which a truncated file does not end the process. On
    exit it raises InvalidModelError if a file has changed, even after another error, and
    StorageError if a disk could not be read."""
    if model.path is None and not model.locations:
        yield
        return
    with _zeros_beyond_the_end() as replaced:
        first = replaced.count
        try:
            yield
        except Exception:
            _check(model, replaced, first)  # An error caused by the zeros would explain less.
            raise
        _check(model, replaced, first)


def _check(model: Model, replaced: _Replaced, first: int) -> None:
    """Raise InvalidModelError if a file of the model has changed. If none has, but the handler has
    replaced a page of one after the number of replacements was `first`, raise StorageError."""
    model.check_unchanged()
    if replaced.any_of(model, first):
        raise StorageError("a page of a file could not be read", hint="look at the disk")


class _Replaced:
    """The record of the pages that the signal handler has replaced by zeros since the process
    started."""

    def __init__(self, count: ctypes.c_int64, pages: ctypes.Array[ctypes.c_uint64]) -> None:
        self._count, self._pages = count, pages

    @property
    def count(self) -> int:
        return self._count.value

    def any_of(self, model: Model, first: int) -> bool:
        """Check whether a page of one of the model's files was replaced after the number of
        replacements was `first`. Only the latest replacements are recorded; if there were more,
        return True."""
        last = self.count
        if last - first > _NOTED:
            return True
        pages = [self._pages[number % _NOTED] for number in range(first, last)]
        return any(_covers(view, page) for page in pages for view in model.mapped)


def _covers(view: memoryview, page: int) -> bool:
    """Check whether a page belongs to a mapping, which starts at a page boundary but may end within
    a page."""
    start = int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])
    return start <= page < start + view.nbytes


@contextlib.contextmanager
def _zeros_beyond_the_end() -> Iterator[_Replaced]:
    """Install the signal handler, and yield the record of pages that it has replaced."""
    global _inside
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        yield _Replaced(ctypes.c_int64(), _Pages())
        return
    engine = _engine()
    with _lock:
        if not _inside:
            ours = _Action(engine.get_function_address("on_bus_error"), b"", _SA_SIGINFO)
            _sigaction(ours, _before)
        _inside += 1
    try:
        address = engine.get_global_value_address
        seen = ctypes.c_int64.from_address(address("seen"))
        yield _Replaced(seen, _Pages.from_address(address("pages")))
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _sigaction(_before, _Action())


def _sigaction(action: _Action, before: _Action) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sigaction(signal.SIGBUS, ctypes.byref(action), ctypes.byref(before))


@functools.cache
def _engine() -> Any:
    llvm = initialized()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_TEXT), machine)
    engine.finalize_object()
    return engine
