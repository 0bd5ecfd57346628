"""Hot sizes: shapes for which a model with open dims is compiled by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence

from farrier.errors import UsageError
from farrier.importer import ImportedModel
from farrier.ir.dim import Atom, Extent, evaluate, substitute, symbols
from farrier.ir.sizes import with_extents
from farrier.ir.text.extents import parse_extent
from farrier.kernels.choose import Choice
from farrier.options.shapes import Hot, NamedDim
from farrier.partition import Call, task_key
from farrier.space import PANEL
from farrier.tuning.variant import Variant

_PANEL_COST = 1.04  # of a hot kernel's predicted time, at most, for weights that are packed once


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


def check_hot(model: ImportedModel, hot: Sequence[Hot], sizes: Sequence[Mapping[str, int]]) -> None:
    """Raises UsageError where a hot shape breaks what the model was read for; `sizes` are those of
    `hot_sizes`."""
    known = {one.symbol: one.extent for one in model.dims}
    for each in sizes:
        for taken in model.preconditions:
            if taken.extent and evaluate(parse_extent(str(taken.extent), known), each) < 0:
                shown = ", ".join(f"{one.name}={each[one.symbol] * one.step}" for one in model.dims)
                raise UsageError(f"the model cannot have {shown} in --hot: {taken}")
    left = {one.name for one in model.dims}
    for one in hot:
        each = hot_sizes(model.dims, [one])[0] if model.dims else {}
        for names, value in zip(model.axes, model.graph.inputs, strict=True):
            for name, extent in zip(names, value.type.shape, strict=True):
                if name in one.keys() - left and evaluate(extent, each) != one[name]:
                    raise UsageError(
                        f"{name} is {one[name]} in --hot, and the model makes it "
                        f"{evaluate(extent, each)}",
                        hint="farrier compile -v says which operator needs that",
                    )


def shapes_at(model: ImportedModel, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of every input, by name, for these values of the symbols."""
    return {
        name: tuple(evaluate(extent, sizes) for extent in value.type.shape)
        for name, value in zip(model.input_names, model.graph.inputs, strict=True)
    }


def with_shared_panels(hot: Variant, general: Variant) -> Variant:
    """The variant for a hot size, its kernels reading weights in panels as wide as those of the
    general one, where that costs them next to nothing: such weights are packed once."""
    widths = {weights: general.choices[key].decisions.get(PANEL) for weights, key in _read(general)}
    choices = dict(hot.choices)
    for weights, key in _read(hot):
        own, width = choices[key], widths.get(weights)
        if width is None or own.source != "default":
            continue
        found = own.space.first_with(PANEL, width)
        if found is not None and found[1] <= _PANEL_COST * own.space.seconds(own.decisions):
            choices[key] = dataclasses.replace(own, decisions=found[0])
    return dataclasses.replace(hot, choices=choices)


def _read(variant: Variant) -> Iterator[tuple[Hashable, str]]:
    """The constants of two axes or more that kernels read, and the key of who does."""
    program = variant.program
    known = {constant.value.name: constant for constant in program.constants}
    for call in variant.calls:
        for value in call.inputs:
            constant = known.get(program.home(value).name)
            if constant is not None and constant.value.type.rank > 1:
                yield constant.identity, call.task


def with_shared_kernels(hot: Variant, general: Variant, sizes: Mapping[str, int]) -> Variant:
    """The variant for a hot size, with kernels of the general one where these do the same.

    A kernel whose open dims are all 1 at that size, a batch of one above all, runs through as many
    tiles in the same order as one made for it, if their decisions are equal: a second would be
    made, and its weights packed, for nothing.
    """
    known = {key: call for call in general.calls if (key := _key_at(general, call, sizes))}
    calls, choices = [], dict[str, Choice]()
    for call in hot.calls:
        own, same = hot.choices[call.task], known.get(hot.choices[call.task].task.key)
        shared = None if same is None else general.choices[same.task]
        if same is not None and shared is not None and _is_alike(own, shared):
            call = dataclasses.replace(call, task=same.task, dims=(1,) * len(same.dims))
            own = dataclasses.replace(shared, calls=shared.calls)
        calls.append(call)
        choices[call.task] = own
    return dataclasses.replace(hot, program=hot.program.with_calls(calls), choices=choices)


def _is_alike(one: Choice, other: Choice) -> bool:
    return one.space.rule_name == other.space.rule_name and one.decisions == other.decisions


def _key_at(variant: Variant, call: Call, sizes: Mapping[str, int]) -> str:
    """The key of the task that a call is where its dims are all 1 at these sizes, else ""."""
    is_known = all(symbol.name in sizes for symbol in symbols(call.dims))
    if not call.dims or not is_known or any(evaluate(d, sizes) != 1 for d in call.dims):
        return ""
    task = variant.choices[call.task].task
    ones: dict[Atom, Extent] = dict.fromkeys(task.region.dims, 1)

    def change(extent: Extent) -> Extent:
        return substitute(extent, ones)

    return task_key(with_extents(task.region, change), task.constant_inputs)
