"""The passes, by name. A backend says which of them a model goes through, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from farrier.ir.graph import Graph
from farrier.passes.assign_layouts import assign_layouts
from farrier.passes.block_products import block_products
from farrier.passes.choose_algorithms import CHOICE, choose_algorithms
from farrier.passes.concatenate_in_place import concatenate_in_place
from farrier.passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from farrier.passes.eliminate_dead_code import eliminate_dead_code
from farrier.passes.fold_batch_norm import fold_batch_norm
from farrier.passes.fold_constants import fold_constants
from farrier.passes.fuse import fuse
from farrier.passes.integer_products import integer_products
from farrier.passes.lower_precision import lower_precision
from farrier.passes.match_signedness import match_signedness
from farrier.passes.merge_groups import merge_groups
from farrier.passes.recast_convolutions import recast_convolutions
from farrier.passes.settings import Settings
from farrier.passes.simplify import simplify
from farrier.passes.split_products import split_products
from farrier.passes.split_resizes import split_resizes
from farrier.passes.tabulate_bytes import tabulate_bytes
from farrier.passes.transpose_in_place import transpose_in_place
from farrier.passes.widen_floats import widen_floats
from farrier.passes.widen_integers import widen_integers

Pass: TypeAlias = Callable[[Graph, Settings], Graph]


def _for_any_settings(function: Callable[[Graph], Graph]) -> Pass:
    return lambda graph, settings: function(graph)


PASSES: Mapping[str, Pass] = {
    "assign-layouts": assign_layouts,
    "block-products": block_products,
    CHOICE: choose_algorithms,
    "concatenate-in-place": _for_any_settings(concatenate_in_place),
    "eliminate-common-subexpressions": _for_any_settings(eliminate_common_subexpressions),
    "eliminate-dead-code": _for_any_settings(eliminate_dead_code),
    "fold-batch-norm": _for_any_settings(fold_batch_norm),
    "fold-constants": _for_any_settings(fold_constants),
    "fuse": fuse,
    "integer-products": integer_products,
    "lower-precision": lower_precision,
    "match-signedness": match_signedness,
    "merge-groups": merge_groups,
    "recast-convolutions": _for_any_settings(recast_convolutions),
    "simplify": _for_any_settings(simplify),
    "split-products": _for_any_settings(split_products),
    "split-resizes": _for_any_settings(split_resizes),
    "tabulate-bytes": tabulate_bytes,
    "transpose-in-place": _for_any_settings(transpose_in_place),
    "widen-floats": _for_any_settings(widen_floats),
    "widen-integers": widen_integers,
}
