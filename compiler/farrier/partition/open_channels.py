"""Kernels that differ in channel counts alone, as one whose channels are open dims.

A model's layers have few forms, and many channel counts and image sizes. Where code at hot sizes
makes the model fast, the general code beside it need not know these numbers: a count becomes a dim,
and each call says its own. What all counts are multiples of stays known, so that whole vectors stay
whole; of sizes it is forgotten, and images of 4*d1 and 2*d1 lines are alike.

before:  def a(x: f32[d0, 64, 4*d1, 4*d2], w: f32[128, 64, 1, 1]) …
         def b(x: f32[d0, 128, 2*d1, 2*d2], w: f32[256, 128, 1, 1]) …
after:   def k(x: f32[d0, 16*d1, d2, d3], w: f32[32*d4, 16*d1, 1, 1]) …, d1 = 4 or 8, d4 = 4 or 8
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from farrier.ir.blocks import block_of
from farrier.ir.dim import (
    Atom,
    Extent,
    Symbol,
    as_extent,
    atoms,
    bounds,
    common_factor,
    dim,
    substitute,
    symbols,
    typical,
)
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.printer import print_ir
from farrier.ir.sizes import substituted
from farrier.partition.dims import inferred
from farrier.partition.literals import ParameterizedTask, linear_literals
from farrier.partition.program import Call, DriverProgram
from farrier.partition.replacement import with_replacements
from farrier.partition.task import Task

_UNIT = 8  # what every count is a multiple of that becomes a dim
_VECTOR = 2  # units, of the widest lanes
_BLOCKS = (_VECTOR, 1)  # in units, what a count may stay known to be a multiple of
_PANELS = (2 * _VECTOR, 3 * _VECTOR)  # what one of outputs should, as these are in panels
_MOST = 1 << 16  # of any dim, while kernels are compared


@dataclasses.dataclass(frozen=True, slots=True)
class _Opened:
    """A task with its channel counts as dims, which is told all literals that it can be told: a
    region in which all dims have the same bounds, and their values by name, those of `counts` in
    units, and of `sizes` over the task's own dims."""

    key: str  # of the task
    told: ParameterizedTask
    region: Graph
    given: Sequence[Symbol]  # the task's own dims
    counts: Mapping[str, int]
    sizes: Mapping[str, Extent]

    def units(self, in_panels: bool) -> set[tuple[int, ...]]:
        """What the counts may stay known to be multiples of; those of outputs of whole panels where
        they are to be `in_panels`, and the largest that there is otherwise."""
        made = self._made
        choices = []
        for name, count in self.counts.items():
            least = 1 if made.get(name, True) else _VECTOR
            units = [unit for unit in _BLOCKS if count % unit == 0 and unit >= least]
            panels = [unit for unit in _PANELS if count % unit == 0 and name in made]
            choices.append((panels or units[:1]) if in_panels else units)
        return set(itertools.product(*choices))

    @property
    def _made(self) -> dict[str, bool]:
        """The counts that outputs have, by name, and whether these lie in blocks, which are
        computed whole."""
        found: dict[str, bool] = {}
        for value in (value for node in self.region.nodes for value in node.outputs):
            for axis, extent in enumerate(value.type.shape):
                is_blocked = block_of(value.type.layout, axis) > 1
                for symbol in symbols([extent]):
                    found[symbol.name] = found.get(symbol.name, True) and is_blocked
        return found


def with_open_channels(
    tasks: Mapping[str, Task], program: DriverProgram
) -> tuple[dict[str, Task], DriverProgram]:
    """Tasks by key, in their order, and the program that calls them, alike ones joined."""
    alike: dict[str, list[_Opened]] = collections.defaultdict(list)
    for task in tasks.values():
        opened = _opened(task)
        if opened is not None:
            known = " ".join(sorted(opened.told.task.constant_inputs))
            alike[f"{print_ir(opened.region)}{known}"].append(opened)
    joined: dict[str, _Joined] = {}
    for members in alike.values():
        left = members
        for in_panels in (True, False):
            for group, units in _groups(left, in_panels):
                joined |= _joined(group, units)
            left = [one for one in left if one.key not in joined]
    return with_replacements(tasks, program, joined)


def _groups(
    members: Sequence[_Opened], in_panels: bool
) -> Iterator[tuple[list[_Opened], tuple[int, ...]]]:
    """Those of some that may share what their counts stay known to be multiples of, two at least,
    with that; large groups and large units first."""
    left = [(one, one.units(in_panels)) for one in members]
    while counts := collections.Counter(units for _, found in left for units in found):
        units, count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if count < 2:
            return
        yield [one for one, found in left if units in found], units
        left = [(one, found) for one, found in left if units not in found]


