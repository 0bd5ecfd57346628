"""The kernels of a model's variants as one library: code at hot sizes, and at all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farrier.compile_pool import Kernels
from farrier.model_tuning.variant import Variant
from farrier.targets import Plan
from farrier.targets.linked import LinkedModel


def planned(variant: Variant, kernels: Kernels, beside: Plan | None = None) -> Plan:
    """Where everything of a variant lies, whose kernels are among these; beside what that of
    another one has placed, if any."""
    settings = variant.settings
    target, interfaces = settings.target, kernels.interfaces
    return target.backend.plan(variant.program, interfaces, target, settings.threads, beside)


def link(
    variants: Sequence[Variant],
    sizes: Sequence[Mapping[str, int]],
    kernels: Kernels,
    first: Plan | None = None,
) -> LinkedModel:
    """The first variant is the model at all its sizes, planned already where there is `first`, each
    other one that at hot ones: `sizes`, by symbol, are of each."""
    first = planned(variants[0], kernels) if first is None else first
    hot: dict[tuple[int, ...], Plan] = {}
    for variant, given in zip(variants[1:], sizes[1:], strict=True):
        instead = planned(variant, kernels, next(reversed(hot.values()), first))
        # One in which a size decides what others leave to the data would speak of other sizes.
        if instead.is_interface_compatible(first):
            hot[first.size_arguments(given)] = instead
    target = variants[0].settings.target
    return target.backend.assemble(first, kernels.objects, target, hot)
