"""Find an operator by its name.

Each module of this package declares operators in a tuple `OPERATORS`; other packages add theirs by
an entry point.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping

from farrier import ops
from farrier.ir.graph import Node
from farrier.ops.extension import Imported, Installed, installed
from farrier.ops.operator import Operator
from farrier.ops.traits import Product


def lookup(op: str) -> Operator:
    """Return the operator named `op`. Raises KeyError if neither Farrier nor an installed package
    declares it, and UsageError for a package that is broken."""
    operator = _own().get(op)
    return _installed().operators[op] if operator is None else operator


def product_of(node: Node) -> Product | None:
    """Return the kind of a contraction (its `Product`), or None if the node is not a contraction of
    two factors."""
    return lookup(node.op).product


@functools.cache
def names() -> frozenset[str]:
    """Return the names of all operators that can be looked up."""
    return frozenset((*_own(), *_installed().operators))


def import_of(op: str) -> Imported | None:
    """Return the import rule of the ONNX operator with a qualified name, if another package has
    one."""
    return _installed().imports.get(op)


@functools.cache
def _own() -> Mapping[str, Operator]:
    """Return the operators that the modules of this package declare, by name."""
    modules = pkgutil.iter_modules(ops.__path__, f"{ops.__name__}.")
    return {
        operator.name: operator
        for module in modules
        for operator in getattr(importlib.import_module(module.name), "OPERATORS", ())
    }


@functools.cache
def _installed() -> Installed:
    """Return the operators of other packages. It is cached, since it reads all installed
    distributions."""
    return installed(_own().keys())
