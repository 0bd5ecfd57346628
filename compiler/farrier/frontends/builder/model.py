"""The result of a frontend: a typed graph with the model's names, the input of the compilation
pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from farrier.artifact.declaration import Declaration
from farrier.ir.graph import Graph
from farrier.options.shapes import NamedDim, Precondition
from farrier.options.states import HeldState


@dataclasses.dataclass(frozen=True, slots=True)
class ImportedModel:
    """A typed graph whose values are named v0, v1, …, with the model's names of inputs and outputs
    (in the graph's order) and the user's names of open dims. Those names are data: they are shown,
    and never become code. `strings` are the names of inputs and outputs that are strings, stored as
    code points.

    `preconditions` are the assumptions about the dims, and `notices` are warnings of assumptions
    that leave a single size of a dim. `axes` are the user's names of each input's axes, "" for
    constant axes. `values` maps the model's names of tensors to the graph's; the graph may lack
    some of these because they are constants or have no readers. `lists` are the outputs that are
    sequences stored in a single tensor, with the axis of concatenation. `states` are pairs of an
    output and the input to which a session passes it in the next call. `declaration` is the
    interface as declared in the model's file, or None if the model has no file.
    """

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
