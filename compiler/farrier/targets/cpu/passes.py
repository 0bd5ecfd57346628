"""The order in which a model for a CPU goes through the passes."""

from __future__ import annotations

ORDER: tuple[str, ...] = (
    "block-products",
    "integer-products",
    "fold-constants",
    "eliminate-common-subexpressions",
    "match-signedness",
    "tabulate-bytes",
    "split-products",
    "simplify",
    "eliminate-common-subexpressions",
    "fold-batch-norm",
    "recast-convolutions",
    "merge-groups",
    "eliminate-dead-code",
    "widen-floats",
    "lower-precision",
    "widen-integers",
    "choose-algorithms",
    "fold-constants",
    "assign-layouts",
    "split-resizes",
    "eliminate-dead-code",
    "transpose-in-place",
    "concatenate-in-place",
    "fuse",
)
