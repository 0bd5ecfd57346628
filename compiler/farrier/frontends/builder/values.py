"""The values of a graph under construction: constants, producers of other values, captured
values."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from farrier.errors import InvalidModelError
from farrier.files.mapped import pages_of
from farrier.frontends.builder.limits import MAX_CONSTANT_BYTES, MAX_NODES
from farrier.frontends.builder.names import Body, Names, Strings
from farrier.frontends.builder.symbolic import as_array, has_dims, ints
from farrier.ir.dim import Atom, Extent, substitute
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.liveness import Liveness
from farrier.ir.sizes import array_with_extents
from farrier.ir.strings import codes_of
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops import NotSupported


class Values:
    """The values and nodes of a model, in all of its regions.

    The tables are indexed by the name of a value. `known` has the elements of constants, and of the
    values in `bound`: these are computed at run time, but their elements are extents. `producer`
    has the node that computes a value, and `first_equal` the earliest value that is certain to be
    equal. `origin` is the origin of added nodes that have no counterpart in the model.
    """

    def __init__(self) -> None:
        self.names = Names(self._hand_in)
        self.known: dict[str, npt.NDArray[Any]] = {}
        self.producer: dict[str, Node] = {}
        self.first_equal: dict[str, Value] = {}
        self.bound: set[str] = set()
        self.origin = ""
        self._counter = itertools.count()
        self._constant_bytes = 0
        self._node_count = 0

    @property
    def body(self) -> Body:
        """The graph or region to which nodes are currently appended."""
        return self.names.body

    def fresh(self) -> str:
        """Return a new name that cannot occur in a model, because it contains a NUL character."""
        return f"\0{next(self._counter)}"

    def define(self, kind: TensorType, name: str = "") -> Value:
        """Define a new value, and bind `name` to it unless it is ""."""
        value = Value(f"v{next(self._counter)}", kind)
        if name:
            self.names[name] = value
        return value

    def constant(self, data: npt.NDArray[Any], dtype: DType | None = None, name: str = "") -> Value:
        """Define a new constant, and bind `name` to it unless it is "". `dtype` is needed if `data`
        contains symbolic dims; strings become code points. Raises InvalidModelError if all
        constants together exceed the limit of memory."""
        is_strings = data.dtype.kind == "U"
        if is_strings:
            data = codes_of(data)
        if pages_of(data) is None:  # Constants in files do not count.
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
        value = self.define(TensorType(dtype, data.shape), name)
        self.known[value.name] = data
        self.body.constants[value.name] = value
        if is_strings and name:
            self.names[name] = Strings(value)
        return value

    def append(self, node: Node) -> None:
        """Append a node whose values are defined. Raises NotSupported if the graph has too many
        nodes."""
        self._node_count += 1
        if self._node_count > MAX_NODES:
            raise NotSupported(f"a model that unrolls to more than {MAX_NODES} nodes")
        self.body.nodes.append(node)
        self.producer |= {value.name: node for value in node.outputs}

    def note(self, value: Value, extents: Sequence[Extent]) -> None:
        """Record that a value is computed at run time and has the elements `extents`."""
        array = as_array(list(extents), value.type.dtype)
        self.known[value.name] = array.reshape(value.type.static_shape)
        self.bound.add(value.name)

    def source(self, value: Value) -> Value:
        """Return the constant with symbolic sizes from which an Extents node computes a value at
        run time. Return any other value itself."""
        # The builder itself adds an Extents for a constant that depends on sizes (`computed`).
        node = self.producer.get(value.name)
        if node is not None and node.op == "Extents" and node.inputs[0] is not None:
            return node.inputs[0]
        return value

    def view(self, value: Value, sizes: Mapping[Atom, Extent], body: Body) -> Value:
        """Return a value viewed in the shape in which each symbol is replaced by the extent in
        `sizes`, which must be equal to it at run time."""
        shape = tuple(substitute(extent, sizes) for extent in value.type.shape)
        return self.shaped(value, shape, body)

    def shaped(self, value: Value, shape: Shape, body: Body) -> Value:
        """Return a value viewed in `shape`, whose extents equal those of the value at run time but
        are written in other symbols."""
        if shape == value.type.shape:
            return value
        key = ("shaped", value, shape)
        if key in body.computed:
            return body.computed[key].outputs[0]
        target = self.define(TensorType(DType.I64, (len(shape),)))
        self.known[target.name] = ints(list(shape))
        body.constants[target.name] = target
        out = self.define(dataclasses.replace(value.type, shape=shape))
        node = Node("View", (value, target), (out,), (), (), self.origin)
        body.nodes.append(node)
        body.computed[key] = node
        return out

    def closed(
        self, body: Body, name: str, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Graph:
        """Return a graph of the body's nodes and constants on which `outputs` depend."""
        live = Liveness(outputs, self.known.get)
        kept: list[Node] = []
        for node in reversed(body.nodes):
            if live.needs(node):
                kept.append(node)
                live.add(node)
        constants = tuple(
            Constant(value, self.known[value.name])
            for value in body.constants.values()
            if value.name in live.values
        )
        return Graph(name, tuple(inputs), constants, tuple(reversed(kept)), tuple(outputs))

    def _hand_in(self, value: Value, body: Body) -> Value:
        """Return the value that stands for `value`, a value of the enclosing graph, in the region
        `body`: a captured input of the region, or a copy of a constant."""
        if value.name not in body.captured:
            inside = self.define(value.type)
            data = self.known.get(value.name)
            if data is not None:
                change = functools.partial(substitute, values=body.sizes)
                if has_dims(data) and body.sizes:
                    data = array_with_extents(data, value.type.dtype, change)
                self.known[inside.name] = data
                body.constants[inside.name] = inside
            body.captured[value.name] = (value, inside)
            body.viewed[value.name] = self.view(inside, body.sizes, body)
        return body.viewed[value.name]
