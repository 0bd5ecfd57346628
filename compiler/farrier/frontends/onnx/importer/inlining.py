"""Inline a model's local functions.

ONNX's own inliner is not used because it ignores default values of a function's attributes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import onnx

from farrier.errors import InvalidModelError
from farrier.frontends.builder.limits import MAX_NODES
from farrier.frontends.onnx.importer.functions import Renaming, instance
from farrier.frontends.onnx.importer.limits import DOMAINS, MAX_GRAPH_DEPTH, MAX_INLINED_BYTES
from farrier.frontends.onnx.importer.raw import (
    describe,
    graphs_in,
    graphs_of,
    initialized,
    nodes_in,
    nodes_of,
    schema_of,
)

Key: TypeAlias = tuple[str, str, str]  # The domain, name and overload of a function.
# A node's name is prefixed with those of all calls around it. This many characters, the last ones,
# are kept, so that messages stay readable and nested calls do not grow the model.
_LONGEST_NAME = 120


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace all calls of local functions by the functions' bodies, in place, and return the
    model.

    Raises InvalidModelError if a function calls itself, if a call has more inputs or outputs than
    its function, or if the result exceeds the limits of nodes or bytes.
    """
    if model.functions:
        _check_size(model)
        _Inliner(model).run()
        del model.functions[:]
    return model


def _key(item: onnx.NodeProto | onnx.FunctionProto) -> Key:
    """Return the key of a function, or of the function that a node calls."""
    name = item.op_type if isinstance(item, onnx.NodeProto) else item.name
    return "" if item.domain in DOMAINS else item.domain, name, item.overload


def _text(key: Key) -> str:
    return ":".join(filter(None, key))


class _Inliner:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._functions = {_key(function): function for function in model.functions}
        self._versions = {_domain(entry): entry.version for entry in model.opset_import}
        self._checked: set[Key] = set()
        self._used = set(_names_in(model.graph))
        self._counter = itertools.count()

    def run(self) -> None:
        self._inline_graph(self._model.graph, 0)

    def _inline_graph(self, graph: onnx.GraphProto, depth: int) -> None:
        """Inline all calls in a graph and its nested graphs. Bodies are processed without
        recursion, since chains of calls may be long."""
        if depth > MAX_GRAPH_DEPTH:
            raise InvalidModelError(
                f"with functions in place of their calls, graphs nest more than {MAX_GRAPH_DEPTH} "
                "deep"
            )
        inlined: list[onnx.NodeProto] = []
        waiting = list(reversed(graph.node))
        while waiting:
            node = waiting.pop()
            function = self._functions.get(_key(node))
            if function is not None:
                waiting += reversed(self._body(node, function))
                continue
            for inner in graphs_of(node):
                self._inline_graph(inner, depth + 1)
            inlined.append(node)
        nodes = onnx.GraphProto()
        nodes.node.extend(inlined)  # It copies the nodes, as the list that owns them is cleared.
        graph.ClearField("node")
        graph.MergeFrom(nodes)

    def _body(self, call: onnx.NodeProto, function: onnx.FunctionProto) -> list[onnx.NodeProto]:
        """Return a function's nodes with the values and attributes of a call."""
        where = f"node {describe(call)!r}, a call of the function {_text(_key(call))}"
        self._check_versions(function)
        for what, passed, declared in (
            ("inputs", call.input, function.input),
            ("outputs", call.output, function.output),
        ):
            if len(passed) > len(declared):
                raise InvalidModelError(
                    f"{where}, has {len(passed)} {what}, and the function {len(declared)}"
                )
        attributes = {default.name: default for default in function.attribute_proto}
        attributes |= {attribute.name: attribute for attribute in call.attribute}
        values = dict.fromkeys(function.input, "")
        values |= dict(zip(function.input, call.input, strict=False))
        passed_on: list[onnx.NodeProto] = []
        for inner, outer in zip(function.output, call.output, strict=False):
            # Such an output is an input of the function, or equal to another output.
            if inner in values and outer:
                passed_on.append(onnx.helper.make_node("Identity", [inner], [outer]))
            elif outer:
                values[inner] = outer
        names = Renaming(values, self._fresh)
        nodes = [instance(node, names, attributes) for node in function.node]
        for node, original in zip(nodes, function.node, strict=True):
            node.name = f"{describe(call)}/{describe(original)}"[-_LONGEST_NAME:]
        for node in passed_on:
            node.input[0], node.name = names[node.input[0]], describe(call)
        return [*nodes, *passed_on]

    def _fresh(self, name: str) -> str:
        """Return an unused name that is based on the name of a function's value."""
        fresh = name
        while fresh in self._used:
            fresh = f"{name}_{next(self._counter)}"
        self._used.add(fresh)
        return fresh

    def _check_versions(self, function: onnx.FunctionProto) -> None:
        """Add the domains that a function imports to the model's imports. Raises InvalidModelError
        if an operator in the function has a different definition in the model's opset."""
        key = _key(function)
        if key in self._checked:
            return
        self._checked.add(key)
        versions = {_domain(entry): entry.version for entry in function.opset_import}
        for domain, version in versions.items():
            if domain not in self._versions:
                self._versions[domain] = version
                self._model.opset_import.add(domain=domain, version=version)
        own, around = versions.get(""), self._versions.get("")
        if own is None or around is None or own == around:
            return
        for node in nodes_of(function):
            if node.domain in DOMAINS and _key(node) not in self._functions:
                schemas = [schema_of(node.op_type, version) for version in (own, around)]
                if len({schema and schema.since_version for schema in schemas}) > 1:
                    raise InvalidModelError(
                        f"the function {_text(key)} uses {node.op_type} of opset {own}, and the "
                        f"model opset {around}, in which that operator is another",
                        hint="inline it: onnx.inliner.inline_local_functions(model, "
                        "convert_version=True)",
                    )


