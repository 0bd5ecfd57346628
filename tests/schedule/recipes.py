"""Complete schedules, from naive nests to a broadcast-FMA kernel: what space rules build."""

from __future__ import annotations

from farrier.ir.expr import MemoryScope
from farrier.ir.loop import Function
from farrier.ir.types import Layout, PhysicalDim
from farrier.schedule import Schedule


def packed_filters(block: int) -> Layout:
    """Weights W[oc, ic, kh, kw] as [oc / block][ic][kh][kw][block]."""
    whole = (PhysicalDim(1), PhysicalDim(2), PhysicalDim(3))
    return Layout((PhysicalDim(0, block), *whole, PhysicalDim(0, 1, block)))


def conv_tiles(function: Function, vectors: int, points: int, lanes: int = 16) -> Schedule:
    """`conv` then `y` in NCHW<lanes>c: tiles of `vectors` registers of channels by `points`
    columns."""
    s = Schedule(function)
    s.split("y_oc", vectors * lanes, "y_oc_o", "y_oc_i")
    s.split("y_oc_i", lanes, "y_vec", "y_lane")
    s.split("y_ow", points, "y_ow_o", "y_ow_i")
    s.reorder("y_n", "y_oc_o", "y_oh", "y_ow_o", "y_ow_i", "y_vec", "y_lane")
    s.compute_at("conv", "y_ow_o")
    s.set_scope("conv", MemoryScope.REGISTER)
    for nest in ("conv_init", "conv"):
        s.split(f"{nest}_oc", lanes, f"{nest}_vec", f"{nest}_lane")
    s.split("conv_ic", lanes, "conv_ic_o", "conv_ic_i")
    s.reorder("conv_init_ow", "conv_init_vec", "conv_init_lane")
    s.reorder(*("conv_ic_o", "conv_kh", "conv_kw", "conv_ic_i", "conv_ow", "conv_vec", "conv_lane"))
    for nest, column in (("conv_init", "ow"), ("conv", "ow"), ("y", "ow_i")):
        s.vectorize(f"{nest}_lane")
        s.unroll(f"{nest}_vec")
        s.unroll(f"{nest}_{column}")
    s.fuse("y_n", "y_oc_o", "y_outer")
    s.fuse("y_outer", "y_oh", "y_rows")
    s.parallel("y_rows")
    s.transform_layout("w", packed_filters(vectors * lanes))
    return s


def pointwise_tiles(function: Function, vectors: int, points: int, lanes: int = 16) -> Schedule:
    """A 1x1 `conv` of stride 1 then `y`: tiles run over the flattened pixels, across row ends."""
    s = Schedule(function)
    for nest in ("y", "conv_init", "conv"):
        s.fuse(f"{nest}_oh", f"{nest}_ow", f"{nest}_pixel")
    s.merge_axes("conv", 2)
    s.split("y_oc", vectors * lanes, "y_oc_o", "y_oc_i")
    s.split("y_oc_i", lanes, "y_vec", "y_lane")
    s.split("y_pixel", points, "y_pixel_o", "y_pixel_i")
    s.reorder("y_n", "y_oc_o", "y_pixel_o", "y_pixel_i", "y_vec", "y_lane")
    s.compute_at("conv", "y_pixel_o")
    s.set_scope("conv", MemoryScope.REGISTER)
    for nest in ("conv_init", "conv"):
        s.split(f"{nest}_oc", lanes, f"{nest}_vec", f"{nest}_lane")
    s.split("conv_ic", lanes, "conv_ic_o", "conv_ic_i")
    s.reorder("conv_init_pixel", "conv_init_vec", "conv_init_lane")
    s.reorder("conv_ic_o", "conv_kh", "conv_kw", "conv_ic_i", "conv_pixel", "conv_vec", "conv_lane")
    for nest, point in (("conv_init", "pixel"), ("conv", "pixel"), ("y", "pixel_i")):
        s.vectorize(f"{nest}_lane")
        s.unroll(f"{nest}_vec")
        s.unroll(f"{nest}_{point}")
    s.fuse("y_n", "y_oc_o", "y_outer")
    s.fuse("y_outer", "y_pixel_o", "y_tiles")
    s.parallel("y_tiles")
    s.transform_layout("w", packed_filters(vectors * lanes))
    return s


def matmul_tiles(
    function: Function, rows: int, vectors: int, depth: int, lanes: int = 16
) -> Schedule:
    """`y[m, n]`: tiles of `rows` by `vectors` registers of columns, constant `w` packed by
    panels."""
    s = Schedule(function)
    s.cache_write("y", "acc")
    s.split("y_m", rows, "y_m_o", "y_m_i")
    s.split("y_n", vectors * lanes, "y_n_o", "y_n_i")
    s.split("y_n_i", lanes, "y_vec", "y_lane")
    s.reorder("y_n_o", "y_m_o", "y_m_i", "y_vec", "y_lane")
    s.compute_at("acc", "y_m_o")
    s.set_scope("acc", MemoryScope.REGISTER)
    for nest in ("acc_init", "acc"):
        s.split(f"{nest}_n", lanes, f"{nest}_vec", f"{nest}_lane")
    s.split("acc_k", depth, "acc_k_o", "acc_k_i")
    s.reorder("acc_k_o", "acc_k_i", "acc_m", "acc_vec", "acc_lane")
    for nest, row in (("acc_init", "m"), ("acc", "m"), ("y", "m_i")):
        s.vectorize(f"{nest}_lane")
        s.unroll(f"{nest}_vec")
        s.unroll(f"{nest}_{row}")
    s.fuse("y_n_o", "y_m_o", "y_tiles")
    s.parallel("y_tiles")
    panel = vectors * lanes
    s.transform_layout(
        "w", Layout((PhysicalDim(1, panel), PhysicalDim(0), PhysicalDim(1, 1, panel)))
    )
    return s
