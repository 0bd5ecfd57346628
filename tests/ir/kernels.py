"""Kernels for devices whose threads come in blocks, in the form of phases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from farrier.ir.loop import Function
from farrier.ir.parser import parse_ir
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule
from tests.schedule.programs import matmul


def function_of(text: str) -> Function:
    function = parse_ir(text)
    assert isinstance(function, Function)
    return function


REVERSE = function_of(
    """
@function
def reverse(a: f32[16], b: f32[16]):
    for i in block(4):
        with alloc(f32[4] in workgroup) as tile:
            for j in thread(4):
                tile[j] = a[4 * i + j]
            for k in thread(4):
                b[4 * i + k] = tile[3 - k]
"""
)


def row_sums(rows: int, columns: int) -> Function:
    """Sums of rows by 32 threads each: a tree of phases, each of half the threads."""
    tree = "".join(
        f"""
            for u{half} in thread({half}):
                part[u{half}] = part[u{half}] + part[u{half} + {half}]"""
        for half in (16, 8, 4, 2, 1)
    )
    return function_of(
        f"""
@function
def row_sums(a: f32[{rows}, {columns}], b: f32[{rows}]):
    for row in block({rows}):
        with alloc(f32[32] in workgroup) as part:
            for t in thread(32):
                part[t] = 0.0
                for turn in serial({-(-columns // 32)}):
                    if turn * 32 + t < {columns}:
                        part[t] = part[t] + a[row, turn * 32 + t]{tree}
            for v in thread(1):
                b[row] = part[v]
"""
    )


def product(m: int, n: int, k: int, *, tile: int = 16, each: int = 4, depth: int = 8) -> Function:
    """A product of matrices whose blocks compute square tiles: the threads copy parts of both
    operands to workgroup memory, and each adds up `each` by `each` elements."""
    threads = tile // each
    schedule = Schedule(to_loops(matmul(m, n, k)))

    def split_both(prefix: str, number: int) -> None:
        for axis, name in ("m", f"y{number}"), ("n", f"x{number}"):
            schedule.apply("split", f"{prefix}{axis}", each, f"t{name}", f"e{name}")

    schedule.apply("cache_write", "y", "acc")
    schedule.apply("split", "y_m", tile, "by", "m")
    schedule.apply("split", "y_n", tile, "bx", "n")
    schedule.apply("reorder", ("by", "bx", "m", "n"))
    schedule.apply("compute_at", "acc", "bx")
    for number, prefix in enumerate(("acc_init_", "acc_", "")):
        split_both(prefix, number)
    schedule.apply("split", "acc_k", depth, "ko", "ki")
    for number, outer, inner in (0, (), ()), (1, ("ko",), ("ki",)), (2, (), ()):
        nest = (f"ty{number}", f"tx{number}", *inner, f"ey{number}", f"ex{number}")
        schedule.apply("reorder", (*outer, *nest))
    schedule.apply("split_axes", "acc", (each, each))
    for operand in "xw":
        schedule.apply("cache_read", operand, "ko", f"s{operand}")
    for loop in "by", "bx":
        schedule.apply("bind", loop, "block")
    for operand, row in ("x", 1), ("w", 2):
        schedule.apply("set_scope", f"s{operand}", "workgroup")
        schedule.apply("cooperate", f"s{operand}_0", threads**2, row, f"t{operand}")
    for number in range(3):
        for axis in "yx":
            schedule.apply("bind", f"t{axis}{number}", "thread")
    return schedule.function


def tiled_product(m: int, n: int, k: int) -> Function:
    """A product of matrices by the primitive that tiles it."""
    schedule = Schedule(to_loops(matmul(m, n, k)))
    schedule.apply("tile_product", "y", "y", (2, 4), (2, 3), 3)
    return schedule.function


def shared_rows(count: int, length: int, rows: int, threads: int) -> Function:
    """Rows from back to front, scaled by the sum of their squares, by the primitive that shares
    rows."""
    names = ("s", "t", "u", "y")
    function = function_of(
        f"""
@function
def rows(x: f32[{count}, {length}], y: f32[{count}, {length}]):
    with alloc(f32[{count}, {length}] in workspace) as s:
        with alloc(f32[{count}] in workspace) as t:
            with alloc(f32[{count}] in workspace) as u:
                for s_i in serial({count}):
                    for s_j in serial({length}):
                        s[s_i, s_j] = x[s_i, s_j] * x[s_i, s_j]
                for t_init_i in serial({count}):
                    t[t_init_i] = 0.0
                for t_i in serial({count}):
                    for t_k in serial({length}):
                        t[t_i] = t[t_i] + s[t_i, {length - 1} - t_k]
                for u_i in serial({count}):
                    u[u_i] = t[u_i] + 1.0
                for y_i in serial({count}):
                    for y_j in serial({length}):
                        y[y_i, y_j] = s[y_i, {length - 1} - y_j] / u[y_i]
"""
    )
    schedule = Schedule(function)
    schedule.apply("share_rows", names, rows, threads, 4096)
    return schedule.function


def _scaled(x: np.ndarray) -> np.ndarray:
    squares = np.square(x.astype(float))
    return squares[:, ::-1] / (squares.sum(1, keepdims=True) + 1)


def attended(rows: int, columns: int, terms: int, width: int) -> Function:
    """Products of rows that are scaled by their sums, by the primitive that joins two products."""
    function = function_of(
        f"""
@function
def attention(q: f32[{rows}, {terms}], k: f32[{terms}, {columns}], v: f32[{columns}, {width}], \
y: f32[{rows}, {width}]):
    with alloc(f32[{rows}, {columns}] in workspace) as s:
        with alloc(f32[{rows}] in workspace) as t:
            for s_init_m in serial({rows}):
                for s_init_n in serial({columns}):
                    s[s_init_m, s_init_n] = 0.0
            for s_m in serial({rows}):
                for s_n in serial({columns}):
                    for s_k in serial({terms}):
                        s[s_m, s_n] = s[s_m, s_n] + q[s_m, s_k] * k[s_k, s_n]
            for t_init_m in serial({rows}):
                t[t_init_m] = 0.0
            for t_m in serial({rows}):
                for t_k in serial({columns}):
                    t[t_m] = t[t_m] + s[t_m, t_k]
            for y_init_m in serial({rows}):
                for y_init_n in serial({width}):
                    y[y_init_m, y_init_n] = 0.0
            for y_m in serial({rows}):
                for y_n in serial({width}):
                    for y_k in serial({columns}):
                        y[y_m, y_n] = y[y_m, y_n] + s[y_m, y_k] * t[y_m] * v[y_k, y_n]
"""
    )
    schedule = Schedule(function)
    schedule.apply("attend", ("s", "s"), ("t",), ("y", "y"), (2, 4), (2, 2), 3)
    return schedule.function


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q.astype(float) @ k
    return scores * scores.sum(1, keepdims=True) @ v


# Each kernel with what it computes.
KERNELS: dict[str, tuple[Function, Callable[..., np.ndarray]]] = {
    "reverse": (REVERSE, lambda a: a.reshape(4, 4)[:, ::-1].reshape(-1)),
    "row_sums": (row_sums(3, 100), lambda a: a.astype(float).sum(1)),
    "product": (product(32, 16, 24), lambda x, w: x.astype(float) @ w),
    "odd_product": (product(37, 29, 23), lambda x, w: x.astype(float) @ w),
    "tiled_product": (tiled_product(11, 17, 13), lambda x, w: x.astype(float) @ w),
    "shared_row": (shared_rows(3, 13, 1, 8), _scaled),
    "shared_rows": (shared_rows(7, 19, 2, 7), _scaled),
    "own_rows": (shared_rows(5, 9, 4, 1), _scaled),
    "attention": (attended(7, 6, 5, 7), _attention),
    "vector": (product(19, 5, 8, tile=4, each=2, depth=3), lambda x, w: x.astype(float) @ w),
}


def inputs_of(function: Function, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random arrays for all parameters but the last, which is the output."""
    rng = np.random.default_rng(seed)
    return {
        buffer.name: rng.standard_normal(buffer.type.static_shape).astype(buffer.dtype.numpy)
        for buffer in function.params[:-1]
    }