@dataclasses.dataclass(frozen=True, slots=True)
class _Joined:
    """The task that is called instead of one that was `opened`, whose counts are `counts` in the
    units of the joined task."""

    task: Task
    opened: _Opened
    counts: Mapping[str, int]

    def call(self, call: Call, constants: dict[str, Constant]) -> Call:
        """As `Replacement` says."""
        own: dict[Atom, Extent] = dict(zip(self.opened.given, call.dims, strict=True))
        sizes = {name: substitute(size, own) for name, size in self.opened.sizes.items()}
        told = {**sizes, **self.counts}
        dims = tuple(told[symbol.name] for symbol in self.task.region.given_dims)
        call = self.opened.told.call(call, constants)
        return dataclasses.replace(call, task=self.task.key, dims=dims)


def _opened(task: Task) -> _Opened | None:
    """None where it has no such counts, or its operators do not take them for dims."""
    given = task.region.given_dims
    told = ParameterizedTask.of(task, linear_literals(task.region).keys())
    region, constant = told.task.region, told.task.constant_inputs
    counts = _counts([value for value in region.inputs if value.name in constant])
    if not given or not counts:
        return None
    changed: dict[Extent, Extent] = {}  # by what it is in the task
    meant: dict[Atom, Extent] = {}
    for at, extent in enumerate((*counts, *_multiples(region, given))):
        symbol = dim(f"c{at}", 1, _MOST, 1)
        unit = _UNIT if isinstance(extent, int) else 1
        changed[extent] = unit * symbol
        meant |= dict.fromkeys(atoms([symbol]), extent // unit)

    def value(old: Value, known: Mapping[Extent, Extent]) -> Value:
        shape = tuple(changed.get(extent, extent) for extent in old.type.shape)
        return Value(old.name, dataclasses.replace(old.type, shape=shape))

    nodes = tuple(_with_group(node, changed) for node in region.nodes)
    region = dataclasses.replace(region, nodes=nodes)
    found = inferred(region, value, region.constants, lambda extent: substitute(extent, meant))
    if found is None:
        return None
    names = {symbol: f"d{at}" for at, symbol in enumerate(found.given_dims)}
    alike: dict[Atom, Extent] = {s: dim(name, 1, _MOST, 1) for s, name in names.items()}
    values = {name: meant.get(symbol, as_extent(symbol)) for symbol, name in names.items()}
    return _Opened(
        task.key,
        told,
        substituted(found, alike),
        given,
        {name: value for name, value in values.items() if isinstance(value, int)},
        {name: value for name, value in values.items() if not isinstance(value, int)},
    )


def _counts(weights: Iterable[Value]) -> list[int]:
    """The channel counts among the extents of weights that may become dims."""
    shapes = (value.type.shape for value in weights if value.type.rank > 1)
    extents = dict.fromkeys(itertools.chain(*shapes))
    return [count for count in extents if isinstance(count, int) and count and count % _UNIT == 0]


def _multiples(region: Graph, given: Sequence[Symbol]) -> Iterator[Extent]:
    """For each dim of which the inputs have but one multiple, that."""
    extents = dict.fromkeys(extent for v in region.inputs for extent in v.type.shape)
    for symbol in given:
        made = [extent for extent in extents if symbol in symbols([extent])]
        (extent, *others) = made or [0]
        factor = common_factor([extent])
        if not others and factor > 1 and extent == factor * as_extent(symbol):
            yield extent


def _with_group(node: Node, changed: Mapping[Extent, Extent]) -> Node:
    group = node.attr("group")
    attrs = ((name, changed.get(group, v) if name == "group" else v) for name, v in node.attrs)
    return dataclasses.replace(node, attrs=tuple(attrs))


def _joined(members: Sequence[_Opened], units: Sequence[int]) -> dict[str, _Joined]:
    """One task instead of all members, by the keys of these. It is made for the counts of the
    median."""
    first = members[0]
    unit = dict(zip(first.counts, units, strict=True))
    told = [{name: count // unit[name] for name, count in one.counts.items()} for one in members]
    order = sorted(range(len(members)), key=lambda at: tuple(told[at].values()))
    usual = order[len(members) // 2]
    values: dict[Atom, Extent] = {}
    for symbol in first.region.given_dims:
        name = symbol.name
        if name in unit:
            counts = [one[name] for one in told]
            values[symbol] = unit[name] * dim(name, min(counts), max(counts), told[usual][name])
        else:
            ends = [bounds(one.sizes[name]) for one in members]
            low, high = min(low for low, _ in ends), max(high for _, high in ends)
            values[symbol] = dim(name, low, high, typical(members[usual].sizes[name]))
    task = Task.of(substituted(first.region, values), first.told.task.constant_inputs)
    pairs = zip(members, told, strict=True)
    return {one.key: _Joined(task, one, counts) for one, counts in pairs}
