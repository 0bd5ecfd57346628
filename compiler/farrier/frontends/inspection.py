"""A report on a model for people: its interface, operators and graph, and the reasons that prevent
compilation.

A frontend imports the model as for a compilation. If that fails, the report contains the reason,
and the other fields are the declarations in the file.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from farrier.errors import FarrierError
from farrier.frontends.builder.model import ImportedModel
from farrier.frontends.builder.signature import Declared
from farrier.frontends.builder.states import suggestions
from farrier.frontends.formats import Format
from farrier.ir.control import failures
from farrier.ir.dim import Extent
from farrier.options.shapes import NamedDim
from farrier.options.states import Suggestion

MOST_NODES = 20_000  # A report has only the first nodes of a larger graph.
MOST_BYTES = 8 << 20  # The limit of a document as JSON.
# The numbers of nodes that are tried until the document is small enough.
_FEWER_NODES = (MOST_NODES, 5_000, 1_000, 0)
MOST_NAMES = 1_000  # The limit for inputs, outputs, operators and open dims.
_LONGEST_NAME = 1_000  # In characters. In the graph, which has many names, they are shorter.
_LONGEST_IN_GRAPH = 120
MOST_OUTPUTS = 8  # The limit for named outputs of a node.
EDGES_PER_NODE = 4  # The maximum of the average.
LEFT_OUT = "branch-left-out"  # The code of a problem that does not keep a model from compiling.
MOST_NUMBER = (1 << 53) - 1  # Every reader of JSON represents integers up to this one exactly.

C = TypeVar("C")  # A call of an operator, as its frontend has it.
K = TypeVar("K")  # The key of a tensor.
Dims: TypeAlias = tuple[int | str, ...] | None  # "?" for an open one without a name


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output in the report. `dims` is None if the rank is unknown."""

    name: str
    dtype: str  # Farrier's name, `string`, or ONNX's name of a type other than a tensor's.
    dims: Dims


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorUse:
    """An operator, the number of its nodes, and the reason for which Farrier does not compile it,
    if any."""

    op: str
    domain: str
    count: int
    supported: bool
    reason: str = ""


