"""A model as a frontend has built it: what the pipeline compiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from farrier.artifact.declaration import Declaration
from farrier.ir.graph import Graph
from farrier.options.shapes import NamedDim, Precondition
from farrier.options.states import HeldState


@dataclasses.dataclass(frozen=True, slots=True)
class ImportedModel:
    """A typed graph, whose values are named v0, v1, …, with the model's names of its inputs and
    outputs, in the graph's order, and the user's of its open dims. Those names are data: they are
    shown, and never become code. `strings` are the inputs and outputs that are code points of
    strings.

    `preconditions` are the assumptions about the dims, and `notices` warn of assumptions that leave
    one size of a dim. `axes` are the user's names of each input's axes, "" for axes that were
    numbers from the start. `values` maps the model's names of tensors to the graph's; some of these
    are constants, or were left out because nobody reads them.
    `lists` are the outputs that are sequences in one tensor, with the axis along which the items
    lie. `states` are inputs and outputs that a session keeps between calls. `declaration` is the
    interface as a file of the model declares it, or None if no file does."""

    graph: Graph
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    dims: tuple[NamedDim, ...] = ()
    strings: frozenset[str] = frozenset()
    preconditions: tuple[Precondition, ...] = ()
    axes: tuple[tuple[str, ...], ...] = ()
    values: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)
    notices: tuple[str, ...] = ()
    lists: Mapping[str, int] = dataclasses.field(default_factory=dict)
    states: tuple[HeldState, ...] = ()
    declaration: Declaration | None = None
