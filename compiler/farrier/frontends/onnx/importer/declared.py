"""Read a model's declared interface and metadata from an ONNX message."""

from __future__ import annotations

from collections.abc import Collection

import onnx

from farrier.artifact.declaration import Declaration, DeclaredSize, DeclaredValue
from farrier.frontends.onnx.importer.raw import initialized

# Other types have ONNX's own names in lower case.
_ELEMENTS = {"FLOAT": "float", "DOUBLE": "double"}


def declaration(model: onnx.ModelProto, overridden: Collection[str] = ()) -> Declaration:
    """Return the interface and the metadata of a model whose names are valid UTF-8. `overridden`
    initializers are declared as inputs."""
    graph = model.graph
    initializers = set(initialized(graph)).difference(overridden)
    return Declaration(
        inputs=tuple(_value(info) for info in graph.input if info.name not in initializers),
        outputs=tuple(_value(info, _keys(graph, info.name)) for info in graph.output),
        defaults=tuple(info.name for info in graph.input if info.name in initializers),
        graph_name=graph.name,
        graph_description=graph.doc_string,
        producer=model.producer_name,
        domain=model.domain,
        description=model.doc_string,
        version=model.model_version,
        metadata={entry.key: entry.value for entry in model.metadata_props},
    )


def _keys(graph: onnx.GraphProto, output: str) -> tuple[int | str, ...]:
    """Return the keys of the maps that an output consists of, if a ZipMap node computes it: key i
    belongs to column i. Return () for any other output."""
    for node in graph.node:
        if node.op_type == "ZipMap" and output in node.output:
            for attribute in node.attribute:
                if attribute.strings or attribute.ints:
                    texts = (text.decode(errors="replace") for text in attribute.strings)
                    return (*texts, *attribute.ints)
    return ()


def _value(info: onnx.ValueInfoProto, keys: tuple[int | str, ...] = ()) -> DeclaredValue:
    kind = info.type
    while kind.WhichOneof("value") == "optional_type":
        kind = kind.optional_type.elem_type
    dims = tuple(map(_dim, kind.tensor_type.shape.dim))
    return DeclaredValue(info.name, _type_text(info.type), dims, keys=keys)


def _type_text(kind: onnx.TypeProto) -> str:
    """Return a text such as `tensor(float)`; "" for an output whose type is not declared."""
    match kind.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({_element_name(kind.tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({_type_text(kind.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({_type_text(kind.optional_type.elem_type)})"
        case "map_type":
            key = _element_name(kind.map_type.key_type)
            return f"map({key},{_type_text(kind.map_type.value_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({_element_name(kind.sparse_tensor_type.elem_type)})"
        case _:
            return ""


def _element_name(code: int) -> str:
    """Return ONNX's name of an element type, such as `float`, `int64` or `bfloat16`; "" for an
    unknown code."""
    if code not in onnx.TensorProto.DataType.values() or not code:
        return ""
    name: str = onnx.TensorProto.DataType.Name(code)
    return _ELEMENTS.get(name, name.lower())


def _dim(dim: onnx.TensorShapeProto.Dimension) -> DeclaredSize:
    if dim.WhichOneof("value") == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return str(dim.dim_param) or None
