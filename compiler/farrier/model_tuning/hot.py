"""Hot sizes: frequent input shapes for which a model with symbolic dims gets specialized code."""

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

# The greatest factor of a hot kernel's predicted time for the sake of weights that are packed once.
_PANEL_COST = 1.04
_OPEN_COST = 1.15  # The time of a general kernel over that of a hot one with the same decisions.
# The greatest share of a hot model's predicted time that general kernels in it may cost.
_SHARED_COST = 0.015


def hot_asked(model: ImportedModel, hot: Sequence[Hot]) -> Sequence[Hot]:
    """Return the hot shapes that a user requests, for which specialized code is compiled; without a
    request, the typical sizes, or () if the model has a growing state, whose size differs at every
    call."""
    is_default = tuple(hot) == TYPICAL_ALONE
    return () if is_default and any(state.axis is not None for state in model.states) else hot


def hot_sizes(dims: Sequence[NamedDim], hot: Sequence[Hot]) -> list[dict[str, int]]:
    """Return, for each hot shape, the value of every symbol; a dim that the shape omits has its
    typical size. Duplicates are dropped and the order is preserved. Raises UsageError for a size
    that the model cannot have."""
    for shape in hot:
        for dim in dims:
            size = shape.get(dim.name, dim.typical * dim.step)
            if size % dim.step or not dim.low <= size // dim.step <= dim.high:
                raise UsageError(
                    f"{dim.name} is {size} in --hot, and the model leaves it {dim.range}",
                    hint="farrier compile -v says which operator needs that",
                )
    sizes_of_shapes = [
        {dim.symbol: shape.get(dim.name, dim.typical * dim.step) // dim.step for dim in dims}
        for shape in hot
    ]
    return (
        [sizes for at, sizes in enumerate(sizes_of_shapes) if sizes not in sizes_of_shapes[:at]]
        if dims
        else []
    )


def check_hot(model: ImportedModel, hot: Sequence[Hot], sizes: Sequence[Mapping[str, int]]) -> None:
    """Raise UsageError if a hot shape violates the model's preconditions; `sizes` are the result of
    `hot_sizes`."""
    extents = {named_dim.symbol: named_dim.extent for named_dim in model.dims}
    for each in sizes:
        for taken in model.preconditions:
            if taken.extent and evaluate(parse_extent(str(taken.extent), extents), each) < 0:
                shown = ", ".join(
                    f"{named_dim.name}={each[named_dim.symbol] * named_dim.step}"
                    for named_dim in model.dims
                )
                raise UsageError(f"the model cannot have {shown} in --hot: {taken}")
    left = {named_dim.name for named_dim in model.dims}
    for shape in hot:
        each = hot_sizes(model.dims, [shape])[0] if model.dims else {}
        for names, value in zip(model.axes, model.graph.inputs, strict=True):
            for name, extent in zip(names, value.type.shape, strict=True):
                if name in shape.keys() - left and evaluate(extent, each) != shape[name]:
                    raise UsageError(
                        f"{name} is {shape[name]} in --hot, and the model makes it "
                        f"{evaluate(extent, each)}",
                        hint="farrier compile -v says which operator needs that",
                    )


def for_any_size(settings: Settings, hot: Sequence[Mapping[str, int]]) -> Settings:
    """Return the settings of a model's general form, which is compiled in addition to specialized
    forms for the sizes `hot`. A size at which all symbolic dims are 1, such as a batch of one, uses
    the kernels of the general form."""
    is_beside = any(size != 1 for sizes in hot for size in sizes.values())
    return dataclasses.replace(settings, beside_hot=is_beside)


def shapes_at(model: ImportedModel, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all inputs, by name, if the symbols have these values."""
    return {
        name: tuple(evaluate(extent, sizes) for extent in value.type.shape)
        for name, value in zip(model.input_names, model.graph.inputs, strict=True)
    }


def with_shared_panels(hot: Variant, general: Variant) -> Variant:
    """Return the variant for a hot (frequent) size in which kernels read weights in panels of the
    same width as the general variant does, where that costs next to nothing. These weights are then
    packed only once."""
    widths = {weights: general.choices[key].decisions.get(PANEL) for weights, key in _read(general)}
    choices = dict(hot.choices)
    for weights, key in _read(hot):
        own, width = choices[key], widths.get(weights)
        if width is None or own.source != "default":
            continue
        first = own.space.first_with(PANEL, width)
        if first is not None and first[1] <= _PANEL_COST * own.space.seconds(own.decisions):
            choices[key] = dataclasses.replace(own, decisions=first[0])
    return dataclasses.replace(hot, choices=choices)


def _read(variant: Variant) -> Iterator[tuple[Hashable, str]]:
    """Yield each constant with at least two axes that a kernel reads, with the key of the kernel's
    task."""
    program = variant.program
    constants = {constant.value.name: constant for constant in program.constants}
    for call in variant.calls:
        for value in call.inputs:
            constant = constants.get(program.home(value).name)
            if constant is not None and constant.value.type.rank > 1:
                yield constant.identity, call.task


def with_shared_kernels(hot: Variant, general: Variant, sizes: Mapping[str, int]) -> Variant:
    """Return the variant for a hot (frequent) size in which kernels of the general variant replace
    some of its own. The total predicted loss of time must stay small.

    If all symbolic dims of a kernel are 1 at the hot size, as for a batch of one, the general
    kernel runs the same tiles in the same order as a specialized kernel with equal decisions. Other
    kernels are shared if the model spends little time in them: a second kernel to compile, and a
    second packing of its weights, would gain next to nothing.
    """
    general_calls = _known_at(general, sizes)
    runs = collections.Counter[str]()
    for call in hot.calls:
        runs[call.task] += call.runs
    spent = {key: runs[key] * _seconds(choice) for key, choice in hot.choices.items()}
    left = _SHARED_COST * sum(spent.values())
    losses: dict[str, float] = {}
    for key, own in hot.choices.items():
        same = general_calls.get(own.task.key)
        if same is not None:
            ratio = _ratio(own, general.choices[same.task], same.dims)
            if ratio is not None:
                losses[key] = spent[key] * max(0.0, ratio - 1)
    shared: dict[str, Call] = {}
    for key in sorted(losses, key=lambda key: losses[key] / _stages(hot.choices[key])):
        if losses[key] <= left:
            left -= losses[key]
            shared[key] = general_calls[hot.choices[key].task.key]
    return _sharing(hot, general, shared)


def with_own_kernels(
    hot: Variant, general: Variant, sizes: Mapping[str, int], own: Collection[str]
) -> Variant:
    """Return the variant for a hot size in which only the kernels with the keys `own` are
    specialized. All others are replaced by kernels of the general variant, where it has them."""
    general_calls = _known_at(general, sizes)
    keys = {key: choice.task.key for key, choice in hot.choices.items() if key not in own}
    shared = {key: general_calls[task] for key, task in keys.items() if task in general_calls}
    return _sharing(hot, general, shared)


def _sharing(hot: Variant, general: Variant, shared: Mapping[str, Call]) -> Variant:
    """Return the variant `hot` with some of its kernels replaced by general ones. `shared` maps the
    key of a replaced kernel to the call of the general kernel."""
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
    """Return the number of stages of a kernel, to which the time of its compilation is
    proportional."""
    return len(choice.program.stages) if isinstance(choice.program, TensorProgram) else 1


def _seconds(choice: ScheduledTask) -> float:
    """Return the predicted seconds of one call of a kernel with its schedule."""
    return choice.space.seconds(choice.decisions)


def _ratio(own: ScheduledTask, shared: ScheduledTask, dims: Sequence[Extent]) -> float | None:
    """Return how much longer a general kernel, called with these dims, is predicted to take than
    the specialized kernel, as a ratio. Return None if the predictions are not comparable, or if the
    specialized kernel was tuned."""
    if own.space.rule_of(own.decisions) != shared.space.rule_of(shared.decisions):
        return None
    if own.decisions == shared.decisions and all(extent == 1 for extent in dims):
        return 1.0
    if own.source != "default" or not own.space.contains(shared.decisions):
        return None
    return _OPEN_COST * own.space.seconds(shared.decisions) / _seconds(own)


def _known_at(variant: Variant, sizes: Mapping[str, int]) -> dict[str, Call]:
    """Return the calls of the variant at these sizes, by the key that the task has if specialized
    to them."""
    calls_by_dims: dict[tuple[str, tuple[Extent, ...]], Call] = {}
    for call in variant.calls:
        if call.dims and all(symbol.name in sizes for symbol in symbols(call.dims)):
            dims = tuple(evaluate(extent, sizes) for extent in call.dims)
            calls_by_dims.setdefault((call.task, dims), dataclasses.replace(call, dims=dims))
    return {
        _key_at(variant.choices[call.task].task, call.dims): call for call in calls_by_dims.values()
    }


def _key_at(task: Task, dims: Sequence[Extent]) -> str:
    """Return the key of a task specialized to these values of its dims."""
    values: dict[Atom, Extent] = dict(zip(task.region.given_dims, dims, strict=True))
    return task_key(substituted(task.region, values), task.constant_inputs)
