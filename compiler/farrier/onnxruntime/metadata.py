"""Descriptions of a session's model: `NodeArg` and `ModelMetadata`."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from farrier.artifact.declaration import Declaration, DeclaredSize, DeclaredValue, tensor_type
from farrier.artifact.manifest import Manifest, TensorSpec


class NodeArg(NamedTuple):
    """An input or output. `shape` has a number, a dim's name, or None for each dim; `type` is
    `tensor(float)`, `seq(tensor(int64))`, …"""

    name: str
    type: str
    shape: list[DeclaredSize]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelMetadata:
    """The metadata of a model's file, such as producer and description."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = dataclasses.field(default_factory=dict)


def node_arg(value: DeclaredValue) -> NodeArg:
    return NodeArg(value.name, value.type, list(value.dims))


def metadata(declaration: Declaration) -> ModelMetadata:
    return ModelMetadata(
        declaration.producer,
        declaration.graph_name,
        declaration.domain,
        declaration.description,
        declaration.graph_description,
        declaration.version,
        dict(declaration.metadata),
    )


def declaration_of(manifest: Manifest) -> Declaration:
    """Return the interface declared in the ONNX file, or the artifact's own interface if the
    artifact has no declaration. States, which the session keeps, are not included."""
    declared = manifest.declaration or Declaration(
        tuple(map(_of_spec, manifest.inputs)),
        tuple(map(_of_spec, manifest.outputs)),
        graph_name=manifest.name,
    )
    held = {name for state in manifest.state for name in (state.input, state.output)}
    return dataclasses.replace(
        declared,
        inputs=tuple(value for value in declared.inputs if value.name not in held),
        outputs=tuple(value for value in declared.outputs if value.name not in held),
    )


def _of_spec(spec: TensorSpec) -> DeclaredValue:
    shape = spec.shape[:-1] if spec.is_strings else spec.shape
    return DeclaredValue(spec.name, tensor_type(spec.dtype), shape, (spec.name,))
