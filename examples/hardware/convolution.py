"""A convolution of 3 × 3 that reads each pixel once, with lines in banks, a window in registers."""

from farrier.ir.expr import MemoryScope
from farrier.schedule import Schedule

KERNEL = """
@program
def convolution(x: u8[34, 66], w: i8[3, 3]):
    y: i32[32, 64]
    for i, j in axes(32, 64):
        y[i, j] = sum(cast(i32, x[i + k, j + l]) * cast(i32, w[k, l]) for k, l in axes(3, 3))
    return y
"""


def schedule(schedule: Schedule) -> None:
    schedule.cache_write("y", "total")
    schedule.compute_at("total", "y_j")
    run, row = schedule.split("y_i", 32)
    schedule.cache_read("w", run, "factors")
    schedule.reuse_buffer("x", row, "lines")
    schedule.partition("lines", 0, 3)
    schedule.reuse_buffer("lines", "y_j", "window")
    for buffer in ("total", "factors", "window"):
        schedule.set_scope(buffer, MemoryScope.REGISTER)
    schedule.unroll("factors_0", "factors_1", "lines_first", "lines_kept", "lines_new")
    schedule.unroll("window_first_0", "window_first", "window_0", "window_kept", "window_new")
    schedule.unroll("total_init_i", "total_init_j", "total_i", "total_j", "total_k", "total_l")
    schedule.pipeline("lines_first_1")
    schedule.pipeline("lines_1")
    schedule.pipeline("y_j")
