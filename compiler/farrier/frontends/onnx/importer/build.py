"""Traverse an ONNX graph and add its nodes, in terms of Farrier's operators, to the builder."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import onnx

from farrier.artifact.declaration import Declaration
from farrier.errors import InvalidModelError
from farrier.frontends.builder.limits import MAX_TENSOR_BYTES
from farrier.frontends.builder.model import ImportedModel
from farrier.frontends.builder.names import Entry, Strings
from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.settle import built_by
from farrier.frontends.builder.signature import Signature, resolve
from farrier.frontends.onnx.importer.declared import declaration
from farrier.frontends.onnx.importer.functions import expand
from farrier.frontends.onnx.importer.inputs import declared_inputs, overridden
from farrier.frontends.onnx.importer.limits import NEWEST_OPSET
from farrier.frontends.onnx.importer.order import in_order
from farrier.frontends.onnx.importer.raw import initialized, names_read, to_raw
from farrier.frontends.onnx.importer.reading import Reading, reading_of
from farrier.frontends.onnx.importer.schema import check_types
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.strings.moves import on_codes
from farrier.frontends.onnx.importer.upgrade import upgrade
from farrier.frontends.onnx.model.file import Model, model_of
from farrier.ir.graph import Value
from farrier.ops import NotSupported, import_of, names
from farrier.options.shapes import GivenShape, Hot

_UNSAID: Hot = {}


def import_model(
    data: Model | bytes,
    shapes: Mapping[str, GivenShape] | None = None,
    hot: Sequence[Hot] = (),
    typical: Hot = _UNSAID,
) -> ImportedModel:
    """Return the typed model. `shapes` fixes dims that the model leaves open, by input name; `hot`
    and `typical` are sizes of dims that stay open, by name of dim. Questions about open dims are
    answered for the typical sizes (`frontends.builder.preconditions`). An initializer that the
    model lists among its inputs is a constant, unless `shapes` contains it: then it is an input.

    Raises InvalidModelError, UnsupportedOperatorError (with all unknown operators at once),
    UnresolvedShapeError, or UsageError for shapes that contradict the model.
    """
    files = model_of(data)
    reading = reading_of(files)
    shapes = shapes or {}
    model = reading.model
    declared = declared_inputs(model.graph, overridden(model, shapes), shapes)
    signature = resolve(declared, shapes, hot, typical)
    imported = built_by(
        functools.partial(_Import, reading, files), signature, _Import.import_outermost
    )
    return dataclasses.replace(imported, declaration=_declaration(model, imported))


def _declaration(model: onnx.ModelProto, imported: ImportedModel) -> Declaration:
    declared = declaration(model, imported.input_names)
    axes = imported.lists
    outputs = (
        dataclasses.replace(value, axis=axes[value.name]) if value.name in axes else value
        for value in declared.outputs
    )
    return dataclasses.replace(declared, outputs=tuple(outputs))


class _Import(ImportScope):
    """A builder during one import of an ONNX message."""

    def __init__(self, reading: Reading, files: Model, signature: Signature) -> None:
        super().__init__(signature)
        self._reading, self._files = reading, files
        self._model, self._opsets = reading.model, reading.opsets
        self.most_bytes = max(MAX_TENSOR_BYTES, files.nbytes)
        graph = self._model.graph
        self._read = {output.name for output in graph.output}
        self._read.update(reading.names_read(graph, self._opsets[""]))

    def import_outermost(self) -> None:
        """Import the model's outermost graph, and make its results outputs of the builder."""
        graph = self._model.graph
        results = self._import_graph(graph, self._opsets[""])
        for output, entry in zip(graph.output, results, strict=True):
            self.returns(output.name, entry)

    def nested(
        self, graph: onnx.GraphProto, entries: Mapping[str, Entry], opset: int
    ) -> list[Entry]:
        for name, entry in entries.items():
            self.values.names[name] = entry
        return self._import_graph(graph, opset)

    def emit(self, node: RawNode) -> None:
        if node.op in names():
            super().emit(node)
        else:
            self.expand(node, NEWEST_OPSET)

    def expand(self, node: RawNode, opset: int) -> None:
        types = [self.values.names[name].type if name else None for name in node.inputs]
        expanded = expand(node, self._version_of(node.op, opset), types, self.fresh)
        if expanded is None:
            raise NotSupported(f"the operator {node.op}")
        body, version = expanded
        self._read.update(names_read(body))
        for inner in body:
            self._import_node(to_raw(inner, self._files), version)

    def is_read(self, name: str) -> bool:
        return name in self._read

    def _import_graph(self, graph: onnx.GraphProto, opset: int) -> list[Entry]:
        """Import a graph whose inputs are defined and return its outputs."""
        defined = self.values.names
        inputs = self.inputs if graph is self._model.graph else ()
        for name, array in self._reading.initializers(graph, opset):
            if name in inputs:  # The caller's value overrides the initializer.
                continue
            if defined.is_local(name):
                raise InvalidModelError(f"two initializers or inputs are named {name!r}")
            self.values.constant(array, name=name)
        nodes = self._reading.nodes(graph, opset)
        computed = {name for node in nodes for name in node.outputs if not defined.is_local(name)}
        read = self._reading.names_read(graph, opset)
        before = [name for name in read if name in defined and name not in computed]
        before += [*(info.name for info in graph.input), *initialized(graph)]
        around = self.conditions
        self.conditions = frozenset(node.inputs[0] for node in nodes if node.op == "If")
        try:
            for node in in_order(nodes, before):
                entries = [defined.entry(name) if name else None for name in node.inputs]
                dtypes = [e.type.dtype if isinstance(e, Value) else None for e in entries]
                check_types(node, self._version_of(node.op, opset), dtypes)
                self._import_node(node, opset)
        finally:  # A branch that cannot be imported does not end the import of the graph around it.
            self.conditions = around
        for output in graph.output:
            if output.name not in defined:
                raise InvalidModelError(f"nothing defines the output {output.name!r}")
        return [defined.entry(output.name) for output in graph.output]

    def _import_node(self, original: RawNode, opset: int) -> None:
        with self.at(original) as at_hand:
            moved = on_codes(original, self)
            for node in self._upgraded(moved or original, opset):
                at_hand.form = node
                if node.op in names():
                    super().emit(node)
                else:
                    self.expand(node, opset)
            if moved is not None:
                for name, codes in zip(original.outputs, moved.outputs, strict=False):
                    if name != codes:
                        self.values.names[name] = Strings(self.values.names[codes])

    def _upgraded(self, node: RawNode, opset: int) -> list[RawNode]:
        """Return the node rewritten to Farrier's operators, or to operators of another package."""
        imported = import_of(node.op)
        if imported is None:
            return upgrade(node, opset, self)
        attrs = dict(imported.attributes(node.attrs, self._version_of(node.op, opset)))
        return [dataclasses.replace(node, op=imported.operator, attrs=attrs)]

    def _version_of(self, op: str, opset: int) -> int:
        """Return the version of an operator, given by qualified name, that applies; `opset` is the
        version of ONNX's own domain."""
        domain = op.rpartition(":")[0]
        return self._opsets.get(domain, 1) if domain else opset
