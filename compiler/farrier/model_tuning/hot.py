"""Hot sizes: shapes for which a model with open dims is compiled by itself."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

from farrier.compile_pool.choose import ScheduledTask
from farrier.errors import UsageError
from farrier.frontends.builder import ImportedModel
from farrier.ir.dim import Atom, Extent, evaluate, symbols
from farrier.ir.sizes import substituted
from farrier.ir.tensor import TensorProgram
from farrier.ir.text.extents import parse_extent
from farrier.model_tuning.variant import Variant
from farrier.options import TYPICAL_ALONE
from farrier.options.shapes import Hot, NamedDim
from farrier.partition import Call, Task, task_key
from farrier.passes import Settings
from farrier.space import PANEL

_PANEL_COST = 1.04  # of a hot kernel's predicted time, at most, for weights that are packed once
_OPEN_COST = 1.15  # time of a general kernel over that of a hot one with the same decisions
_SHARED_COST = 0.015  # of a hot model's predicted time, at most, lost to general kernels in it


def hot_asked(model: ImportedModel, hot: Sequence[Hot]) -> Sequence[Hot]:
    """The hot shapes that a user asks for. By default these are the typical sizes, and none where
    a state grows: its size is another at every call."""
    is_default = tuple(hot) == TYPICAL_ALONE
    return () if is_default and any(state.axis is not None for state in model.states) else hot


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


def for_any_size(settings: Settings, hot: Sequence[Mapping[str, int]]) -> Settings:
    """Those of a model's form for any size, where it has forms at `hot` sizes as well. A size at
    which all open dims are 1, as a batch is, takes the general form's kernels."""
    is_beside = any(size != 1 for sizes in hot for size in sizes.values())
    return dataclasses.replace(settings, beside_hot=is_beside)


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
    """The variant for a hot size, with kernels of the general one where these do as well.

    A kernel whose open dims are all 1 at that size, a batch of one above all, runs through as many
    tiles in the same order as one made for it, if their decisions are equal. Of others those are
    taken that the model spends little time in: a second kernel would be made, and its weights
    packed, for next to nothing.
    """
    known = _known_at(general, sizes)
    runs = collections.Counter[str]()
    for call in hot.calls:
        runs[call.task] += call.runs
    spent = {key: runs[key] * _seconds(one) for key, one in hot.choices.items()}
    left = _SHARED_COST * sum(spent.values())
    losses: dict[str, float] = {}
    for key, own in hot.choices.items():
        same = known.get(own.task.key)
        if same is not None:
            ratio = _ratio(own, general.choices[same.task], same.dims)
            if ratio is not None:
                losses[key] = spent[key] * max(0.0, ratio - 1)
    shared: dict[str, Call] = {}
    for key in sorted(losses, key=lambda key: losses[key] / _stages(hot.choices[key])):
        if losses[key] <= left:
            left -= losses[key]
            shared[key] = known[hot.choices[key].task.key]
    return _sharing(hot, general, shared)


def with_own_kernels(
    hot: Variant, general: Variant, sizes: Mapping[str, int], own: Collection[str]
) -> Variant:
    """The same where it is known which kernels are the hot size's `own`, by key."""
    known = _known_at(general, sizes)
    keys = {key: one.task.key for key, one in hot.choices.items() if key not in own}
    shared = {key: known[task] for key, task in keys.items() if task in known}
    return _sharing(hot, general, shared)


def _sharing(hot: Variant, general: Variant, shared: Mapping[str, Call]) -> Variant:
    """The variant with calls of the general one's kernels, by the key of what they replace."""
    calls, choices = [], dict[str, ScheduledTask]()
    for call in hot.calls:
        own, same = hot.choices[call.task], shared.get(call.task)
        if same is not None:
            call = dataclasses.replace(call, task=same.task, dims=same.dims)
            own = dataclasses.replace(general.choices[same.task], calls=own.calls)
        calls.append(call)
        choices[call.task] = own
    return dataclasses.replace(hot, program=hot.program.with_calls(calls), choices=choices)


def _stages(choice: ScheduledTask) -> int:
    """How many nests a kernel begins as: what its code takes to make goes by that."""
    return len(choice.program.stages) if isinstance(choice.program, TensorProgram) else 1


def _seconds(choice: ScheduledTask) -> float:
    """Predicted seconds of a call."""
    return choice.space.seconds(choice.decisions)


def _ratio(own: ScheduledTask, shared: ScheduledTask, dims: Sequence[Extent]) -> float | None:
    """The predicted seconds of a general kernel, called with these dims, over those of one made for
    them; None where that cannot be told, or the latter was tuned."""
    if own.space.rule_of(own.decisions) != shared.space.rule_of(shared.decisions):
        return None
    if own.decisions == shared.decisions and all(one == 1 for one in dims):
        return 1.0
    if own.source != "default" or not own.space.contains(shared.decisions):
        return None
    return _OPEN_COST * own.space.seconds(shared.decisions) / _seconds(own)


def _known_at(variant: Variant, sizes: Mapping[str, int]) -> dict[str, Call]:
    """Calls of the variant, their dims as these sizes make them, by the key of the task that they
    are then."""
    found: dict[tuple[str, tuple[Extent, ...]], Call] = {}
    for call in variant.calls:
        if call.dims and all(symbol.name in sizes for symbol in symbols(call.dims)):
            dims = tuple(evaluate(one, sizes) for one in call.dims)
            found.setdefault((call.task, dims), dataclasses.replace(call, dims=dims))
    return {_key_at(variant.choices[call.task].task, call.dims): call for call in found.values()}


def _key_at(task: Task, dims: Sequence[Extent]) -> str:
    """The key of the task that one is where its dims have these values."""
    values: dict[Atom, Extent] = dict(zip(task.region.given_dims, dims, strict=True))
    return task_key(substituted(task.region, values), task.constant_inputs)
