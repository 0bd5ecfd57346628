"""Build nested graphs: the bodies of loops, and the branches of conditionals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from farrier.errors import UnresolvedShapeError, UnsupportedOperatorError
from farrier.frontends.builder.data_dims import Defined
from farrier.frontends.builder.limits import MisfitError
from farrier.frontends.builder.local_sizes import SIZES, ImpliedSizes, LocalSizes, sizes_alone
from farrier.frontends.builder.names import Body, Entry, with_tensors
from farrier.frontends.builder.preconditions import settled
from farrier.frontends.builder.signature import Signature
from farrier.ir.dim import Atom, Extent, Symbol, Undecided, substitute, symbols
from farrier.ir.graph import Graph, Node, Value
from farrier.ir.liveness import defined
from farrier.ir.types import Shape, TensorType
from farrier.ops.control import check_control
from farrier.ops.operator import to_extents

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder

# The errors of a part of a model that need not be errors of the whole.
UNFIT = (MisfitError, UnresolvedShapeError, UnsupportedOperatorError)
# Adds the nodes of a region to the builder, and returns the outputs.
Build: TypeAlias = Callable[[], Sequence[Entry]]


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """A nested graph that has been built but is not yet part of a node."""

    body: Body
    inputs: tuple[Value, ...]
    outputs: tuple[Entry, ...]

    def in_shape(self, shape: Shape) -> Shape:
        """Return a shape of the enclosing graph, rewritten in terms of the sizes for which the
        region was built."""
        return tuple(substitute(extent, self.body.sizes) for extent in shape)


def region(
    builder: Builder,
    inputs: Sequence[TensorType],
    build: Callable[[Sequence[Value]], Sequence[Entry]],
) -> Region:
    """Build a nested graph with inputs of the types `inputs`, and return it. `build` adds its nodes
    and returns its outputs. It is called with the inputs, viewed in shapes in which data-dependent
    sizes have their restricted ranges (`DataSizes.held_tensor`)."""
    values = builder.values
    with values.names.nested(Body(values.body)) as body, builder.returning():
        own = tuple(values.define(kind) for kind in inputs)
        outputs = build([builder.data_sizes.held_tensor(value) for value in own])
        return Region(body, own, tuple(map(_all_computed(builder), outputs)))


def branch(builder: Builder, build: Build) -> Region:
    """Build a nested graph without inputs. If its operators compare sizes, it is built only for the
    sizes at which all comparisons have the same results as at the typical sizes; a run that enters
    the branch with other sizes ends with an error."""
    before = sizes_alone(builder.signature, builder.data_sizes.defined)
    begin = functools.partial(_Branch, builder, build, before, builder.data_sizes.places)
    return settled(before, begin, is_branch=True)


def closed(
    builder: Builder, region: Region, name: str, captured: Sequence[Value], outputs: Sequence[Value]
) -> Graph:
    """Return the region as a separate graph. `captured` are the values that it reads from the
    enclosing graph; they become its last inputs."""
    inner = {outside.name: inside for outside, inside in region.body.captured.values()}
    seen = [inner.get(v.name) or builder.values.define(v.type) for v in captured]
    return builder.values.closed(region.body, name, (*region.inputs, *seen), outputs)


def defined_in(builder: Builder, region: Region) -> frozenset[str]:
    """Return the names of the symbols that nodes of the region define."""
    data = builder.values.known.get
    return frozenset(name for node in region.body.nodes for name in defined(node, data))


def captures_of(regions: Sequence[Region], builder: Builder) -> tuple[Value, ...]:
    """Return the values of the enclosing graph that the regions read. Constants are not included,
    because they are copied into the regions."""
    captured = {
        outside.name: outside
        for region in regions
        for outside, inside in region.body.captured.values()
        if inside.name not in builder.values.known
    }
    return tuple(captured.values())


def append(node: Node, builder: Builder) -> None:
    """Append a node with regions. Raises Mismatch if the types of the node and its regions do not
    agree."""
    check_control(node)
    builder.values.append(node)


class _Branch:
    """An attempt to build a branch for the ranges of sizes in a signature. Implements
    `preconditions.Importing`."""

    def __init__(
        self,
        builder: Builder,
        build: Build,
        before: Signature,
        started: Mapping[str, int],
        signature: Signature,
    ) -> None:
        self._builder, self._build = builder, build
        self._sizes = LocalSizes(before, signature)
        self._started = started
        self._around = frozenset(symbol.name for symbol in symbols(before.types[SIZES].shape))
        self.where = ""

    def run(self) -> Region:
        try:
            self._builder.data_sizes.restart(self._started)
            return _branch_at(self._builder, self._build, self._sizes)
        finally:
            self.where = self._builder.where

    @property
    def defined(self) -> Mapping[str, Defined]:
        """The data-dependent sizes that the branch itself defines; those of the enclosing graph
        count as its dims."""
        defined = self._builder.data_sizes.defined
        return {name: size for name, size in defined.items() if name not in self._around}


def _branch_at(builder: Builder, build: Build, sizes: LocalSizes) -> Region:
    """Build the branch for the sizes in `sizes`. Raises ImpliedSizes if the typical sizes of the
    branch differ from those of the model, and the user has not chosen the latter: the entire model
    is then imported again with the branch's typical sizes."""
    implied, whole = sizes.implied(), builder.whole
    mine = {dim.name for dim in whole.dims} - whole.pinned - whole.implied
    if implied and implied.keys() <= mine:
        raise ImpliedSizes(implied)
    around = builder.signature
    if not sizes.is_narrower:
        builder.signature = sizes.with_data(around)
        try:
            return region(builder, [], lambda _: build())
        finally:
            builder.signature = around
    values = builder.values
    with values.names.nested(Body(values.body)) as body, builder.returning():
        own = _own_sizes(builder, sizes)
        body.sizes = sizes.given(own)
        builder.signature = sizes.within(own)
        try:
            outputs = [_resized(builder, entry, sizes.around(own)) for entry in build()]
        except UnresolvedShapeError as error:
            if isinstance(error.__cause__, Undecided):
                asked = sizes.asked(error.__cause__.question, own)
                if asked is not None:
                    raise error from asked
            raise
        finally:
            builder.signature = around
        return Region(body, (), tuple(map(_all_computed(builder), outputs)))


def _own_sizes(builder: Builder, sizes: LocalSizes) -> dict[Symbol, Extent]:
    """Add nodes that compute the branch's own symbols on entry, and checks that end a run with
    sizes for which the branch was not built. Return a map from `Local.narrowed` to the branch's
    symbols."""
    own: dict[Symbol, Extent] = {}
    with builder.data_sizes.because(sizes.reason):
        for local in sorted(sizes.locals, key=lambda local: not isinstance(local.most, int)):
            name = builder.unknown([local.value])
            most = substitute(local.most, sizes.narrowed(own))
            (own[local.narrowed],) = to_extents(builder.sizes(name, (most,), local.usual))
        for outside, inside in sizes.checks(own):
            builder.require(builder.unknown([outside]), [inside])
    return own


def _resized(builder: Builder, entry: Entry, sizes: Mapping[Atom, Extent]) -> Entry:
    """Return an entry that a branch returns, with the shapes of its tensors rewritten: `sizes` maps
    the branch's symbols to extents of the enclosing graph."""
    values, body = builder.values, builder.values.body
    return with_tensors(entry, lambda value: values.view(builder.computed(value), sizes, body))


def _all_computed(builder: Builder) -> Callable[[Entry], Entry]:
    return lambda entry: with_tensors(entry, builder.computed)
