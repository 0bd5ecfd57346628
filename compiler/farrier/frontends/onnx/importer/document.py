"""What a model is, as a document: its interface, operators and graph, and what would not compile.

The importer reads the model as a compilation would. Where that fails, the reason is part of the
document, and the rest is what the message itself declares.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import onnx

from farrier.artifact.declaration import DeclaredValue
from farrier.errors import FarrierError, InvalidModelError
from farrier.frontends.builder.model import ImportedModel
from farrier.frontends.builder.signature import resolve
from farrier.frontends.builder.states import suggestions
from farrier.frontends.onnx.importer.build import import_model
from farrier.frontends.onnx.importer.declared import declaration
from farrier.frontends.onnx.importer.inputs import declared_inputs
from farrier.frontends.onnx.importer.limits import DOMAINS
from farrier.frontends.onnx.importer.parse import opset
from farrier.frontends.onnx.importer.raw import (
    describe,
    graphs_in,
    initialized,
    names_read,
    nodes_in,
    qualified_name,
)
from farrier.frontends.onnx.importer.reading import reading_of
from farrier.frontends.onnx.importer.tensors import dtype_of
from farrier.frontends.onnx.importer.unknown import is_unknown
from farrier.frontends.onnx.model.file import Model, model_of
from farrier.ir.control import failures
from farrier.ir.dim import Extent
from farrier.options.shapes import NamedDim
from farrier.options.states import Suggestion

MOST_NODES = 20_000  # of the graph in a document
MOST_BYTES = 8 << 20  # of a document as JSON
_FEWER_NODES = (MOST_NODES, 5_000, 1_000, 0)  # until the document is small enough
_MOST_NAMES = 1_000  # of inputs, outputs, operators and open dims
_LONGEST_NAME = 1_000  # characters; in the graph, where there are many, fewer
_LONGEST_IN_GRAPH = 120
_MOST_OUTPUTS = 8  # of a node that are named
_EDGES_PER_NODE = 4  # on average, at most
LEFT_OUT = "branch-left-out"  # the code of what keeps no model from compiling
_MOST_NUMBER = (1 << 53) - 1  # that every reader of JSON has exactly

Dims: TypeAlias = tuple[int | str, ...] | None  # "?" for an open one without a name


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output. `dims` is None where the rank is not known."""

    name: str
    dtype: str  # Farrier's, `string`, or what ONNX calls the type that is no tensor
    dims: Dims


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorUse:
    """An operator, how many nodes are of it, and why Farrier has none such where it has not."""

    op: str
    domain: str
    count: int
    supported: bool
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class OpenDim:
    """A size that is known when the model runs."""

    name: str
    low: int
    high: int
    typical: int


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Why the model, or a part of it, does not compile."""

    code: str
    detail: str
    hint: str


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node of the model's own graph, or one of its inputs and outputs (`kind`)."""

    id: int
    kind: str  # input, node or output
    op: str
    name: str
    outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelGraph:
    """The graph as the file has it, that of a branch or loop within its node. An edge leads from a
    node to one that reads its tensor. `left_out` nodes are beyond what a document holds."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[tuple[int, int, str], ...] = ()
    left_out: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Parameters:
    """The initializers, and the bytes that their elements take."""

    count: int = 0
    bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Inspection:
    """`problems` is empty for a model that compiles. What the file does not say, or cannot be read,
    is empty; so is `opset` 0."""

    name: str
    producer: str = ""
    opset: int = 0
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    parameters: Parameters = Parameters()
    operators: tuple[OperatorUse, ...] = ()
    open_dims: tuple[OpenDim, ...] = ()
    preconditions: tuple[str, ...] = ()
    states: tuple[Suggestion, ...] = ()  # These are suggestions.
    problems: tuple[Problem, ...] = ()
    graph: ModelGraph = ModelGraph()

    @property
    def compiles(self) -> bool:
        """Whether the model does, be it without branches that are left out."""
        return all(problem.code == LEFT_OUT for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json(self) -> bytes:
        """At most `MOST_BYTES`: what is beyond is left out of the graph, which says so."""
        for most in _FEWER_NODES:
            fewer = dataclasses.replace(self, graph=_first(self.graph, most))
            text = json.dumps(fewer.to_dict(), ensure_ascii=True, separators=(",", ":")).encode()
            if len(text) <= MOST_BYTES:
                break
        return text


def inspection(data: Model | bytes) -> Inspection:
    """What there is to say of a model; of what is none, why. Raises what no model is to blame for
    (MemoryError), and nothing else."""
    model = model_of(data)
    whole = Inspection(_shown(model.name))
    try:
        proto = reading_of(model).model
    except FarrierError as error:
        return dataclasses.replace(whole, problems=(_problem(error),))
    graph = proto.graph
    whole = dataclasses.replace(
        whole,
        producer=_shown(f"{proto.producer_name} {proto.producer_version}".strip()),
        opset=opset(proto),
        parameters=_parameters(graph),
        operators=_operators(reading_of(model).opsets, graph),
        graph=_graph(graph),
    )
    whole = _with_interface(whole, proto)
    try:
        dims = resolve(declared_inputs(graph), {}).dims
        whole = dataclasses.replace(whole, open_dims=_open(dims))
        return _with_types(whole, import_model(model))
    except FarrierError as error:
        return dataclasses.replace(whole, problems=(_problem(error),))


def _with_interface(whole: Inspection, proto: onnx.ModelProto) -> Inspection:
    """The document with inputs and outputs as declared, those that are no tensors as well."""
    declared = declaration(proto)
    defaults = set(declared.defaults)
    inputs = [info for info in proto.graph.input if info.name not in defaults]
    return dataclasses.replace(
        whole,
        inputs=_declared(inputs, declared.inputs),
        outputs=_declared(proto.graph.output, declared.outputs),
    )


def _declared(
    infos: Iterable[onnx.ValueInfoProto], told: Iterable[DeclaredValue]
) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(_shown(info.name), _dtype(info, one.type), _declared_dims(info))
        for info, one in itertools.islice(zip(infos, told, strict=True), _MOST_NAMES)
    )


def _dtype(info: onnx.ValueInfoProto, told: str) -> str:
    tensor = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type":
        return _shown(told)
    if tensor.elem_type == onnx.TensorProto.STRING:
        return "string"
    try:
        return str(dtype_of(tensor.elem_type, "").value)
    except InvalidModelError:  # an import says that it does not compile
        return _shown(told)


def _declared_dims(info: onnx.ValueInfoProto) -> Dims:
    tensor = info.type.tensor_type
    if info.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        return None
    return tuple(
        min(int(dim.dim_value), _MOST_NUMBER)
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0
        else _shown(dim.dim_param) or "?"
        for dim in itertools.islice(tensor.shape.dim, _MOST_NAMES)
    )


def _with_types(whole: Inspection, imported: ImportedModel) -> Inspection:
    """The document with what the import has found out."""
    graph, names = imported.graph, names_of(imported.dims)
    typed = {
        name: tuple(shown_extent(extent, names) for extent in value.type.shape)
        for name, value in zip(imported.output_names, graph.outputs, strict=True)
        if name not in imported.strings
    }
    dtypes = {
        name: str(value.type.dtype.value)
        for name, value in zip(imported.output_names, graph.outputs, strict=True)
    }
    return dataclasses.replace(
        whole,
        outputs=tuple(
            dataclasses.replace(
                one,
                dtype="string" if one.name in imported.strings else dtypes.get(one.name, one.dtype),
                dims=typed.get(one.name, one.dims),
            )
            for one in whole.outputs
        ),
        open_dims=_open(imported.dims),
        preconditions=tuple(_shown(str(one)) for one in imported.preconditions[:_MOST_NAMES]),
        states=tuple(
            Suggestion(_shown(pair.input), _shown(pair.output))
            for pair in suggestions(imported)[:_MOST_NAMES]
        ),
        problems=tuple(
            Problem(
                LEFT_OUT,
                _shown(f"one branch of node {node.origin!r} does not compile: {reason}"),
                "a run that takes it ends with an error; the others are not touched",
            )
            for node, reason in itertools.islice(_failing(imported), _MOST_NAMES)
        ),
    )


def _failing(imported: ImportedModel) -> Iterator[tuple[Any, str]]:
    """The nodes of which a branch is left out, each once, and why."""
    seen = set()
    for node in failures(imported.graph):
        key = (node.origin, str(node.attr("reason")))
        if key not in seen:
            seen.add(key)
            yield node, key[1]


def names_of(dims: Sequence[NamedDim]) -> dict[str, str]:
    """The user's names of open dims, by symbol."""
    return {one.symbol: one.name if one.step == 1 else f"({one.name}/{one.step})" for one in dims}


