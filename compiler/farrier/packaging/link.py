"""Link the kernels of a model's variants to one library: code at hot sizes, and at all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farrier.compile_pool import Kernels
from farrier.model_tuning.variant import Variant
from farrier.targets import Plan
from farrier.targets.linked import LinkedModel


def planned(variant: Variant, kernels: Kernels, beside: Plan | None = None) -> Plan:
    """Return the memory plan of a variant whose kernels are among these. It reuses the placed
    parameters of the plan `beside`, if any."""
    settings = variant.settings
    target, interfaces = settings.target, kernels.interfaces
    return target.backend.plan(variant.program, interfaces, target, settings.threads, beside)


def link(
    variants: Sequence[Variant],
    sizes: Sequence[Mapping[str, int]],
    kernels: Kernels,
    first: Plan | None = None,
) -> LinkedModel:
    """Link a library. The first variant is the model at all its sizes (planned already if `first`
    is set); each other one is for the hot sizes in `sizes`, by symbol, at its position."""
    first = planned(variants[0], kernels) if first is None else first
    hot: dict[tuple[int, ...], Plan] = {}
    for variant, hot_sizes in zip(variants[1:], sizes[1:], strict=True):
        instead = planned(variant, kernels, next(reversed(hot.values()), first))
        # Skip variants whose data-dependent sizes differ from the general variant's: both must
        # share one size table.
        if instead.is_interface_compatible(first):
            hot[first.size_arguments(hot_sizes)] = instead
    target = variants[0].settings.target
    return target.backend.assemble(first, kernels.objects, target, hot)
