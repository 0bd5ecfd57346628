"""A `.pt2` archive → typed graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from farrier.errors import InvalidModelError
from farrier.frontends.builder import Builder, ImportedModel, built, resolve
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.torch.archive import Archive
from farrier.frontends.torch.build import Build, check_operators
from farrier.frontends.torch.interface import Interface
from farrier.frontends.torch.program import Program, program_of
from farrier.frontends.torch.weights import Weights
from farrier.options.shapes import GivenShape, Hot


def read_program(archive: Archive) -> Program:
    """Parse the program of an archive. Raises InvalidModelError."""
    models = [n for n in archive.names if n.startswith("models/") and n.endswith(".json")]
    if len(models) != 1:
        raise InvalidModelError(
            f"the .pt2 archive holds {len(models)} programs, and not one",
            hint="save one program a file with torch.export.save",
        )
    return program_of(archive.json(models[0]))


def import_model(
    model: Model,
    shapes: Mapping[str, GivenShape] | None = None,
    hot: Sequence[Hot] = (),
    typical: Hot = MappingProxyType({}),
) -> ImportedModel:
    """Return the typed graph of a program. `shapes` fixes dims that the program leaves open, by
    input name; `hot` and `typical` are sizes of dims that stay open, by name of dim.

    Raises InvalidModelError for a damaged file, UnsupportedOperatorError with all unknown operators
    at once, or UsageError for shapes that contradict the program.
    """
    archive = Archive(model.message)
    program = read_program(archive)
    check_operators(program)
    weights = Weights(archive)
    interface = Interface(program)
    signature = resolve(interface.declared(), interface.shapes(shapes or {}), hot, typical)

    notices: list[str] = []

    def add(b: Builder) -> None:
        build = Build(b, program, interface, weights)
        build.run()
        notices[:] = build.notices  # The notices of the last build, the complete one.

    imported = built(signature, add)
    notices += _of_least_sizes(imported, interface.raised(shapes or {}))
    return dataclasses.replace(
        imported,
        notices=(*imported.notices, *notices),
        declaration=interface.declaration(),
    )


def _of_least_sizes(imported: ImportedModel, raised: Collection[str]) -> Iterator[str]:
    """Yield a notice for each dim in `raised` that may have size 1 in the compiled model, although
    the program was exported for sizes of 2 or more."""
    for dim in imported.dims:
        if dim.name in raised and dim.low < 2:
            yield (
                f"torch exported the module for {dim.name} of 2 or more, and Farrier compiles it "
                "for 1 too, where the module may compute otherwise: name the dim with "
                "torch.export.Dim, or state its least size with --shape"
            )
