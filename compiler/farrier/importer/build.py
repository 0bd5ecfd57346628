"""Walk an ONNX graph once and type it; what it computes from shapes alone is folded."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from farrier.artifact.declaration import ITEMS, LENGTHS, Declaration
from farrier.errors import InvalidModelError, UnresolvedShapeError, UnsupportedOperatorError
from farrier.files.mapped import pages_of
from farrier.importer.data_dims import Defined
from farrier.importer.declared import declaration
from farrier.importer.emptiness import shortfall
from farrier.importer.functions import expand
from farrier.importer.limits import (
    MAX_CONSTANT_BYTES,
    MAX_FOLDED_BYTES,
    MAX_NODES,
    MAX_TENSOR_BYTES,
    NEWEST_OPSET,
)
from farrier.importer.local_sizes import SIZES, ImpliedSizes, LocalSizes, sizes_alone
from farrier.importer.names import Absent, Body, Entry, Listed, Names, Strings, with_tensors
from farrier.importer.names import Sequence as Tensors
from farrier.importer.order import in_order
from farrier.importer.preconditions import settled
from farrier.importer.raw import RawNode, initialized, names_read, to_raw
from farrier.importer.reading import Reading, reading_of
from farrier.importer.schema import check_types
from farrier.importer.scope import Region, first_room, ints
from farrier.importer.signature import Signature, declared_inputs, overridden, resolve
from farrier.importer.stretching import stretch
from farrier.importer.strings.moves import on_codes
from farrier.importer.symbolic import as_array, fold, has_dims, parts
from farrier.importer.tensors import MisfitError, check_size
from farrier.importer.upgrade import upgrade
from farrier.ir.control import symbol_of
from farrier.ir.dim import (
    Atom,
    Extent,
    Question,
    Symbol,
    Undecided,
    as_extent,
    dim,
    minimum,
    number,
    substitute,
    symbols,
    typical,
)
from farrier.ir.graph import Attribute, Constant, Graph, Node, Value, attributes
from farrier.ir.liveness import Liveness, defined
from farrier.ir.sizes import Demand, array_with_extents
from farrier.ir.strings import codes_of
from farrier.ir.types import DType, Shape, TensorType
from farrier.model.file import Model, model_of
from farrier.ops import Kind, Mismatch, NotStatic, NotSupported, Operator, import_of, lookup, names
from farrier.ops.operator import to_extents
from farrier.ops.statics import shape_bounds
from farrier.options.shapes import MAX_EXTENT, GivenShape, Hot, NamedDim, Precondition
from farrier.options.states import HeldState

_SIZES = (DType.I64, DType.I32)
_COUNTING = (*_SIZES, DType.BOOL)
_UNSAID: Hot = {}
_STAY_QUANTIZED = frozenset(("DequantizeLinear", "UnpackBits"))
_IDLE = frozenset(("Cast", "Expand", "Reshape"))  # where types are equal, so are values
_FEW = 64  # elements of a constant that are compared with another's
_BY_ELEMENT = frozenset(("Add", "Sub", "Mul", "Div", "Cast"))
_SAME_ELEMENTS = frozenset(("Cast", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten"))


@dataclasses.dataclass(frozen=True, slots=True)
class ImportedModel:
    """The typed graph, whose values are named v0, v1, …, and what the model calls its inputs and
    outputs, in the graph's order, and the user its open dims. Those names are data: they are shown,
    and never become code. `strings` are the inputs and outputs that are code points of strings;
    `declaration` is what the file says of all that.

    `preconditions` are what was assumed of the dims, and `notices` warn of those that leave one
    size of a dim; `axes` are the user's names of each input's
    axes, "" for those that were numbers from the start. `values` leads from the model's names of
    tensors to the graph's; some of those are constants, or were left out as nobody reads them.
    `states` are inputs and outputs that a session keeps between calls."""

    graph: Graph
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    declaration: Declaration
    dims: tuple[NamedDim, ...] = ()
    strings: frozenset[str] = frozenset()
    preconditions: tuple[Precondition, ...] = ()
    axes: tuple[tuple[str, ...], ...] = ()
    values: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)
    notices: tuple[str, ...] = ()
    states: tuple[HeldState, ...] = ()


def import_model(
    data: Model | bytes,
    shapes: Mapping[str, GivenShape] | None = None,
    hot: Sequence[Hot] = (),
    typical: Hot = _UNSAID,
) -> ImportedModel:
    """The model, typed; `shapes` gives the dims that it leaves open, by input name, and `hot` and
    `typical` sizes of those that stay open. What depends on them is what it is for the typical
    sizes (`importer.preconditions`). An initializer that the model lists among its inputs is a
    constant, unless `shapes` names it: then it is an input.

    Raises InvalidModelError, UnsupportedOperatorError (with all unknown operators at once),
    UnresolvedShapeError, or UsageError for shapes that clash with the model.
    """
    files = model_of(data)
    reading = reading_of(files)
    shapes = shapes or {}
    model = reading.model
    declared = declared_inputs(model.graph, overridden(model, shapes), shapes)
    signature = resolve(declared, shapes, hot, typical)
    try:
        return settled(signature, functools.partial(_Import, reading, files))
    except RecursionError as error:
        raise InvalidModelError(
            "the model's regions, or the formulas of its sizes, nest too deeply",
            hint="give loops whose tensors grow fewer iterations, or bodies that keep the shapes",
        ) from error


def _where(node: RawNode) -> str:
    return f"node {node.origin!r} ({node.op})"


class _Branch:
    """One import of a branch with given sizes."""

    def __init__(
        self,
        scope: _Import,
        graph: onnx.GraphProto,
        opset: int,
        before: Signature,
        started: Mapping[str, int],
        signature: Signature,
    ) -> None:
        self._scope, self._graph, self._opset = scope, graph, opset
        self._sizes = LocalSizes(before, signature)
        self._started = started
        self._around = frozenset(symbol.name for symbol in symbols(before.types[SIZES].shape))
        self.where = ""

    def run(self) -> Region:
        try:
            self._scope.restart(self._started)
            return self._scope.branch_at(self._graph, self._opset, self._sizes)
        finally:
            self.where = self._scope.where

    @property
    def defined(self) -> Mapping[str, Defined]:
        """Those of the branch alone: what is defined around it is a dim of the branch."""
        return {n: one for n, one in self._scope.defined.items() if n not in self._around}


@dataclasses.dataclass(frozen=True, slots=True)
class _Element:
    """One element of a flattened value."""

    value: Value
    index: int


class _Import:
    """The state of one import: values and constants by the model's names."""

    def __init__(self, reading: Reading, files: Model, signature: Signature) -> None:
        self._reading, self._files = reading, files
        self._model, self._opsets = reading.model, reading.opsets
        self._signature = self._whole = signature  # of the graph at hand, and of the model
        self._reason = ""  # why a run may not go on that finds other sizes than are bound
        self._counter = itertools.count()
        self._symbols = itertools.count()
        self.defined: dict[str, Defined] = {}  # the sizes that values decide, by symbol
        self._deferred: Question | None = None  # what the node at hand would compute alike for
        self._places: Counter[str] = Counter()  # how many of them a node defined so far
        self._dims: dict[str, Extent] = {}  # what the symbols of narrowed ones are, by name
        self._values = Names(self._hand_in)
        self._data: dict[str, npt.NDArray[Any]] = {}  # by Farrier's names
        self._sizes: dict[str, Value] = {}  # what computes constants that depend on sizes
        self._made: dict[str, Node] = {}  # what computes a value, by the value's name
        self._alike: dict[str, Value] = {}  # what was computed alike before, by the value's name
        self._bound: set[str] = set()  # names of values computed, but also known as dims
        self._conditions: frozenset[str] = frozenset()  # Names that an If of the graph tests.
        self._constant_bytes = 0
        self._node_count = 0
        self._current = RawNode("", [], [], {}, "")  # the model's node that is being imported
        self._begun = self._current  # the same, but for the nodes around one that was refused
        self._lists: dict[str, int] = {}  # axes of output sequences that are one tensor
        self._strings = set(signature.strings)  # the names of inputs and outputs that are strings
        self._inputs = tuple(self._define(name, kind) for name, kind in signature.types.items())
        for name, kind in signature.types.items():
            check_size(kind, f"input {name!r}")
            if kind.is_static and not kind.size:
                self._add_constant(name, np.empty(kind.static_shape, kind.dtype.numpy))
            if name in self._strings and name in self._values:
                self._values[name] = Strings(self._values[name])
        graph = self._model.graph
        self._read = {output.name for output in graph.output}
        self._read.update(reading.names_read(graph, self._opsets[""]))

    def run(self) -> ImportedModel:
        """The model; as `import_model` raises."""
        graph = self._model.graph
        results = self._import_graph(graph, self._opsets[""])
        outputs: dict[str, Value] = {}
        for output, entry in zip(graph.output, results, strict=True):
            outputs |= self._outputs(output.name, entry)
        return ImportedModel(
            self._pruned(self._values.body, "model", self._inputs, list(outputs.values())),
            tuple(self._signature.types),
            tuple(outputs),
            self._declaration(),
            self._signature.dims,
            frozenset(self._strings),
            self._signature.told(),
            tuple(self._signature.names[name] for name in self._signature.types),
            self._values.outermost,
            self._signature.notices,
        )

    def _declaration(self) -> Declaration:
        told = declaration(self._model, self._signature.types)
        axes = self._lists
        outputs = (
            dataclasses.replace(value, axis=axes[value.name]) if value.name in axes else value
            for value in told.outputs
        )
        return dataclasses.replace(told, outputs=tuple(outputs))

    @property
    def where(self) -> str:
        """The node that was begun last, as messages name it."""
        return _where(self._begun)

    def restart(self, places: Mapping[str, int]) -> None:
        """A branch is imported anew, of whose nodes none has defined a size."""
        self._places = Counter(places)

    def _outputs(self, name: str, entry: Entry) -> dict[str, Value]:
        """The tensors of an output: those of a sequence are `name.0`, `name.1`, …; an optional that
        is absent has none."""
        match entry:
            case Value():
                return {name: self.computed(entry)}
            case Strings(codes):
                self._strings.add(name)
                return {name: codes}
            case Tensors(items):
                found: dict[str, Value] = {}
                for position, item in enumerate(items):
                    found |= self._outputs(f"{name}.{position}", item)
                return found
            case Listed(whole, lengths, axis):
                self._lists[name] = axis
                parts = {f"{name}.{ITEMS}": self.computed(whole)}
                if lengths is not None:
                    parts[f"{name}.{LENGTHS}"] = self.computed(lengths)
                return parts
            case Absent():
                return {}

    def _import_graph(self, graph: onnx.GraphProto, opset: int) -> list[Entry]:
        """What a graph's outputs are, its inputs being defined."""
        inputs = self._whole.types if graph is self._model.graph else ()
        for name, array in self._reading.initializers(graph, opset):
            if name in inputs:  # its initializer is overridden
                continue
            if self._values.is_local(name):
                raise InvalidModelError(f"two initializers or inputs are named {name!r}")
            self._add_constant(name, array)
        nodes = self._reading.nodes(graph, opset)
        made = {name for node in nodes for name in node.outputs if not self._values.is_local(name)}
        read = self._reading.names_read(graph, opset)
        known = [n for n in read if n in self._values and n not in made]
        known += [*(info.name for info in graph.input), *initialized(graph)]
        outer = self._current, self._conditions
        self._conditions = frozenset(node.inputs[0] for node in nodes if node.op == "If")
        for node in in_order(nodes, known):
            entries = [self._values.entry(name) if name else None for name in node.inputs]
            dtypes = [e.type.dtype if isinstance(e, Value) else None for e in entries]
            check_types(node, self._version_of(node.op, opset), dtypes)
            self._import_node(node, opset)
        self._current, self._conditions = outer
        for output in graph.output:
            if output.name not in self._values:
                raise InvalidModelError(f"nothing defines the output {output.name!r}")
        return [self._values.entry(output.name) for output in graph.output]

    # What upgrades may ask for: the protocol `ImportScope`.

    def constant(self, data: npt.NDArray[Any]) -> str:
        name = self.fresh()
        self._add_constant(name, data)
        return name

    def fresh(self) -> str:
        return f"\0{next(self._counter)}"  # no name of a model: it would not be text

    def shape(self, name: str) -> Shape:
        return self._values[name].type.shape

    def dtype(self, name: str) -> DType:
        return self._values[name].type.dtype

    def data(self, name: str) -> npt.NDArray[Any] | None:
        return self._data.get(self._values[name].name) if name else None

    def sizes(
        self, name: str, bounds: Sequence[Extent | None] = (), usual: int | None = None
    ) -> npt.NDArray[Any]:
        value = self._values[name]
        if value.name not in self._data:
            elements = self._elements(value)
            limits = dict(zip(elements, bounds, strict=False))
            leaves = {one.value.name: one.value for one in elements if isinstance(one, _Element)}
            beside = sum(isinstance(one, _Element) for one in elements)
            for leaf in leaves.values():
                own = [_Element(leaf, at) for at in range(number(leaf.type.size))]
                self._bind(leaf, [self.counted(limits.get(one), usual, beside) for one in own])
            if value.name not in leaves:
                self._know(value, list(map(self._known_element, elements)))
        return self._data[value.name]

    def elements(self, name: str) -> list[Extent | str]:
        found: list[Extent | str] = []
        for one in self._elements(self._values[name]):
            if isinstance(one, _Element):
                whole = self.add("Cast", self.bind("", one.value), to="i64")
                flat = self.add("Reshape", whole, self.constant(np.array([-1])))
                found.append(self.add("Gather", flat, self.constant(np.array(one.index)), axis=0))
            else:
                found.append(one)
        return found

    def filled(self, name: str) -> int | None:
        value = self._values[name]
        node = self._made.get(value.name)
        if node is not None and node.op == "Expand" and node.inputs[0] is not None:
            value = node.inputs[0]
        data = self._data.get(self._known(value).name)
        if data is None or has_dims(data) or not data.size or (data != data.flat[0]).any():
            return None
        return int(data.flat[0])

    def scalars(self, name: str) -> list[Any]:
        value = self._values[name]
        data, node = self._data.get(self._known(value).name), self._made.get(value.name)
        if data is not None:
            return list(data.reshape(-1).tolist())
        if node is not None and value.type.rank < 2:
            operands = [self.bind("", part) for part in node.inputs if part is not None]
            if node.op == "Concat":
                return [one for part in operands for one in self.scalars(part)]
            if node.op in _SAME_ELEMENTS - {"Cast"}:
                return self.scalars(operands[0])
            if node.op in _BY_ELEMENT:
                parts = [self.scalars(part) for part in operands]
                count = max(map(len, parts))
                rows = (part * count if len(part) == 1 else part for part in parts)
                return [self._scalar(node, row) for row in zip(*rows, strict=True)]
        flat = self.add("Reshape", name, self.constant(np.array([-1])))
        places = map(np.array, range(number(value.type.size)))
        return [self.add("Gather", flat, self.constant(at), axis=0) for at in places]

    def _known(self, value: Value) -> Value:
        """The constant that depends on sizes for what computes it; another value as it is."""
        node = self._made.get(value.name)
        if node is not None and node.op == "Extents" and node.inputs[0] is not None:
            return node.inputs[0]
        return value

    def _scalar(self, node: Node, operands: Sequence[Any]) -> Any:
        """An element of an elementwise node's result, of elements of its operands."""
        names = []
        for one, value in zip(operands, node.inputs, strict=True):
            name = one
            if not isinstance(one, str):
                assert value is not None
                name = self.fresh()
                self._add_constant(name, as_array(one, value.type.dtype), value.type.dtype)
            names.append(name)
        result = self.add(node.op, *names, **dict(node.attrs))
        data = self.data(result)
        return result if data is None else data.reshape(-1).tolist()[0]

    def require(
        self,
        name: str,
        sizes: Sequence[Extent],
        demands: Demand = Demand.EXACT,
        needs: str = "",
    ) -> None:
        value = self._values[self.add("Cast", name, to="i64")]
        wanted = self.constant(as_array(list(sizes), DType.I64).reshape(value.type.static_shape))
        out = self._define("", value.type)
        more = {"demands": str(demands), "needs": needs} if needs else {}
        self.append(Node("Require", (value, self._values[wanted]), (out,), *self._check(**more)))

    def _check(
        self, **attrs: Attribute
    ) -> tuple[tuple[tuple[str, Attribute], ...], tuple[Graph, ...], str]:
        """Attributes, regions and origin of a node that checks sizes."""
        if self._reason:
            attrs["reason"] = self._reason
        return attributes(**attrs), (), self._current.origin

    def defers(self, question: Question) -> None:
        self._deferred = self._deferred or question

    def unknown(self, name: str) -> str:
        return self.bind("", self.computed(self._values[name]))

    def _known_element(self, one: Extent | _Element) -> Extent:
        if isinstance(one, _Element):
            return to_extents(self._data[one.value.name])[one.index]
        return one

    def _elements(self, value: Value) -> list[Extent | _Element]:
        """What each element of an integer tensor is: an extent, or one of a value that is computed
        at run time."""
        data, node = self._data.get(value.name), self._made.get(value.name)
        if data is not None:
            return list(to_extents(data))
        if node is not None:
            parts = [part for part in node.inputs if part is not None]
            if node.op == "Concat" and value.type.rank == 1:
                return [one for part in parts for one in self._elements(self._known(part))]
            if node.op in _SAME_ELEMENTS and parts[0].type.dtype in _SIZES:
                return self._elements(parts[0])
        return [_Element(value, at) for at in range(number(value.type.size))]

    def _bind(self, value: Value, sizes: Sequence[Extent]) -> None:
        """Make the elements of a run-time value these symbols."""
        whole = value
        if value.type.dtype is not DType.I64:
            whole = self._values[self.add("Cast", self.bind("", value), to="i64")]
        narrowed = [self._narrowed_symbol(size) for size in sizes]
        if any(narrowed):
            self._bind_each(value, whole, sizes)
            return
        self._know(value, sizes)
        known = self._values[self.constant(self._data[value.name])]
        out = self._define("", whole.type)
        self.append(Node("Bind", (whole, known), (out,), *self._check()))

    def _bind_each(self, value: Value, whole: Value, sizes: Sequence[Extent]) -> None:
        """The same where operators narrow some of the symbols."""
        flat = self.add("Reshape", self.bind("", whole), self.constant(np.array([-1])))
        left = []
        for place, size in enumerate(sizes):
            name = self.add("Gather", flat, self.constant(np.array([place])), axis=0)
            symbol = self._narrowed_symbol(size)
            if symbol is None:
                self._bind(self._values[name], [size])
            else:
                size = self._left_of(symbol, name)
            left.append(size)
        self._know(value, left)

    def _narrowed_symbol(self, extent: Extent) -> Symbol | None:
        """The symbol that the extent is where operators leave fewer values of it."""
        symbol = symbol_of(extent)
        one = None if symbol is None else self.defined.get(symbol.name)
        narrowed = None if one is None else self._signature.data.get(one.key)
        if symbol is None or narrowed is None or narrowed.named.symbol == symbol.name:
            return None
        return symbol

    def _left_of(self, symbol: Symbol, name: str) -> Extent:
        """What operators leave of a size, which is the one element of `name`; others end the
        run."""
        key = self.defined[symbol.name].key
        narrowed = self._signature.data[key]
        step, needs = narrowed.named.step, narrowed.needs
        extent = narrowed.extent(symbol.high, self._dims)
        for demands, limit in narrowed.demands(symbol.high, self._dims):
            self.require(name, (limit,), demands, needs.get(demands, ""))
        own = next((s for s in symbols((extent,)) if s.name == narrowed.named.symbol), None)
        if own is not None:
            self.defined[own.name] = dataclasses.replace(self.defined[symbol.name], symbol=own)
            self._dims[own.name] = as_extent(own)
            quotient = name
            if step > 1:
                quotient = self.add("Div", name, self.constant(np.array([step])))
            self._bind(self._values[quotient], [as_extent(own)])
        if own is None or step > 1:
            self.require(name, (extent,), Demand.EXACT, needs.get(Demand.EXACT, ""))
        return extent

    def _held(self, entry: Entry) -> Entry:
        """The entry in what operators leave of the sizes that values decide."""
        return with_tensors(entry, self._held_tensor) if self._signature.data else entry

    def _held_tensor(self, value: Value) -> Value:
        body, instead = self._values.body, dict[Atom, Extent]()
        for symbol in symbols(value.type.shape):
            if self._narrowed_symbol(as_extent(symbol)) is not None:
                if symbol.name not in body.left:
                    name = self.unknown(self.constant(ints([as_extent(symbol)])))
                    body.left[symbol.name] = self._left_of(symbol, name)
                instead[symbol] = body.left[symbol.name]
        return self._view(value, instead, body) if instead else value

    def _note(self, extent: Extent) -> None:
        """Note an extent that values decide, as the next one that the node at hand defines."""
        symbol = symbol_of(extent)
        if symbol is not None:
            origin = self._current.origin
            key = (origin, self._places[origin])
            self.defined[symbol.name] = Defined(key, symbol, _where(self._current), self._deferred)
            self._places[origin] += 1

    def _know(self, value: Value, extents: Sequence[Extent]) -> None:
        """Note what the elements of a value are that is computed at run time."""
        array = as_array(list(extents), value.type.dtype)
        self._data[value.name] = array.reshape(value.type.static_shape)
        self._bound.add(value.name)

    def is_read(self, name: str) -> bool:
        return name in self._read

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        result = self.fresh()
        node = RawNode(op, list(inputs), [result], attrs, self._current.origin)
        self._emit(node) if op in names() else self.expand(node, NEWEST_OPSET)
        return result

    def emit(self, node: RawNode) -> None:
        self._emit(node)

    def expand(self, node: RawNode, opset: int) -> None:
        types = [self._values[name].type if name else None for name in node.inputs]
        found = expand(node, self._version_of(node.op, opset), types, self.fresh)
        if found is None:
            raise NotSupported(f"the operator {node.op}")
        body, version = found
        self._read.update(names_read(body))
        for inner in body:
            self._import_node(to_raw(inner, self._files), version)

    def _version_of(self, op: str, opset: int) -> int:
        """The version of the operator of that qualified name; `opset` is of ONNX's own domain."""
        domain = op.rpartition(":")[0]
        return self._opsets.get(domain, 1) if domain else opset

    # What control flow asks for as well: the protocol `Regions`.

    def entry(self, name: str) -> Entry:
        return self._values.entry(name)

    def bind(self, name: str, entry: Entry) -> str:
        name = name or self.fresh()
        self._values[name] = self._held(entry)
        return name

    def define(self, kind: TensorType) -> Value:
        return self._define("", kind)

    def known(self, value: Value) -> npt.NDArray[Any] | None:
        return self._data.get(value.name)

    def inline(self, graph: onnx.GraphProto, given: Mapping[str, Entry], opset: int) -> list[Entry]:
        with self._values.nested():
            for name, entry in given.items():
                self._values[name] = entry
            return self._import_graph(graph, opset)

    def region(
        self,
        graph: onnx.GraphProto,
        inputs: Sequence[tuple[str, TensorType]],
        constants: Mapping[str, npt.NDArray[Any]],
        opset: int,
        entries: Callable[[Sequence[Value]], Mapping[str, Entry]] | None = None,
    ) -> Region:
        with self._values.nested(Body(self._values.body)) as body, self._returning():
            given = tuple(self._define(name, kind) for name, kind in inputs)
            for (name, _), value in zip(inputs, given, strict=True):
                if name:
                    self.bind(name, value)
            for name, entry in (entries(given) if entries else {}).items():
                self.bind(name, entry)
            for name, data in constants.items():
                self._add_constant(name, data)
            outputs = map(self._all_computed, self._import_graph(graph, opset))
            return Region(body, given, tuple(outputs))

    def branch(self, graph: onnx.GraphProto, opset: int) -> Region:
        before = sizes_alone(self._signature, self.defined)
        begin = functools.partial(_Branch, self, graph, opset, before, dict(self._places))
        return settled(before, begin, is_branch=True)

    def branch_at(self, graph: onnx.GraphProto, opset: int, sizes: LocalSizes) -> Region:
        """The branch for the sizes that are left. Raises ImpliedSizes where other typical sizes
        than those at hand are better for all of the model."""
        implied = sizes.implied()
        mine = {one.name for one in self._whole.dims} - self._whole.pinned - self._whole.implied
        if implied and implied.keys() <= mine:
            raise ImpliedSizes(implied)
        around = self._signature
        if not sizes.is_narrower:
            self._signature = sizes.with_data(around)
            try:
                return self.region(graph, [], {}, opset)
            finally:
                self._signature = around
        with self._values.nested(Body(self._values.body)) as body, self._returning():
            own = self._own_sizes(sizes)
            body.sizes = sizes.given(own)
            self._signature = sizes.within(own)
            try:
                entries = self._import_graph(graph, opset)
                outputs = [self._resized(entry, sizes.around(own)) for entry in entries]
            except UnresolvedShapeError as error:
                if isinstance(error.__cause__, Undecided):
                    asked = sizes.asked(error.__cause__.question, own)
                    if asked is not None:
                        raise error from asked
                raise
            finally:
                self._signature = around
            return Region(body, (), tuple(map(self._all_computed, outputs)))

    def _own_sizes(self, sizes: LocalSizes) -> dict[Symbol, Extent]:
        """The symbols of a branch, which is entered with sizes that it is for, or not at all."""
        own: dict[Symbol, Extent] = {}
        self._reason = sizes.reason
        try:
            for one in sorted(sizes.locals, key=lambda one: not isinstance(one.most, int)):
                name = self.unknown(self.constant(ints([one.value])))
                most = substitute(one.most, sizes.narrowed(own))
                (own[one.narrowed],) = to_extents(self.sizes(name, (most,), one.usual))
            for outside, inside in sizes.checks(own):
                self.require(self.unknown(self.constant(ints([outside]))), [inside])
        finally:
            self._reason = ""
        return own

    def _resized(self, entry: Entry, sizes: Mapping[Atom, Extent]) -> Entry:
        """What a branch returns, in the sizes of the graph around it."""
        body = self._values.body
        return with_tensors(entry, lambda value: self._view(self.computed(value), sizes, body))

    def settles(self, error: UnresolvedShapeError) -> bool:
        asked = error.__cause__
        return isinstance(asked, Undecided) and self._signature.settles(
            asked.question, self.defined
        )

    def inputs_behind(self, values: Sequence[Value]) -> tuple[str, ...]:
        return self._inputs_behind(value.name for value in values)

    def viewed(self, region: Region, value: Value, shape: Shape) -> Value:
        return self._shaped(value, shape, region.body)

    def _view(self, value: Value, sizes: Mapping[Atom, Extent], body: Body) -> Value:
        """A value in other symbols of the same sizes."""
        shape = tuple(substitute(extent, sizes) for extent in value.type.shape)
        return self._shaped(value, shape, body)

    def _shaped(self, value: Value, shape: Shape, body: Body) -> Value:
        """A value in another shape of the same sizes; itself where that is its own."""
        if shape == value.type.shape:
            return value
        key = ("View", value, shape)
        if key in body.computed:
            return body.computed[key].outputs[0]
        target = Value(f"v{next(self._counter)}", TensorType(DType.I64, (len(shape),)))
        self._data[target.name] = ints(list(shape))
        body.constants[target.name] = target
        out = self._define("", dataclasses.replace(value.type, shape=shape))
        node = Node("View", (value, target), (out,), (), (), self._current.origin)
        body.nodes.append(node)
        body.computed[key] = node
        return out

    @contextlib.contextmanager
    def _returning(self) -> Iterator[None]:
        """Within it other nodes are imported, maybe in vain."""
        current = self._current
        try:
            yield
            self._begun = current
        finally:
            self._current = current

    def finished(
        self, region: Region, name: str, captured: Sequence[Value], outputs: Sequence[Value]
    ) -> Graph:
        known = {outside.name: inside for outside, inside in region.body.captured.values()}
        seen = [known.get(value.name) or self._define("", value.type) for value in captured]
        return self._pruned(region.body, name, (*region.inputs, *seen), outputs)

    def counted(self, bound: Extent | None, usual: int | None = None, beside: int = 1) -> Extent:
        """`beside` are found in one shape."""
        if bound is None:
            room = first_room(beside) if usual is None else usual
            bound = dim(f"c{next(self._symbols)}", 0, MAX_EXTENT, room)
        chosen = typical(bound) if usual is None else min(usual, typical(bound))
        extent = dim(f"k{next(self._symbols)}", 0, bound, chosen)
        self._note(extent)
        return extent

    def found_in(self, region: Region) -> frozenset[str]:
        nodes = region.body.nodes
        return frozenset(name for node in nodes for name in defined(node, self._data.get))

    def append(self, node: Node) -> None:
        self._node_count += 1
        if self._node_count > MAX_NODES:
            raise NotSupported(f"a model that unrolls to more than {MAX_NODES} nodes")
        self._values.body.nodes.append(node)
        self._made |= {value.name: node for value in node.outputs}

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._values.body.nodes)

    def _hand_in(self, value: Value, body: Body) -> Value:
        """What stands in a region for a value of the body around it; a constant is the region's as
        well."""
        if value.name not in body.captured:
            inside = Value(f"v{next(self._counter)}", value.type)
            data = self._data.get(value.name)
            if data is not None:
                change = functools.partial(substitute, values=body.sizes)
                if has_dims(data) and body.sizes:
                    data = array_with_extents(data, value.type.dtype, change)
                self._data[inside.name] = data
                body.constants[inside.name] = inside
            body.captured[value.name] = (value, inside)
            body.viewed[value.name] = self._view(inside, body.sizes, body)
        return body.viewed[value.name]

    def _define(self, name: str, kind: TensorType) -> Value:
        value = Value(f"v{next(self._counter)}", kind)
        if name:
            self._values[name] = value
        return value

    def computed(self, value: Value) -> Value:
        """`value`, or where it is a constant that depends on sizes, what computes it."""
        if value.name in self._bound or not has_dims(self._data.get(value.name)):
            return value
        if value.name not in self._sizes:
            self._sizes[value.name] = self._extents(value)
        return self._sizes[value.name]

    def _extents(self, value: Value) -> Value:
        """The value of a constant that depends on sizes, computed at run time."""
        whole, below = parts(self._data[value.name])
        if below is not None:
            operands = [self.fresh(), self.fresh()]
            for name, part in zip(operands, (whole, below), strict=True):
                self._add_constant(name, as_array(part, value.type.dtype), value.type.dtype)
            return self._values[self.add("Div", *map(self.unknown, operands))]
        made = self._define("", value.type)
        self.append(Node("Extents", (value,), (made,)))
        return made

    def _constant(self, value: Value) -> Value:
        """`value`, or where it is computed although it is known, a constant of what it is."""
        if value.name not in self._bound:
            return value
        return self._values[self.constant(self._data[value.name])]

    def _all_computed(self, entry: Entry) -> Entry:
        return with_tensors(entry, self.computed)

    def _add_constant(self, name: str, data: npt.NDArray[Any], dtype: DType | None = None) -> None:
        """`dtype` is that of the value where `data` holds dims. Strings are given as such."""
        is_strings = data.dtype.kind == "U"
        if is_strings:
            data = codes_of(data)
        if pages_of(data) is None:  # what lies in a file takes memory only while it is read
            self._constant_bytes += data.nbytes
        if self._constant_bytes > MAX_CONSTANT_BYTES:
            raise InvalidModelError(
                f"the constants that are made take more than {MAX_CONSTANT_BYTES >> 30} GiB, "
                f"reached at {name!r} of shape {data.shape}"
            )
        data = data.view()
        data.flags.writeable = False
        if dtype is None:
            dtype = DType.I64 if has_dims(data) else DType.from_numpy(data.dtype)
        value = self._define(name, TensorType(dtype, data.shape))
        self._data[value.name] = data
        self._values.body.constants[value.name] = value
        if is_strings:
            self._values[name] = Strings(value)

    def _import_node(self, original: RawNode, opset: int) -> None:
        where = _where(original)
        self._current = self._begun = node = original
        self._deferred = None
        try:
            moved = on_codes(original, self)
            for node in self._upgraded(moved or original, opset):
                self._emit(node) if node.op in names() else self.expand(node, opset)
            if moved is not None:
                for name, codes in zip(original.outputs, moved.outputs, strict=False):
                    if name != codes:
                        self._values[name] = Strings(self._values[codes])
        except NotSupported as error:
            raise UnsupportedOperatorError(f"{where}: {error} is not supported") from error
        except NotStatic as error:
            raise UnresolvedShapeError(
                f"{where}: {self._text(str(error))}",
                hint="make it a constant: values may decide how long an axis is, not what is done",
                deciding=self._deciding(node, error),
            ) from error
        except Undecided as error:
            raise UnresolvedShapeError(
                f"{where}: {self._text(str(error))}",
                hint=self._hint(error.question),
                deciding=self._inputs_behind(self._bound),
            ) from error
        except Mismatch as error:
            raise MisfitError(f"{where}: {self._text(str(error))}") from error
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            # Attributes of wrong types and lengths surface as these: the model is at fault.
            reason = f"{type(error).__name__}: {error}"
            raise MisfitError(f"{where} is malformed: {reason}") from error

    def _upgraded(self, node: RawNode, opset: int) -> list[RawNode]:
        """Return the node in the form of Farrier's operators, or of another package's."""
        imported = import_of(node.op)
        if imported is None:
            return upgrade(node, opset, self)
        attrs = dict(imported.attributes(node.attrs, self._version_of(node.op, opset)))
        return [dataclasses.replace(node, op=imported.operator, attrs=attrs)]

    def _hint(self, question: Question) -> str:
        """The way out for a question that nothing settles."""
        nodes = {
            self.defined[symbol.name].key[0]
            for symbol in symbols((question.extent,))
            if symbol.name in self.defined
        }
        if nodes:
            which = " and ".join(repr(node) for node in sorted(nodes))
            return (
                f"have the size that {which} computes from values follow from shapes, or be fixed"
            )
        return "give --shape numbers, or ranges in which this does not change"

    def _deciding(self, node: RawNode, error: NotStatic) -> tuple[str, ...]:
        """The model's inputs that the operands which decide a shape are computed from."""
        deciding: Iterable[str] = () if error.operands is None else error.operands
        if error.operands is None and node.op in names():
            deciding = filter(None, map(node.input, lookup(node.op).static))
        return self._inputs_behind({self._values[name].name for name in deciding})

    def _inputs_behind(self, names: Iterable[str]) -> tuple[str, ...]:
        """The model's inputs that some values are computed from."""
        wanted = set(names)
        body: Body | None = self._values.body
        while body is not None:
            for earlier in reversed(body.nodes):
                if any(value.name in wanted for value in earlier.outputs):
                    wanted.update(value.name for value in earlier.inputs if value is not None)
            captures = body.captured.values()
            wanted.update(outside.name for outside, inside in captures if inside.name in wanted)
            body = body.parent
        pairs = zip(self._whole.types, self._inputs, strict=True)
        return tuple(name for name, value in pairs if value.name in wanted)

    def _emit(self, node: RawNode) -> None:
        """Types a node in the newest opset's form, and folds it where it can be.

        What has no elements is known before it is computed: it is a constant.
        """
        operator = lookup(node.op)
        if node.op == "Identity":
            self._values[node.outputs[0]] = self._values.entry(node.inputs[0])
            return
        if operator.kind is Kind.ELEMENTWISE and len(node.inputs) > 1:
            stretch(node, self, self._signature)
        inputs = [self._values[name] if name else None for name in node.inputs]
        while inputs and inputs[-1] is None:
            inputs.pop()
        types = [value.type if value else None for value in inputs]
        data = [self._data.get(value.name) if value else None for value in inputs]
        constants = {i: array for i, array in enumerate(data) if array is not None}
        attrs: Mapping[str, Attribute] = node.attrs
        if operator.explicit is not None:
            attrs = operator.explicit(types, attrs)
        if operator.counts:
            attrs = {**attrs, "extent": f"k{next(self._symbols)}"}
        kinds = operator.infer(types, constants, attrs)
        if operator.counts:
            counted = (s for kind in kinds for s in symbols(kind.shape))
            symbol = next((s for s in counted if s.name == attrs["extent"]), None)
            self._note(0 if symbol is None else as_extent(symbol))
        self._check_outputs(node, kinds)
        for extent, enough in shortfall(node.op, types, kinds, attrs):
            self._check_elements(extent, enough)
        try:
            results = _folded(operator, inputs, data, kinds, attrs)
        except Undecided as asked:
            if not self._is_tested_at_run_time(node, asked.question):
                raise
            results = None
        if results is not None:
            for name, result, kind in zip(node.outputs, results, kinds, strict=False):
                self._add_constant(name or self.fresh(), result, kind.dtype)
            return
        made = tuple(sorted(attrs.items()))
        key = (node.op, tuple(map(self._identity, inputs)), made)
        if operator.counts:  # its symbol is new each time
            key = (node.op, key[1], tuple(one for one in made if one[0] != "extent"))
        for position, value in enumerate(inputs):
            if value is not None:
                is_static = position in operator.static
                inputs[position] = self._constant(value) if is_static else self.computed(value)
        names = itertools.chain(node.outputs, itertools.repeat(""))
        twin = self._values.body.computed.get(key)
        are_sizes = all(kind.dtype in _COUNTING and kind.rank < 2 for kind in kinds)
        if twin is not None and (are_sizes or operator.counts):
            # Sizes that are computed alike are equal.
            for name, value in zip(names, twin.outputs, strict=False):
                self.bind(name, value)
            return
        outputs = tuple(self._define(name, kind) for name, kind in zip(names, kinds, strict=False))
        self.append(Node(node.op, tuple(inputs), outputs, made, (), node.origin))
        if node.op in _IDLE and inputs[0] is not None and kinds[0] == inputs[0].type:
            self._alike[outputs[0].name] = self._alike.get(inputs[0].name, inputs[0])
        elif twin is None:
            self._values.body.computed[key] = self._values.body.nodes[-1]
        else:
            firsts = zip(outputs, twin.outputs, strict=False)
            self._alike |= {value.name: first for value, first in firsts}
        for name, value in zip(node.outputs, outputs, strict=False):
            if name:
                self.bind(name, value)

    def _is_tested_at_run_time(self, node: RawNode, question: Question) -> bool:
        """Return whether a question is about sizes that values decide, and its answer selects a
        branch: both branches are compiled instead of the one for the typical sizes."""
        asked = symbols((question.extent,))
        return node.outputs[0] in self._conditions and all(s.name in self.defined for s in asked)

    def _text(self, message: str) -> str:
        """A message about symbols with names that say where they come from."""
        names = {symbol: one.name for symbol, one in self.defined.items()}
        told = self._signature.text(message)
        return re.sub(r"\b[kd]\d+\b", lambda match: names.get(match[0], match[0]), told)

    def _check_elements(self, extent: Extent, enough: Extent) -> None:
        """Check that there is an element of an axis from which one is taken. Raises Undecided
        where fewer sizes of one dim answer that; otherwise `enough` is checked when the model
        runs."""
        if enough == 0:
            raise Mismatch("an element is taken from an axis of 0")
        if enough == minimum(extent, 1) and len(set(symbols((extent,)))) == 1:
            try:
                if extent > 0:
                    return
            except Undecided as asked:
                if self._signature.settles(asked.question):
                    raise
        self.require(self.unknown(self.constant(ints([enough]))), [1])

    def _identity(self, value: Value | None) -> Hashable:
        """What two values that are certainly equal share."""
        data = None if value is None else self._data.get(value.name)
        if value is None or data is None or data.size > _FEW or value.name in self._bound:
            return None if value is None else self._alike.get(value.name, value)
        return (value.type, tuple(data.reshape(-1).tolist()))

    def _check_outputs(self, node: RawNode, kinds: tuple[TensorType, ...]) -> None:
        surplus = [name for name in node.outputs[len(kinds) :] if name and name in self._read]
        if surplus:
            raise NotSupported(f"the further output {surplus[0]!r}")
        for kind in kinds:
            what = f"an output of node {node.origin!r} ({node.op})"
            check_size(kind, what, max(MAX_TENSOR_BYTES, self._files.nbytes))

    def _pruned(
        self, body: Body, name: str, inputs: tuple[Value, ...], outputs: Sequence[Value]
    ) -> Graph:
        """The graph without nodes and constants that no output depends on."""
        live = Liveness(outputs, self._data.get)
        kept: list[Node] = []
        for node in reversed(body.nodes):
            if live.needs(node):
                kept.append(node)
                live.add(node)
        constants = tuple(
            Constant(value, self._data[value.name])
            for value in body.constants.values()
            if value.name in live.values
        )
        return Graph(name, inputs, constants, tuple(reversed(kept)), tuple(outputs))


