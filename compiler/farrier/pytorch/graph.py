"""Convert a graph of dynamo to a graph that takes only tensors, and returns tensors and numbers."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

# The packages whose functions compute the same in every process with the same version of torch.
_FIXED = ("torch", "_operator", "operator", "math", "builtins")


class Result(enum.Enum):
    """The kind of an output of the graph."""

    TENSOR = enum.auto()
    NUMBER = enum.auto()
    CONSTANT = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """A tensor that the graph takes: its `position` among the arguments of a call, and dynamo's
    traced tensor, whose open sizes are symbols."""

    name: str
    position: int
    traced: torch.Tensor
    is_weight: bool

    @property
    def open_axes(self) -> list[int]:
        """The axes with symbolic sizes."""
        return [n for n, size in enumerate(self.traced.shape) if isinstance(size, torch.SymInt)]


@dataclasses.dataclass(frozen=True, slots=True)
class TensorGraph:
    """A graph whose arguments are all tensors. A size that dynamo passes as a number is read from a
    tensor with an axis of that size."""

    module: torch.fx.GraphModule
    inputs: tuple[Input, ...]

    def tensors(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """Return the tensors that the graph takes, from the arguments of a call."""
        return [arguments[each.position] for each in self.inputs]

    @property
    def results(self) -> list[tuple[Result, Any]]:
        """The kinds of the outputs; for a constant output also its value."""
        (output,) = (n for n in self.module.graph.nodes if n.op == "output")
        return [(_kind(value), value) for value in output.args[0]]

    @property
    def held(self) -> list[torch.Tensor]:
        """The parameters and buffers that are part of the graph, in contrast to the tensors that it
        takes as arguments."""
        return [*self.module.parameters(), *self.module.buffers()]


def tensor_graph(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> TensorGraph | None:
    """Convert a graph of dynamo to a graph that takes only tensors. Return None if it takes a
    number that is not the size of a tensor."""
    holders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    traced = [n.meta.get("example_value", x) for n, x in zip(holders, examples, strict=True)]
    inputs = tuple(
        Input(node.name, position, value, _is_weight(node))
        for position, (node, value) in enumerate(zip(holders, traced, strict=True))
        if isinstance(value, torch.Tensor)
    )
    sizes = {
        str(size): (each.name, axis)
        for each in reversed(inputs)
        for axis, size in enumerate(each.traced.shape)
        if isinstance(size, torch.SymInt)
    }
    numbers = {
        node: sizes.get(str(value))
        for node, value in zip(holders, traced, strict=True)
        if not isinstance(value, torch.Tensor)
    }
    if None in numbers.values():
        return None
    inner = torch.fx.Graph()
    nodes = {node: inner.placeholder(node.name) for node in holders if node not in numbers}
    named = {node.name: copy for node, copy in nodes.items()}
    for node, place in numbers.items():
        assert place is not None
        arguments = (named[place[0]], place[1])
        nodes[node] = inner.call_function(torch.ops.aten.sym_size.int, arguments)
        nodes[node].meta.update(node.meta)
    return TensorGraph(_copied(graph, inner, nodes), inputs)


def frozen(graph: TensorGraph, arguments: Sequence[Any]) -> TensorGraph:
    """Return the graph with its weights as buffers instead of inputs. The values of the weights are
    those in the `arguments` of a call."""
    inner = torch.fx.Graph()
    nodes = {}
    buffers: dict[str, torch.Tensor] = {}
    holders = (node for node in graph.module.graph.nodes if node.op == "placeholder")
    for node, each in zip(holders, graph.inputs, strict=True):
        if each.is_weight:
            name = f"frozen_{len(buffers)}"
            buffers[name] = arguments[each.position].detach()
            nodes[node] = inner.get_attr(name)
        else:
            nodes[node] = inner.placeholder(node.name)
    root = torch.nn.Module()
    for name, value in [*graph.module.named_children()]:
        root.add_module(name, value)
    for name, parameter in graph.module.named_parameters(recurse=False):
        root.register_parameter(name, parameter)
    for name, value in [*graph.module.named_buffers(recurse=False), *buffers.items()]:
        root.register_buffer(name, value)
    inputs = tuple(each for each in graph.inputs if not each.is_weight)
    return TensorGraph(_copied(root, inner, nodes, graph.module.graph), inputs)


def description(graph: TensorGraph) -> bytes | None:
    """Return a text that is equal in all processes for graphs that compute the same, or None if the
    graph calls code of the user, which may change."""
    if not all(map(_is_fixed, _nodes(graph.module))):
        return None
    lines = [f"torch {torch.__version__}"]
    for module in graph.module.modules():
        lines += [str(module.code) if isinstance(module, torch.fx.GraphModule) else repr(module)]
    lines += [
        f"{each.name} {_typed(each.traced)} {each.traced.device} {each.is_weight}"
        for each in graph.inputs
    ]
    lines += [f"{_typed(tensor)} {_digest(tensor)}" for tensor in graph.held]
    return "\n".join(lines).encode()


def _copied(
    root: torch.nn.Module,
    inner: torch.fx.Graph,
    nodes: dict[torch.fx.Node, torch.fx.Node],
    source: torch.fx.Graph | None = None,
) -> torch.fx.GraphModule:
    """Append copies of the nodes of `source` (by default the graph of `root`) to the graph `inner`,
    and return a module of `root` with this graph. `nodes` maps the placeholders of `source` to
    nodes of `inner`."""
    for node in (source or root.graph).nodes:
        if node.op != "placeholder":
            nodes[node] = inner.node_copy(node, lambda n: nodes[n])
    return torch.fx.GraphModule(root, inner)


def _is_weight(node: torch.fx.Node) -> bool:
    """Check whether dynamo takes the tensor from a module, in which case its address stays the
    same."""
    return bool((node.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type"))


def _kind(value: Any) -> Result:
    if not isinstance(value, torch.fx.Node):
        return Result.CONSTANT
    traced = value.meta.get("example_value")
    return Result.NUMBER if isinstance(traced, int | torch.SymInt) else Result.TENSOR


def _nodes(module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    for inner in module.modules():
        if isinstance(inner, torch.fx.GraphModule):
            yield from inner.graph.nodes


def _is_fixed(node: torch.fx.Node) -> bool:
    if node.op == "call_module":
        return False
    home = str(getattr(node.target, "__module__", None) or "torch")
    return node.op != "call_function" or home.partition(".")[0] in _FIXED


def _typed(tensor: torch.Tensor) -> str:
    sizes = [_size(size) for size in (*tensor.shape, *tensor.stride())]
    return f"{tensor.dtype} {' '.join(sizes)}"


def _size(size: Any) -> str:
    if not isinstance(size, torch.SymInt):
        return str(size)
    return f"{size.node.expr} in {size.node.shape_env.bound_sympy(size.node.expr)}"


def _digest(tensor: torch.Tensor) -> str:
    content = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()
    return hashlib.sha256(content.data).hexdigest()
