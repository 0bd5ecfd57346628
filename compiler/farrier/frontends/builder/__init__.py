"""The graph builder that all frontends use: types, constant folding, names, regions, symbolic dims.

It does not depend on any model format. A frontend adds nodes to a `Builder` one at a time; `built`
repeats this until every question of an operator about symbolic dims has an answer; the resulting
`ImportedModel` is the input of the compilation pipeline.
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
