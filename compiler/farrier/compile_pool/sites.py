"""The site of each kernel of a model: the device that its target is for, or the host."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.targets import Target
from farrier.targets.siting import Site


def choose_sites(
    programs: Mapping[str, TensorProgram | Function], target: Target
) -> dict[str, Site]:
    """Return the site of each kernel, by the key of its task: the device where it can run there."""
    host, *others = target.backend.parts(target)
    if not others:
        return dict.fromkeys(programs, Site(host))
    device = others[-1]
    sites = {}
    for key, program in programs.items():
        reason = target.backend.why_not_on_device(program, target)
        sites[key] = Site(host, reason) if reason else Site(device)
    return sites
