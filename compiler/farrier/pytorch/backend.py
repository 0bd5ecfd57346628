"""The backend of `torch.compile(module, backend="farrier")`.

A graph of dynamo is exported at its first call and compiled with open sizes where dynamo has them.
Weights are inputs of the code, by address: an update in place or a replaced Parameter is seen by
the next call, because nothing of a weight is kept. Arrays come and go without copies.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from farrier.errors import FarrierError
from farrier.progress import Event, Warned
from farrier.pytorch.export import exported

_LOG = logging.getLogger("farrier.pytorch")


@dataclasses.dataclass(slots=True)
class Compiled:
    """A graph of dynamo, for `explain`: why it runs in eager mode, or "" if it does not."""

    operators: int
    reason: str = "it was not called yet"


GRAPHS: list[Compiled] = []  # The graphs since `explain` began.


def farrier(
    graph: torch.fx.GraphModule, examples: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """Return a function that computes the same as the graph."""
    calls = sum(node.op.startswith("call") for node in graph.graph.nodes)
    note = Compiled(calls)
    GRAPHS.append(note)
    return _Function(graph, examples, note, dict(options.get("options") or {}))


class _Function:
    """A graph with its code, which is compiled at the first call."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        examples: Sequence[Any],
        note: Compiled,
        options: dict[str, Any],
    ) -> None:
        self._eager, self._note, self._options = graph.forward, note, options
        self._tensors = [n for n, x in enumerate(examples) if isinstance(x, torch.Tensor)]
        fakes = _symbolic(graph, examples)
        self._open = [_open_axes(fakes[n]) for n in self._tensors]
        self._code: dict[Any, Callable[..., Any] | None] = {}
        self._graph = _without_numbers(graph, fakes)
        self._baked = [*self._graph.parameters(), *self._graph.buffers()] if self._graph else []

    def __call__(self, *arguments: Any) -> Any:
        tensors = [arguments[n] for n in self._tensors]
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            self._note.reason = "gradients are asked for"
            return self._eager(*arguments)
        key = tuple((x.data_ptr(), x._version) for x in self._baked)
        if key not in self._code:
            self._code = {key: self._compiled(tensors)}
        code = self._code[key]
        return self._eager(*arguments) if code is None else code(tensors)

    def _compiled(self, tensors: Sequence[torch.Tensor]) -> Callable[..., Any] | None:
        """Return the code, or None if the graph runs in eager mode."""
        import farrier

        if self._graph is None:
            self._note.reason = "a size is an argument that no tensor has"
            return None
        if any(x.device.type != "cpu" or x.dtype is torch.bfloat16 for x in tensors):
            self._note.reason = "a tensor is not on the CPU, or of bfloat16"
            return None
        shapes = [dict.fromkeys(axes, torch.export.Dim.AUTO) for axes in self._open]
        try:
            model = exported(self._graph, tensors, None, tuple(shapes))
            options = {"listener": _log, **self._options}
            artifact = farrier.compile(model, verify=False, **options)
        except FarrierError as error:
            self._note.reason = str(error)
            _LOG.warning("a graph runs in eager mode: %s", error)
            return None
        self._note.reason = ""
        return _Call(artifact, self._graph)


def _log(event: Event) -> None:
    """Log a warning. That of sizes of 1 would be wrong: dynamo compiles these by themselves."""
    if isinstance(event, Warned):
        _LOG.info("%s", event.message)


class _Call:
    """The code of a graph: tensors in, tensors out."""

    def __init__(self, artifact: Any, graph: torch.fx.GraphModule) -> None:
        self._session = artifact.session()
        self._names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
        inputs = {spec.name for spec in artifact.manifest.inputs}
        self._places = [(n, name) for n, name in enumerate(self._names) if name in inputs]
        (output,) = (n for n in graph.graph.nodes if n.op == "output")
        results = output.args[0]
        self._is_tensor = [isinstance(x, torch.fx.Node) for x in results]
        self._constants = list(results)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        inputs = {name: tensors[n].detach().numpy() for n, name in self._places}
        results = dict(self._session.run(inputs))
        for n, name in self._places:
            if f"{name}.new" in results:  # The graph writes into the argument.
                tensors[n].copy_(torch.from_numpy(results.pop(f"{name}.new")))
        values = iter(results.values())
        return tuple(
            torch.from_numpy(next(values)) if is_tensor else constant
            for is_tensor, constant in zip(self._is_tensor, self._constants, strict=True)
        )


def _symbolic(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> list[Any]:
    """Return the examples as dynamo traced them, whose open sizes are symbols."""
    holders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [n.meta.get("example_value", x) for n, x in zip(holders, examples, strict=True)]


def _open_axes(tensor: torch.Tensor) -> list[int]:
    return [n for n, size in enumerate(tensor.shape) if isinstance(size, torch.SymInt)]


def _without_numbers(
    graph: torch.fx.GraphModule, examples: Sequence[Any]
) -> torch.fx.GraphModule | None:
    """Return the graph with tensors as its only arguments: a size that dynamo hands in as a number
    is read from a tensor that has it. Return None for other numbers."""
    holders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    places: dict[str, tuple[str, int]] = {}
    for node, x in zip(holders, examples, strict=True):
        if isinstance(x, torch.Tensor):
            for axis, size in enumerate(x.shape):
                if isinstance(size, torch.SymInt):
                    places.setdefault(str(size), (node.name, axis))
    copied = torch.fx.GraphModule(graph, torch.fx.Graph())
    nodes: dict[torch.fx.Node, Any] = {}
    inner = copied.graph
    for node, x in zip(holders, examples, strict=True):
        if isinstance(x, torch.Tensor):
            nodes[node] = inner.placeholder(node.name)
    named = {node.name: node for node in holders}
    for node, x in zip(holders, examples, strict=True):
        if isinstance(x, torch.Tensor):
            continue
        if str(x) not in places:
            return None
        name, axis = places[str(x)]
        nodes[node] = inner.call_function(torch.ops.aten.sym_size.int, (nodes[named[name]], axis))
    for node in graph.graph.nodes:
        if node.op != "placeholder":
            nodes[node] = inner.node_copy(node, lambda n: nodes[n])
    copied.recompile()
    return copied


def explain(module: Any, args: Sequence[Any], kwargs: Any = None) -> str:
    """Call a module through `torch.compile`, and return a report on its graphs and breaks."""
    GRAPHS.clear()
    torch._dynamo.reset()
    report = torch._dynamo.explain(module)(*args, **dict(kwargs or {}))
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module, backend=farrier)(*args, **dict(kwargs or {}))
    lines = [f"{len(GRAPHS)} graphs, {report.graph_break_count} breaks between them"]
    for number, graph in enumerate(GRAPHS):
        state = f"runs in eager mode: {graph.reason}" if graph.reason else "is compiled"
        lines.append(f"graph {number} of {graph.operators} operators {state}")
    lines += [f"break: {reason.reason}" for reason in report.break_reasons]
    return "\n".join(lines)
