"""Compile an artifact's kernels again, from the model and the schedules in the artifact.

Nothing is measured or chosen. The resulting library is compared with the artifact's own, byte by
byte: the code depends only on the model, the schedules, the target and the versions of the tools.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from farrier.artifact.schedules import stack_bytes_of
from farrier.compile_pool import CompilePool, helpers_for, lowered
from farrier.errors import ArtifactError
from farrier.frontends.builder import ImportedModel, placed, with_states
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.registry import frontend_of
from farrier.model_tuning.hot import (
    for_any_size,
    hot_asked,
    hot_sizes,
    shapes_at,
    with_own_kernels,
)
from farrier.model_tuning.variant import Variant
from farrier.model_tuning.variant_from_artifact import variant_from_artifact
from farrier.options import CompileOptions
from farrier.options.precision import parse_precision
from farrier.packaging.link import link
from farrier.passes import Settings, prepare
from farrier.runtime.artifact import Artifact
from farrier.targets import parse_target

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result: the model's variants, beginning with the general one, and the imported model.
    `is_same` is true if the library equals the artifact's."""

    imported: ImportedModel
    variants: tuple[Variant, ...]
    is_same: bool

    @property
    def shown(self) -> Variant:
        """The variant that the listing shows: the first one for hot sizes, or the general one if
        there is none."""
        return self.variants[1] if len(self.variants) > 1 else self.variants[0]


def rebuild(
    model: Model,
    options: CompileOptions,
    artifact: Artifact,
    meanwhile: Callable[[tuple[Variant, ...]], T],
) -> tuple[Rebuilt, T]:
    """Compile the kernels of `artifact` again in helper processes; the artifact was compiled from
    `model` with `options`. Meanwhile call `meanwhile` with the variants in this process. Return
    both results. Raises FarrierError."""
    settings = _settings(options, artifact)
    schedules = artifact.schedules
    reports = artifact.manifest.kernels
    import_model = frontend_of(model).import_model
    imported = import_model(model, options.shapes, options.hot, options.typical)
    imported = with_states(imported, options.states)
    hot = hot_sizes(imported.dims, hot_asked(imported, options.hot))
    if len(schedules) != 1 + len(hot):
        raise ArtifactError(f"{artifact.manifest.name} was made with other options")
    count = max(1, helpers_for(len(imported.graph.nodes), options.cores))
    with CompilePool(count, settings.target, settings.threads) as helpers:
        shared = for_any_size(settings, hot)
        general = variant_from_artifact(
            prepare(placed(imported), shared), shared, schedules[0], reports
        )
        variants = [general]
        for sizes, table in zip(hot, schedules[1:], strict=True):
            at_sizes = import_model(model, shapes_at(imported, sizes))
            variant = variant_from_artifact(
                prepare(placed(imported, at_sizes.graph), settings), settings, table, reports
            )
            variants.append(with_own_kernels(variant, general, sizes, table.decisions.keys()))
        choices = {key: choice for each in variants for key, choice in each.choices.items()}
        build_inputs = lowered(choices, settings.target)
        # Which kernels share an object goes by which were begun together (`pipeline`).
        early = general.choices.keys() if hot and not options.tunes else frozenset[str]()
        helpers.begin(
            {key: build_input for key, build_input in build_inputs.items() if key in early}
        )
        helpers.begin(
            {key: build_input for key, build_input in build_inputs.items() if key not in early}
        )
        result = meanwhile(tuple(variants))
        linked = link(variants, [{}, *hot], helpers.compile(build_inputs))
    made_now = [code.file.sha256 for code in linked.code.objects]
    is_same = made_now == [file.sha256 for file in artifact.manifest.code]
    return Rebuilt(imported, tuple(variants), is_same), result


def _settings(options: CompileOptions, artifact: Artifact) -> Settings:
    """Return the compiler's settings. Raises ArtifactError if the artifact was compiled for another
    machine than the options name."""
    target, manifest = parse_target(options.target), artifact.manifest
    made_for = manifest.architecture, manifest.machine, manifest.features
    if (target.arch, target.cpu, target.features) != made_for:
        raise ArtifactError(
            f"{manifest.name} was made for {manifest.machine}, and the options name {target.cpu}"
        )
    threads, _ = target.backend.threads(manifest.backend)
    precision = parse_precision(manifest.precision)
    stack_bytes = stack_bytes_of(artifact.schedules)
    return Settings(target, threads, options.max_layer_error, precision, stack_bytes=stack_bytes)
