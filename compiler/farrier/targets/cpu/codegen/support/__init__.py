"""The support library: functions that every linked library contains in addition to its kernels.

LLVM IR text, freestanding (no libc, raw system calls), for Linux on x86-64 and aarch64:

    int64_t  farrier_pool_size(int64_t threads)         bytes the host allocates, 64-byte aligned
    void     farrier_pool_init(void *pool, int64_t threads, const int32_t *cpus)
    void     farrier_pool_work(void *pool, int64_t worker)   life of helper thread 1..threads-1
    void     farrier_pool_shutdown(void *pool)              makes the helpers return
    uint64_t farrier_ticks(void)
    int32_t  farrier_time(entry, args, pool, const int64_t *flush, int64_t n_flush,
                          int64_t repeats, uint64_t *ticks_out)      n_flush pairs (address, bytes)
    double   farrier_max_error(const void *out, const void *expected, int64_t n, int64_t dtype)

If the kernels use registers for which a process needs the Linux kernel's permission (AMX tiles),
`farrier_pool_init` requests the permission. The i32 at byte 16 of the pool is 0 on success and
otherwise the error number; after an error, no entry point may be called. A pool has at most 8,191
threads. `cpus` has one CPU number for each worker, to which the helper threads are bound, or is
null. A parallel loop within a parallel loop runs inline, on the worker that reaches it. In `dtype`,
the low 8 bits are a dtype code; the bits above are 0, or 1 + the bit pattern of elements of
`expected` that are excluded from the comparison.
"""

from __future__ import annotations

import functools
from pathlib import Path

from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.support.elements import element_functions
from farrier.targets.cpu.target import CpuTarget

# The functions that the runtime and the device layer bind, in addition to entry points.
SYMBOLS = (
    "farrier_pool_size",
    "farrier_pool_init",
    "farrier_pool_work",
    "farrier_pool_shutdown",
    "farrier_ticks",
    "farrier_time",
    "farrier_max_error",
)

# The part of the library for machines whose registers need no permission.
NOTHING_TO_ASK = (Path(__file__).parent / "nothing_to_ask.ll").read_text()

_PARTS = ("pool.ll", "timing.ll", "compare.ll")


@functools.cache
def support_object(target: CpuTarget) -> bytes:
    """Return the support library for `target` as an ELF object."""
    folder = Path(__file__).parent
    texts = [target.support]
    texts += [(folder / part).read_text() for part in _PARTS]
    texts += [element_functions()]
    return compile_text("\n".join(texts), target)
