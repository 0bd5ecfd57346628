"""The backend of `torch.compile(module, backend="farrier")`.

A graph of dynamo is exported at its first call, and compiled with open sizes where dynamo has
symbolic ones. Weights are inputs of the code, passed by address: an update in place or a replaced
Parameter takes effect in the next call, because no copy of a weight exists. With the option
`freeze` weights are constants, and each call checks that they have not changed.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from farrier.errors import FarrierError, InputMismatchError
from farrier.pytorch.code import Code
from farrier.pytorch.compiling import Compilation, compile_beside, compile_here
from farrier.pytorch.graph import TensorGraph, frozen, tensor_graph
from farrier.pytorch.settings import Settings, settings_of
from farrier.runtime.artifact import Artifact

_LOG = logging.getLogger("farrier.pytorch")


@dataclasses.dataclass(slots=True)
class Compiled:
    """The state of a graph of dynamo, for `explain`: the reason for which it runs in eager mode, or
    "" if it runs compiled."""

    operators: int
    reason: str = "it was not called yet"


GRAPHS: list[Compiled] = []  # The graphs since `explain` began.


def farrier(
    graph: torch.fx.GraphModule,
    examples: Sequence[Any],
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return a function that computes the same as the graph. Raises UsageError for modes and
    options that Farrier does not support."""
    calls = sum(node.op.startswith("call") for node in graph.graph.nodes)
    note = Compiled(calls)
    GRAPHS.append(note)
    return _Function(graph, examples, note, settings_of(mode, options))


class _Function:
    """A graph with its compiled code. The graph is compiled at the first call, and again when a
    tensor that is a constant of the code has changed."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        examples: Sequence[Any],
        note: Compiled,
        settings: Settings,
    ) -> None:
        self._eager, self._note, self._settings = graph.forward, note, settings
        self._graph = tensor_graph(graph, examples)
        self._tensors = [n for n, x in enumerate(examples) if isinstance(x, torch.Tensor)]
        self._freezes = settings.freeze
        self._constant: list[int] = []  # The positions of weights that are constants of the code.
        self._held = [] if self._graph is None else self._graph.held
        self._marks: list[tuple[int, int]] | None = None
        self._builds = 0
        self._code: Code | None = None
        self._has_warned = False

    def __call__(self, *arguments: Any) -> Any:
        if torch.is_grad_enabled() and any(arguments[n].requires_grad for n in self._tensors):
            return self._with_gradients(arguments)
        if self._marks is None or self._marks != self._marked(arguments):
            self._build(arguments)
        code = self._code
        if code is None:
            return self._eager(*arguments)
        try:
            return code(arguments)
        except InputMismatchError as error:
            self._runs_eager(error)
            return self._eager(*arguments)

    def _with_gradients(self, arguments: Sequence[Any]) -> Any:
        self._note.reason = "gradients are asked for"
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "a graph runs in eager mode, because gradients are asked for: call the module "
                "under torch.no_grad() for inference"
            )
        return self._eager(*arguments)

    def _marked(self, arguments: Sequence[Any]) -> list[tuple[int, int]]:
        """Return a fingerprint of the tensors that are constants of the code: their addresses and
        torch's counts of writes."""
        constant = [(x.data_ptr(), x._version) for x in map(arguments.__getitem__, self._constant)]
        return constant + [
            (x.data_ptr(), 0 if x.is_inference() else x._version) for x in self._held
        ]

    def _build(self, arguments: Sequence[Any]) -> None:
        """Obtain code for the graph with the constants of this call. If the graph cannot be
        compiled, no code is set, and it runs in eager mode. If frozen weights have changed, weights
        become inputs of the new code."""
        if self._marks is not None and self._constant:
            self._freezes = False
        self._code, self._constant = None, []
        self._builds += 1
        graph = self._graph
        if graph is None:
            self._note.reason = "a number is an argument, and not a size of a tensor"
        elif any(map(_is_foreign, (*graph.tensors(arguments), *self._held))):
            self._note.reason = "a tensor is not on the CPU, or of bfloat16"
        else:
            if self._freezes:
                graph = self._frozen(graph, arguments)
            self._marks = self._marked(arguments)
            self._compile(graph, arguments)
            return
        self._marks = self._marked(arguments)

    def _frozen(self, graph: TensorGraph, arguments: Sequence[Any]) -> TensorGraph:
        weights = [each.position for each in graph.inputs if each.is_weight]
        if any(arguments[n].is_inference() for n in weights):
            _LOG.warning("weights made in inference mode are not frozen: torch counts no writes")
            return graph
        self._constant = weights
        return frozen(graph, arguments)

    def _compile(self, graph: TensorGraph, arguments: Sequence[Any]) -> None:
        try:
            compilation = Compilation(graph, graph.tensors(arguments), self._settings.options)
            kept = compilation.kept()
            if kept is not None or not self._settings.background:
                self._use(kept or compilation.artifact(compile_here), graph)
                return
            compilation.export()
        except FarrierError as error:
            self._runs_eager(error)
            return
        self._note.reason = "another process compiles it"
        follow = threading.Thread(
            target=self._follow, args=(compilation, graph, self._builds), daemon=True
        )
        follow.start()

    def _follow(self, compilation: Compilation, graph: TensorGraph, build: int) -> None:
        """Wait until another process has compiled the graph, and use the code from the next call
        on. If the constants have changed meanwhile (the number `build` is not the latest), drop
        it."""
        try:
            artifact = compilation.artifact(compile_beside)
            if build == self._builds:
                self._use(artifact, graph)
        except FarrierError as error:
            self._runs_eager(error)

    def _use(self, artifact: Artifact, graph: TensorGraph) -> None:
        """Use an artifact from the next call on. If the graph writes a frozen weight, the export
        has made it an input; then the next call compiles with weights as inputs."""
        names = {each.name for each in graph.inputs}
        if not names.issuperset(spec.name for spec in artifact.manifest.inputs):
            self._freezes, self._marks = False, None
            return
        self._code = Code(artifact, graph)
        self._note.reason = ""

    def _runs_eager(self, error: FarrierError) -> None:
        if self._note.reason != str(error):
            self._note.reason = str(error)
            _LOG.warning("a graph runs in eager mode: %s", error)


def _is_foreign(tensor: torch.Tensor) -> bool:
    return tensor.device.type != "cpu" or tensor.dtype is torch.bfloat16


def explain(module: Any, args: Sequence[Any], kwargs: Any = None) -> str:
    """Call a module through `torch.compile`, and return a report on its graphs and graph breaks."""
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