def _folded(
    operator: Operator,
    inputs: list[Value | None],
    data: list[npt.NDArray[Any] | None],
    kinds: tuple[TensorType, ...],
    attrs: Mapping[str, Attribute],
) -> Sequence[npt.NDArray[Any]] | None:
    """The results of a node where they are known now, or None where it must stay one.

    Views and fills take no memory of their own, so they fold at any size. Quantized tensors stay
    what they are: passes may multiply them as integers.
    """
    if all(kind.is_static and not kind.size for kind in kinds):
        return [np.empty(kind.static_shape, kind.dtype.numpy) for kind in kinds]
    x = inputs[0] if inputs else None
    if operator.name == "Shape" and x is not None:
        return [as_array(x.type.shape[shape_bounds(attrs, x.type.rank)], DType.I64)]
    if operator.name == "Size" and x is not None:
        return [as_array(x.type.size, DType.I64)]
    if operator.name == "EyeLike" and x is not None and x.type.is_static:
        data = [np.broadcast_to(np.zeros((), x.type.dtype.numpy), x.type.static_shape)]
    elif any(
        value is not None and array is None for value, array in zip(inputs, data, strict=True)
    ):
        return None
    if not all(kind.is_static for kind in kinds):
        return None
    if operator.name in _STAY_QUANTIZED and kinds[0].rank:
        return None
    if any(map(has_dims, data)):
        return fold(operator, data, attrs, kinds)
    free = operator.kind is Kind.VIEW or operator.name in ("ConstantOfShape", "Expand")
    small = sum(number(kind.nbytes) for kind in kinds) <= MAX_FOLDED_BYTES
    if not free and (not small or operator.kind is Kind.CONTRACTION):
        return None
    with np.errstate(all="ignore"):
        return operator.evaluate(data, attrs, kinds)
