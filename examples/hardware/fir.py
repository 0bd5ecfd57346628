"""A filter of 16 taps: a result a cycle, with the taps and the last samples in registers."""

from farrier.ir.expr import MemoryScope
from farrier.schedule import Schedule

KERNEL = """
@program
def fir(x: i16[1039], taps: i16[16]):
    y: i32[1024]
    for n in axes(1024):
        y[n] = sum(cast(i32, x[n + k]) * cast(i32, taps[k]) for k in axes(16))
    return y
"""


def schedule(schedule: Schedule) -> None:
    schedule.cache_write("y", "total")
    schedule.compute_at("total", "y_n")
    run, sample = schedule.split("y_n", 1024)
    schedule.cache_read("taps", run, "factors")
    schedule.reuse_buffer("x", sample, "window")
    for buffer in ("total", "factors", "window"):
        schedule.set_scope(buffer, MemoryScope.REGISTER)
    schedule.unroll("factors_0", "window_first", "window_kept", "window_new")
    schedule.unroll("total_init_n", "total_n", "total_k")
    schedule.pipeline(sample)
