"""Merge kernels that differ only in channel counts into one kernel whose channel counts are dims.

The layers of a model have few forms, but many channel counts and image sizes. If specialized code
makes the model fast at certain sizes, the general code need not contain these numbers: a count
becomes a dim, which each call passes. The common factor of all channel counts stays constant, so
that vectors are full; that of image sizes is dropped, so that images of 4*d1 and 2*d1 lines share a
kernel.

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

_UNIT = 8  # Every count that becomes a dim is a multiple of this.
_VECTOR = 2  # The width of the widest vectors, in units.
_BLOCKS = (_VECTOR, 1)  # The factors of a count that may stay constant, in units.
# In units; the preferred factors of a count of outputs, which lie in panels.
_PANELS = (2 * _VECTOR, 3 * _VECTOR)
_MOST = 1 << 16  # The bound of any dim while kernels are compared.


@dataclasses.dataclass(frozen=True, slots=True)
class _Opened:
    """A task whose channel counts are turned into dims, and whose literals are turned into inputs.

    `counts` maps the dims that stand for channel counts to these counts. `sizes` maps the other
    dims to their values in terms of the task's own dims. All dims have the same bounds.
    """

    key: str  # The key of the task.
    parameterized: ParameterizedTask
    region: Graph
    own_dims: Sequence[Symbol]  # The task's own dims.
    counts: Mapping[str, int]
    sizes: Mapping[str, Extent]

    def units(self, in_panels: bool) -> set[tuple[int, ...]]:
        """Return the possible constant factors (units) of the channel counts, as tuples with one
        factor for each of `counts`. If `in_panels`, the choice is restricted: a count of output
        channels that is divisible by the width of a panel has only such widths as factors, and any
        other count only its largest factor."""
        output_counts = self._is_blocked_by_count
        choices = []
        for name, count in self.counts.items():
            least = 1 if output_counts.get(name, True) else _VECTOR
            units = [unit for unit in _BLOCKS if count % unit == 0 and unit >= least]
            panels = [unit for unit in _PANELS if count % unit == 0 and name in output_counts]
            choices.append((panels or units[:1]) if in_panels else units)
        return set(itertools.product(*choices))

    @property
    def _is_blocked_by_count(self) -> dict[str, bool]:
        """A mapping from the name of each count of output channels to True if the channels are
        stored in blocks, whose last block is always computed completely."""
        is_blocked_by_count: dict[str, bool] = {}
        for value in (value for node in self.region.nodes for value in node.outputs):
            for axis, extent in enumerate(value.type.shape):
                is_blocked = block_of(value.type.layout, axis) > 1
                for symbol in symbols([extent]):
                    is_blocked_by_count[symbol.name] = (
                        is_blocked_by_count.get(symbol.name, True) and is_blocked
                    )
        return is_blocked_by_count


def with_open_channels(
    tasks: Mapping[str, Task], program: DriverProgram
) -> tuple[dict[str, Task], DriverProgram]:
    """Merge tasks that differ only in channel counts. Return the resulting tasks by key, in their
    order, and the program that calls them."""
    alike: dict[str, list[_Opened]] = collections.defaultdict(list)
    for task in tasks.values():
        opened = _opened(task)
        if opened is not None:
            constant_names = " ".join(sorted(opened.parameterized.task.constant_inputs))
            alike[f"{print_ir(opened.region)}{constant_names}"].append(opened)
    joined: dict[str, _Joined] = {}
    for members in alike.values():
        left = members
        for in_panels in (True, False):
            for group, units in _groups(left, in_panels):
                joined |= _joined(group, units)
            left = [member for member in left if member.key not in joined]
    return with_replacements(tasks, program, joined)


def _groups(
    members: Sequence[_Opened], in_panels: bool
) -> Iterator[tuple[list[_Opened], tuple[int, ...]]]:
    """Yield groups of at least two tasks whose channel counts can have the same constant factors
    (units), with these factors; large groups and large factors come first."""
    left = [(member, member.units(in_panels)) for member in members]
    while counts := collections.Counter(units for _, options in left for units in options):
        units, count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if count < 2:
            return
        yield [member for member, options in left if units in options], units
        left = [(member, options) for member, options in left if units not in options]


@dataclasses.dataclass(frozen=True, slots=True)
class _Joined:
    """The task that replaces the task `opened`; `counts` are the channel counts of `opened` in the
    units of the merged task."""

    task: Task
    opened: _Opened
    counts: Mapping[str, int]

    def call(self, call: Call, constants: dict[str, Constant]) -> Call:
        """Return a call of this task that replaces `call`, and add the literals that it reads to
        `constants`."""
        own: dict[Atom, Extent] = dict(zip(self.opened.own_dims, call.dims, strict=True))
        sizes = {name: substitute(size, own) for name, size in self.opened.sizes.items()}
        values = {**sizes, **self.counts}
        dims = tuple(values[symbol.name] for symbol in self.task.region.given_dims)
        call = self.opened.parameterized.call(call, constants)
        return dataclasses.replace(call, task=self.task.key, dims=dims)


def _opened(task: Task) -> _Opened | None:
    """Return the task with its channel counts as symbols; None if it has no channel counts or an
    operator requires constant ones."""
    own_dims = task.region.given_dims
    parameterized = ParameterizedTask.of(task, linear_literals(task.region).keys())
    region, constant = parameterized.task.region, parameterized.task.constant_inputs
    counts = _counts([value for value in region.inputs if value.name in constant])
    if not own_dims or not counts:
        return None
    changed: dict[Extent, Extent] = {}  # New extents by the extent in the task.
    meant: dict[Atom, Extent] = {}
    for at, extent in enumerate((*counts, *_multiples(region, own_dims))):
        symbol = dim(f"c{at}", 1, _MOST, 1)
        unit = _UNIT if isinstance(extent, int) else 1
        changed[extent] = unit * symbol
        meant |= dict.fromkeys(atoms([symbol]), extent // unit)

    def value(old: Value, inferred_extents: Mapping[Extent, Extent]) -> Value:
        shape = tuple(changed.get(extent, extent) for extent in old.type.shape)
        return Value(old.name, dataclasses.replace(old.type, shape=shape))

    nodes = tuple(_with_group(node, changed) for node in region.nodes)
    region = dataclasses.replace(region, nodes=nodes)
    opened_region = inferred(
        region, value, region.constants, lambda extent: substitute(extent, meant)
    )
    if opened_region is None:
        return None
    names = {symbol: f"d{at}" for at, symbol in enumerate(opened_region.given_dims)}
    alike: dict[Atom, Extent] = {s: dim(name, 1, _MOST, 1) for s, name in names.items()}
    values = {name: meant.get(symbol, as_extent(symbol)) for symbol, name in names.items()}
    return _Opened(
        task.key,
        parameterized,
        substituted(opened_region, alike),
        own_dims,
        {name: value for name, value in values.items() if isinstance(value, int)},
        {name: value for name, value in values.items() if not isinstance(value, int)},
    )


def _counts(weights: Iterable[Value]) -> list[int]:
    """Return those extents of weights that are channel counts and may become dims."""
    shapes = (value.type.shape for value in weights if value.type.rank > 1)
    extents = dict.fromkeys(itertools.chain(*shapes))
    return [count for count in extents if isinstance(count, int) and count and count % _UNIT == 0]


def _multiples(region: Graph, own_dims: Sequence[Symbol]) -> Iterator[Extent]:
    """Yield, for each of the task's own dims, the multiple of it that occurs in the shapes of the
    inputs, such as 4*d1. A dim is left out if it also occurs in another form."""
    extents = dict.fromkeys(extent for v in region.inputs for extent in v.type.shape)
    for symbol in own_dims:
        multiples = [extent for extent in extents if symbol in symbols([extent])]
        (extent, *others) = multiples or [0]
        factor = common_factor([extent])
        if not others and factor > 1 and extent == factor * as_extent(symbol):
            yield extent


def _with_group(node: Node, changed: Mapping[Extent, Extent]) -> Node:
    group = node.attr("group")
    attrs = ((name, changed.get(group, v) if name == "group" else v) for name, v in node.attrs)
    return dataclasses.replace(node, attrs=tuple(attrs))


def _joined(members: Sequence[_Opened], units: Sequence[int]) -> dict[str, _Joined]:
    """Return one task that replaces all members, by the members' keys. It is tuned for the channel
    counts of the median member."""
    first = members[0]
    unit = dict(zip(first.counts, units, strict=True))
    counts_in_units = [
        {name: count // unit[name] for name, count in member.counts.items()} for member in members
    ]
    order = sorted(range(len(members)), key=lambda at: tuple(counts_in_units[at].values()))
    usual = order[len(members) // 2]
    values: dict[Atom, Extent] = {}
    for symbol in first.region.given_dims:
        name = symbol.name
        if name in unit:
            counts = [unit_counts[name] for unit_counts in counts_in_units]
            values[symbol] = unit[name] * dim(
                name, min(counts), max(counts), counts_in_units[usual][name]
            )
        else:
            ends = [bounds(member.sizes[name]) for member in members]
            low, high = min(low for low, _ in ends), max(high for _, high in ends)
            values[symbol] = dim(name, low, high, typical(members[usual].sizes[name]))
    task = Task.of(substituted(first.region, values), first.parameterized.task.constant_inputs)
    pairs = zip(members, counts_in_units, strict=True)
    return {member.key: _Joined(task, member, counts) for member, counts in pairs}
