"""Link the kernels of a model's variants, for hot sizes and for all sizes, into one library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farrier.compile_pool import Kernels
from farrier.model_tuning.variant import Variant
from farrier.targets import Plan
from farrier.targets.linked import LinkedModel


def planned(variant: Variant, kernels: Kernels, beside: Plan | None = None) -> Plan:
    """Return the memory plan of a variant, given its compiled `kernels`. If an earlier plan
    `beside` is passed, the new plan uses its packed parameters and its order of size arguments."""
    settings = variant.settings
    target, interfaces = settings.target, kernels.interfaces
    return target.backend.plan(variant.program, interfaces, target, settings.threads, beside)


def link(
    variants: Sequence[Variant],
    sizes: Sequence[Mapping[str, int]],
    kernels: Kernels,
    first: Plan | None = None,
) -> LinkedModel:
    """Link a library. The first variant is the model for all sizes, whose plan is `first` if that
    is passed; each other variant is for the hot sizes at its position in `sizes`, by symbol."""
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