def _domain(entry: onnx.OperatorSetIdProto) -> str:
    return "" if entry.domain in DOMAINS else entry.domain


def _names_in(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of all values in a graph and its nested graphs, possibly repeatedly."""
    for each in graphs_in(graph):
        yield from (info.name for info in (*each.input, *each.output))
        yield from initialized(each)
        for node in each.node:
            yield from (*node.input, *node.output)


def _check_size(model: onnx.ModelProto) -> None:
    """Raise InvalidModelError if a function calls itself, or if the inlined model would exceed the
    limits of nodes or bytes. The sizes are computed without inlining."""
    bodies: dict[Key, list[onnx.NodeProto]] = {}
    for function in model.functions:
        nodes = nodes_of(function)
        if bodies.setdefault(_key(function), nodes) is not nodes:
            raise InvalidModelError(f"two functions are named {_text(_key(function))}")
    sizes: dict[Key, tuple[int, int]] = {}
    pending = list(bodies)
    entered: set[Key] = set()
    # This is a depth-first search: a function's size follows those of the functions that it calls.
    while pending:
        name = pending[-1]
        calls = map(_key, bodies[name])
        open_calls = [call for call in calls if call in bodies and call not in sizes]
        if name in sizes or not open_calls:
            pending.pop()
            sizes[name] = _size(bodies[name], sizes)
            continue
        if name in entered:
            raise InvalidModelError(f"the function {_text(name)} calls itself")
        entered.add(name)
        pending += open_calls
    count, nbytes = _size(nodes_in(model.graph), sizes)
    if count > MAX_NODES or nbytes > model.ByteSize() + MAX_INLINED_BYTES:
        raise InvalidModelError(
            f"with its functions in place of their calls, the model has {count} nodes of {nbytes} "
            f"bytes; Farrier reads {MAX_NODES} nodes, and {MAX_INLINED_BYTES >> 20} MiB more than "
            "the model itself has"
        )


def _size(nodes: Iterable[onnx.NodeProto], sizes: Mapping[Key, tuple[int, int]]) -> tuple[int, int]:
    """Return the numbers of nodes and bytes after inlining; a call counts as the body of its
    function."""
    each = [sizes.get(_key(node)) or (1, node.ByteSize()) for node in nodes]
    return sum(count for count, _ in each), sum(nbytes for _, nbytes in each)
