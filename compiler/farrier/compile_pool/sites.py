"""The site of each kernel of a model: the device that its target is for, or the host."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.targets import Target
from farrier.targets.siting import Site, site_of


def choose_sites(
    programs: Mapping[str, TensorProgram | Function], target: Target
) -> dict[str, Site]:
    """Return the site of each kernel, by the key of its task: the device where it can run there."""
    return {key: site_of(program, target) for key, program in programs.items()}
