"""The builder on which every frontend stands: types, folding, names, regions, open dims.

It knows no format of models. `Builder` is driven node by node; `built` runs a frontend until what
operators ask of open dims is settled; `ImportedModel` is what the pipeline compiles.
"""

from farrier.frontends.builder.builder import Builder
from farrier.frontends.builder.loops import Iteration
from farrier.frontends.builder.model import ImportedModel
from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.numbers import Number, Numbers
from farrier.frontends.builder.settle import built, built_by
from farrier.frontends.builder.signature import Declared, resolve
from farrier.frontends.builder.source import Source
from farrier.frontends.builder.states import placed, suggestions, with_states

__all__ = [
    "Builder",
    "Declared",
    "ImportedModel",
    "Iteration",
    "Number",
    "Numbers",
    "RawNode",
    "Source",
    "built",
    "built_by",
    "placed",
    "resolve",
    "suggestions",
    "with_states",
]
