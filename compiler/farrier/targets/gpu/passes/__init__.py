"""The graph passes for GPUs."""

from farrier.passes.passes import for_any_settings
from farrier.targets.gpu.passes.byte_products import byte_products
from farrier.targets.gpu.passes.channels_last import channels_last
from farrier.targets.gpu.passes.fuse_attentions import fuse_attentions
from farrier.targets.gpu.passes.merge_products import merge_products
from farrier.targets.gpu.passes.packed_products import packed_products
from farrier.targets.gpu.passes.round_factors import round_factors
from farrier.targets.gpu.passes.share_work import share_work

PASSES = {
    "byte-products": byte_products,
    "channels-last": channels_last,
    "fuse-attentions": fuse_attentions,
    "merge-products": for_any_settings(merge_products),
    "packed-products": packed_products,
    "round-factors": round_factors,
    "share-work": for_any_settings(share_work),
}

__all__ = ["PASSES"]
