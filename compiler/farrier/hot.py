"""Hot sizes: shapes for which a model with open dims is compiled by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farrier.errors import UsageError
from farrier.importer import ImportedModel
from farrier.ir.dim import evaluate
from farrier.shapes import Hot, NamedDim


def hot_sizes(dims: Sequence[NamedDim], hot: Sequence[Hot]) -> list[dict[str, int]]:
    """For each hot shape the value of every symbol; a dim that it leaves out has its typical one.
    Each shape once, in the order given. Raises UsageError for a size that the model cannot have."""
    for one in hot:
        for dim in dims:
            size = one.get(dim.name, dim.typical * dim.step)
            if size % dim.step or not dim.low <= size // dim.step <= dim.high:
                raise UsageError(
                    f"{dim.name} is {size} in --hot, and the model leaves it {dim.range}",
                    hint="farrier compile -v says which operator needs that",
                )
    found = [
        {dim.symbol: one.get(dim.name, dim.typical * dim.step) // dim.step for dim in dims}
        for one in hot
    ]
    return [sizes for at, sizes in enumerate(found) if sizes not in found[:at]] if dims else []


def shapes_at(model: ImportedModel, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of every input, by name, for these values of the symbols."""
    return {
        name: tuple(evaluate(extent, sizes) for extent in value.type.shape)
        for name, value in zip(model.input_names, model.graph.inputs, strict=True)
    }
