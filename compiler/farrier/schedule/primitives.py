"""The table of primitives by the names that traces use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from farrier.ir.expr import MemoryScope
from farrier.ir.loop import Function
from farrier.schedule.attend import attend
from farrier.schedule.attend_fragments import attend_fragments
from farrier.schedule.buffer_primitives import (
    hoist,
    merge_axes,
    pad_axis,
    partition,
    set_scope,
    swizzle,
    transform_layout,
)
from farrier.schedule.cache_read import cache_read
from farrier.schedule.cache_write import cache_write
from farrier.schedule.choose import choose
from farrier.schedule.compute_at import compute_at, compute_whole_at
from farrier.schedule.cut import cut
from farrier.schedule.double_buffer import double_buffer
from farrier.schedule.inline import inline
from farrier.schedule.kind_primitives import (
    dot,
    group,
    independent,
    parallel,
    pipeline,
    serialize,
    unroll,
    vectorize,
)
from farrier.schedule.loop_primitives import fuse, reorder, split, split_evenly
from farrier.schedule.prefetch import prefetch
from farrier.schedule.reuse_buffer import reuse_buffer
from farrier.schedule.rfactor import rfactor
from farrier.schedule.share_rows import share_rows
from farrier.schedule.share_sums import share_sums
from farrier.schedule.subgroup_product import subgroup_product
from farrier.schedule.sum_neighbours import sum_neighbours
from farrier.schedule.tensorize import tensorize
from farrier.schedule.thread_primitives import bind, cooperate, split_axes
from farrier.schedule.tile_product import tile_product
from farrier.schedule.transpose_tiles import transpose_tiles
from farrier.schedule.warpgroup_product import warpgroup_product

Primitive: TypeAlias = Callable[..., Function]

PRIMITIVES: dict[str, Primitive] = {
    "choose": choose,
    "split": split,
    "split_evenly": split_evenly,
    "fuse": fuse,
    "cut": cut,
    "reorder": reorder,
    "independent": independent,
    "parallel": parallel,
    "serialize": serialize,
    "vectorize": vectorize,
    "unroll": unroll,
    "dot": dot,
    "group": group,
    "inline": inline,
    "cache_read": cache_read,
    "cache_write": cache_write,
    "compute_at": compute_at,
    "compute_whole_at": compute_whole_at,
    "set_scope": lambda function, buffer, scope: set_scope(function, buffer, MemoryScope(scope)),
    "hoist": hoist,
    "transform_layout": transform_layout,
    "merge_axes": merge_axes,
    "pad_axis": pad_axis,
    "swizzle": swizzle,
    "prefetch": prefetch,
    "rfactor": rfactor,
    "tensorize": tensorize,
    "bind": bind,
    "cooperate": cooperate,
    "split_axes": split_axes,
    "double_buffer": double_buffer,
    "tile_product": tile_product,
    "sum_neighbours": sum_neighbours,
    "subgroup_product": subgroup_product,
    "warpgroup_product": warpgroup_product,
    "share_rows": share_rows,
    "share_sums": share_sums,
    "transpose_tiles": transpose_tiles,
    "attend": attend,
    "attend_fragments": attend_fragments,
    "pipeline": pipeline,
    "partition": partition,
    "reuse_buffer": reuse_buffer,
}