def uses(calls: Iterable[tuple[str, C]], reason: Callable[[C], str]) -> tuple[OperatorUse, ...]:
    """Return the operators in `calls`, pairs of (operator, call), with the number of calls of each,
    the most frequent operator first. `reason(call)` returns the reason why a call cannot be
    compiled, or ""; it is asked for the first call of each operator."""
    counts: Counter[str] = Counter()
    first: dict[str, C] = {}
    for name, call in calls:
        counts[name] += 1
        first.setdefault(name, call)
    return tuple(
        OperatorUse(shown(name), "", count, not why, shown(why))
        for name, count in counts.most_common(MOST_NAMES)
        for why in (reason(first[name]),)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class OpenDim:
    """A size that is not fixed when the model is compiled, with its range."""

    name: str
    low: int
    high: int
    typical: int


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """A reason for which the model, or a part of it, cannot be compiled."""

    code: str
    detail: str
    hint: str


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node of the model's own graph, or one of its inputs and outputs (`kind`)."""

    id: int
    kind: str  # One of input, node, output.
    op: str
    name: str
    outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelGraph:
    """The model's graph as drawn: nested graphs of branches and loops belong to their nodes. An
    edge leads from a node to a reader of its tensor. `left_out` counts the nodes beyond the size
    limit of a report."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[tuple[int, int, str], ...] = ()
    left_out: int = 0


class DrawnNode(NamedTuple, Generic[K]):
    """A node to draw: its operator, its name, and the keys of the tensors that it writes and
    reads."""

    op: str
    name: str
    outputs: Sequence[K]
    reads: Iterable[K]


def draw(
    inputs: Sequence[tuple[K, str]],
    nodes: Iterable[DrawnNode[K]],
    outputs: Sequence[tuple[str, Iterable[K]]],
    count: int,
    name_of: Callable[[K], str] = str,
) -> ModelGraph:
    """Return the graph to draw: first the inputs, then the nodes in the order of the file, then the
    outputs. At most `MOST_NODES` of them are drawn, and the others are counted in `left_out`;
    `count` is the number of `nodes`.

    A tensor is identified by a key, and `name_of` returns the name of a key. Inputs are pairs (key,
    name), and outputs are pairs (name, keys of the tensors that the output reads).
    """
    drawn: list[Node] = []
    makers: dict[K, int] = {}  # The nodes that compute the tensors.
    readers: list[tuple[int, Iterable[K]]] = []
    for key, name in inputs[:MOST_NODES]:
        makers[key] = len(drawn)
        drawn.append(Node(len(drawn), "input", "", label(name), (label(name),)))
    for node in itertools.islice(nodes, MOST_NODES - len(drawn)):
        named = tuple(label(name_of(key)) for key in node.outputs[:MOST_OUTPUTS])
        makers.update((key, len(drawn)) for key in node.outputs)
        readers.append((len(drawn), node.reads))
        drawn.append(Node(len(drawn), "node", label(node.op), label(node.name), named))
    for name, keys in outputs[: MOST_NODES - len(drawn)]:
        readers.append((len(drawn), keys))
        drawn.append(Node(len(drawn), "output", "", label(name), ()))
    edges = (
        (makers[key], reader, label(name_of(key)))
        for reader, keys in readers
        for key in dict.fromkeys(keys)
        if key in makers and makers[key] != reader
    )
    total = len(inputs) + count + len(outputs)
    most = EDGES_PER_NODE * MOST_NODES
    return ModelGraph(tuple(drawn), tuple(itertools.islice(edges, most)), total - len(drawn))


@dataclasses.dataclass(frozen=True, slots=True)
class Parameters:
    """The number of weight tensors, and the bytes of their elements."""

    count: int = 0
    bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Inspection:
    """The report on a model. `problems` is empty for a model that compiles. A field that the file
    does not declare, or that cannot be read, is empty; `opset` is then 0."""

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
    format: str = Format.ONNX.value

    @property
    def compiles(self) -> bool:
        """Check whether the model compiles, possibly without some branches."""
        return all(problem.code == LEFT_OUT for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json(self) -> bytes:
        """Return the report as JSON of at most `MOST_BYTES` bytes. Nodes that would exceed it are
        left out of the graph, and counted in `left_out`."""
        for most in _FEWER_NODES:
            fewer = dataclasses.replace(self, graph=_first(self.graph, most))
            text = json.dumps(fewer.to_dict(), ensure_ascii=True, separators=(",", ":")).encode()
            if len(text) <= MOST_BYTES:
                break
        return text


def failed(whole: Inspection, error: FarrierError) -> Inspection:
    """Return the report with the reason why the model does not compile."""
    return dataclasses.replace(whole, problems=(problem_of(error),))


def with_import(
    whole: Inspection,
    dims: Callable[[], Sequence[NamedDim]],
    load: Callable[[], ImportedModel],
) -> Inspection:
    """Return the report with the open dims that `dims` returns, and with what the import `load` has
    determined, or with the reason why one of them fails."""
    try:
        whole = dataclasses.replace(whole, open_dims=open_dims(dims()))
        return with_types(whole, load())
    except FarrierError as error:
        return failed(whole, error)


def declared_inputs(declared: Sequence[Declared]) -> tuple[Tensor, ...]:
    """Return the inputs of a report as the model declares them."""
    return tuple(
        Tensor(shown(tensor.name), str(tensor.dtype), tensor.dims)
        for tensor in declared[:MOST_NAMES]
    )


def with_types(whole: Inspection, imported: ImportedModel) -> Inspection:
    """Return the report with the facts that the import of the model has determined: types of
    outputs, open dims, preconditions, states and branches that do not compile."""
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
                tensor,
                dtype="string"
                if tensor.name in imported.strings
                else dtypes.get(tensor.name, tensor.dtype),
                dims=typed.get(tensor.name, tensor.dims),
            )
            for tensor in whole.outputs
        ),
        open_dims=open_dims(imported.dims),
        preconditions=tuple(
            shown(str(condition)) for condition in imported.preconditions[:MOST_NAMES]
        ),
        states=tuple(
            Suggestion(shown(pair.input), shown(pair.output))
            for pair in suggestions(imported)[:MOST_NAMES]
        ),
        problems=tuple(
            Problem(
                LEFT_OUT,
                shown(f"one branch of node {node.origin!r} does not compile: {reason}"),
                "a run that takes it ends with an error; the others are not touched",
            )
            for node, reason in itertools.islice(_failing(imported), MOST_NAMES)
        ),
    )


def _failing(imported: ImportedModel) -> Iterator[tuple[Any, str]]:
    """Yield each node with a branch that was not compiled, with the reason."""
    seen = set()
    for node in failures(imported.graph):
        key = (node.origin, str(node.attr("reason")))
        if key not in seen:
            seen.add(key)
            yield node, key[1]


def names_of(dims: Sequence[NamedDim]) -> dict[str, str]:
    """Return the user's names of open dims, by symbol."""
    return {
        named_dim.symbol: named_dim.name
        if named_dim.step == 1
        else f"({named_dim.name}/{named_dim.step})"
        for named_dim in dims
    }


def shown_extent(extent: Extent, names: Mapping[str, str]) -> int | str:
    """Return an extent for the report: an int, or text with the user's names of symbols."""
    if isinstance(extent, int):
        return min(extent, MOST_NUMBER)
    return shown(re.sub(r"\b[a-z]\d+\b", lambda match: names.get(match[0], match[0]), str(extent)))


def open_dims(dims: Sequence[NamedDim]) -> tuple[OpenDim, ...]:
    return tuple(
        OpenDim(
            shown(named_dim.name),
            named_dim.low * named_dim.step,
            named_dim.high * named_dim.step,
            named_dim.typical * named_dim.step,
        )
        for named_dim in dims[:MOST_NAMES]
    )


def _first(graph: ModelGraph, most: int) -> ModelGraph:
    """Return the graph reduced to its first `most` nodes and the edges between them."""
    if len(graph.nodes) <= most:
        return graph
    edges = tuple(edge for edge in graph.edges if max(edge[:2]) < most)
    return ModelGraph(graph.nodes[:most], edges, graph.left_out + len(graph.nodes) - most)


def problem_of(error: FarrierError) -> Problem:
    return Problem(error.code, error.message, error.hint)


def shown(text: str | bytes, longest: int = _LONGEST_NAME) -> str:
    """Return text for the report, cut to `longest` characters. protobuf returns text that is not
    UTF-8 as bytes."""
    if isinstance(text, bytes):
        text = text.decode(errors="backslashreplace")
    return text if len(text) <= longest else f"{text[:longest]}…"


def label(name: str | bytes) -> str:
    return shown(name, _LONGEST_IN_GRAPH)
