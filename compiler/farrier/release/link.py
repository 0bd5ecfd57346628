"""The kernels of a model's variants as one library: code at hot sizes, and at all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farrier.kernels import Kernels
from farrier.model_tuning.variant import Variant
from farrier.targets import Plan, backend_of
from farrier.targets.linked import LinkedModel


def link(
    variants: Sequence[Variant], sizes: Sequence[Mapping[str, int]], kernels: Kernels
) -> LinkedModel:
    """The first variant is the model at all its sizes, each other one that at hot ones: `sizes`, by
    symbol, are of each."""
    settings = variants[0].settings
    target, threads = settings.target, settings.threads
    backend = backend_of(target)
    planned = backend.plan(variants[0].program, kernels.interfaces, target, threads)
    hot: dict[tuple[int, ...], Plan] = {}
    for variant, given in zip(variants[1:], sizes[1:], strict=True):
        beside = next(reversed(hot.values()), planned)
        instead = backend.plan(variant.program, kernels.interfaces, target, threads, beside)
        # One in which a size decides what others leave to the data would speak of other sizes.
        if instead.stands_for(planned):
            hot[planned.given(given)] = instead
    return backend.assemble(planned, kernels.objects, target, hot)
