"""Graph → graph: the passes that suit a graph to GPUs."""

from farrier.passes.passes import for_any_settings
from farrier.targets.gpu.passes.merge_products import merge_products

PASSES = {"merge-products": for_any_settings(merge_products)}

__all__ = ["PASSES"]