def shown_extent(extent: Extent, names: Mapping[str, str]) -> int | str:
    """An extent as text, symbols by the user's names."""
    if isinstance(extent, int):
        return min(extent, _MOST_NUMBER)
    return _shown(re.sub(r"\b[a-z]\d+\b", lambda found: names.get(found[0], found[0]), str(extent)))


def _open(dims: Sequence[NamedDim]) -> tuple[OpenDim, ...]:
    return tuple(
        OpenDim(_shown(one.name), one.low * one.step, one.high * one.step, one.typical * one.step)
        for one in dims[:_MOST_NAMES]
    )


def _parameters(graph: onnx.GraphProto) -> Parameters:
    count = total = 0
    for tensor in itertools.chain.from_iterable(one.initializer for one in graphs_in(graph)):
        count += 1
        elements = math.prod(max(0, dim) for dim in itertools.islice(tensor.dims, 64))
        total = min(total + _bytes(elements, tensor.data_type), _MOST_NUMBER)
    return Parameters(count, total)


def _bytes(elements: int, data_type: int) -> int:
    """What so many elements take; 0 where the type has no size."""
    try:
        return int(elements * dtype_of(data_type, "").nbytes)
    except InvalidModelError:
        return 0


def _operators(opsets: Mapping[str, int], graph: onnx.GraphProto) -> tuple[OperatorUse, ...]:
    """The operators of all graphs in the model, the most frequent first."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    first: dict[tuple[str, str], onnx.NodeProto] = {}
    for node in nodes_in(graph):
        key = ("" if node.domain in DOMAINS else node.domain, node.op_type)
        counts[key] += 1
        first.setdefault(key, node)
    found = []
    for (domain, op), count in counts.most_common(_MOST_NAMES):
        node = first[domain, op]
        reason = ""
        if is_unknown(node, opsets):
            reason = f"Farrier has no operator {qualified_name(node)}; first: {describe(node)!r}"
        found.append(OperatorUse(_shown(op), _shown(domain), count, not reason, _shown(reason)))
    return tuple(found)


def _graph(graph: onnx.GraphProto) -> ModelGraph:
    """Inputs, then nodes in the file's order, then outputs; of what is too much, the first."""
    initializers = set(initialized(graph))
    inputs = [info.name for info in graph.input if info.name not in initializers]
    outputs = [output.name for output in graph.output]
    total = len(inputs) + len(graph.node) + len(outputs)
    nodes: list[Node] = []
    made: dict[str, int] = {}  # which node a tensor is from
    for name in inputs[:MOST_NODES]:
        made[name] = len(nodes)
        nodes.append(Node(len(nodes), "input", "", _label(name), (_label(name),)))
    readers: list[tuple[int, Iterable[str]]] = []
    for node in itertools.islice(graph.node, MOST_NODES - len(nodes)):
        named = tuple(map(_label, itertools.islice(node.output, _MOST_OUTPUTS)))
        made.update((name, len(nodes)) for name in node.output if name)
        readers.append((len(nodes), names_read([node])))
        nodes.append(
            Node(len(nodes), "node", _label(qualified_name(node)), _label(describe(node)), named)
        )
    for name in outputs[: MOST_NODES - len(nodes)]:
        readers.append((len(nodes), [name]))
        nodes.append(Node(len(nodes), "output", "", _label(name), ()))
    edges = (
        (made[name], reader, _label(name))
        for reader, names in readers
        for name in dict.fromkeys(names)
        if name in made and made[name] != reader
    )
    most = _EDGES_PER_NODE * MOST_NODES
    return ModelGraph(tuple(nodes), tuple(itertools.islice(edges, most)), total - len(nodes))


def _first(graph: ModelGraph, most: int) -> ModelGraph:
    """The graph's first nodes, and the edges between them."""
    if len(graph.nodes) <= most:
        return graph
    edges = tuple(edge for edge in graph.edges if max(edge[:2]) < most)
    return ModelGraph(graph.nodes[:most], edges, graph.left_out + len(graph.nodes) - most)


def _problem(error: FarrierError) -> Problem:
    return Problem(error.code, error.message, error.hint)


def _shown(text: str | bytes, longest: int = _LONGEST_NAME) -> str:
    """protobuf hands over as bytes what is not UTF-8."""
    if isinstance(text, bytes):
        text = text.decode(errors="backslashreplace")
    return text if len(text) <= longest else f"{text[:longest]}…"


def _label(name: str | bytes) -> str:
    return _shown(name, _LONGEST_IN_GRAPH)
