"""The table of target-independent passes by name. A backend adds its own passes, and orders all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from farrier.ir.graph import Graph
from farrier.passes.concatenate_in_place import concatenate_in_place
from farrier.passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from farrier.passes.eliminate_dead_code import eliminate_dead_code
from farrier.passes.fold_batch_norm import fold_batch_norm
from farrier.passes.fold_constants import fold_constants
from farrier.passes.fuse import fuse
from farrier.passes.recast_convolutions import recast_convolutions
from farrier.passes.settings import Settings
from farrier.passes.simplify import simplify
from farrier.passes.split_products import split_products
from farrier.passes.split_resizes import split_resizes
from farrier.passes.transpose_in_place import transpose_in_place
from farrier.passes.widen_floats import widen_floats

Pass: TypeAlias = Callable[[Graph, Settings], Graph]


def for_any_settings(function: Callable[[Graph], Graph]) -> Pass:
    """Return a pass that calls `function` and ignores the settings."""
    return lambda graph, settings: function(graph)


PASSES: Mapping[str, Pass] = {
    "concatenate-in-place": for_any_settings(concatenate_in_place),
    "eliminate-common-subexpressions": for_any_settings(eliminate_common_subexpressions),
    "eliminate-dead-code": for_any_settings(eliminate_dead_code),
    "fold-batch-norm": for_any_settings(fold_batch_norm),
    "fold-constants": for_any_settings(fold_constants),
    "fuse": for_any_settings(fuse),
    "recast-convolutions": for_any_settings(recast_convolutions),
    "simplify": for_any_settings(simplify),
    "split-products": for_any_settings(split_products),
    "split-resizes": for_any_settings(split_resizes),
    "transpose-in-place": for_any_settings(transpose_in_place),
    "widen-floats": for_any_settings(widen_floats),
}
