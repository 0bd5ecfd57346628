"""Functions without intrinsics, to be run anywhere."""

from __future__ import annotations

import dataclasses

from farrier.intrinsics import expand, lookup
from farrier.ir.loop import Intrinsic
from farrier.ir.statements import map_children


def written_out(function):
    """The function with every call of an intrinsic as the loops that it stands for."""
    count = 0

    def visit(stmt):
        nonlocal count
        if isinstance(stmt, Intrinsic):
            count += 1
            return expand(stmt, lookup(stmt.name), f"i{count}_")
        return map_children(stmt, visit)

    return dataclasses.replace(function, body=visit(function.body))
