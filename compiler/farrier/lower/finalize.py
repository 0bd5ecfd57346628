"""Scheduled function → function ready for code generation."""

from __future__ import annotations

import dataclasses

from farrier.ir.loop import Function
from farrier.lower.halos import merge_halos
from farrier.lower.partition_loops import partition_loops


def finalize(function: Function) -> Function:
    """The function with canonical indices, its tails apart from its hot loops, and halos written
    where outputs are."""
    body = partition_loops(merge_halos(function.body), bool(function.dims))
    return dataclasses.replace(function, body=body)
