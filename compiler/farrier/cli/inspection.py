"""The verb `farrier inspect`: describe a model, and the parts of it that would not compile, as
text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farrier.files.mapped import check_is_file
from farrier.frontends.formats import Format
from farrier.frontends.onnx.model.file import Model

if TYPE_CHECKING:
    from farrier.artifact.manifest import TensorSpec
    from farrier.frontends.inspection import Inspection, Tensor
    from farrier.runtime.artifact import Artifact


def inspect(
    model: Annotated[
        Path, typer.Argument(help="Model (.onnx, .tflite, .pt2, .mlir) or artifact to show.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, including the graph.")
    ] = False,
) -> None:
    """Show the inputs, outputs and operators of a model. Show also what would not compile, and exit
    with 1 if there is any. For an artifact, show its inputs, outputs, target and signer."""
    from farrier.runtime.artifact import is_artifact

    if is_artifact(model):
        return _inspect_artifact(model, as_json)
    from farrier.frontends.registry import frontend_of

    check_is_file(model)
    opened = Model.of_path(model)
    document = frontend_of(opened).inspection(opened)
    if as_json:
        typer.echo(document.to_json())
    else:
        for line in _lines(document):
            typer.echo(_plain(line))
    if not document.compiles:
        raise typer.Exit(1)
    return None


def _inspect_artifact(path: Path, as_json: bool) -> None:
    from farrier.runtime.artifact import load

    artifact = load(path)
    signature = artifact.signature
    if as_json:
        document = json.loads(artifact.manifest.to_json())
        document["signed_by"] = None if signature is None else str(signature.key)
        typer.echo(json.dumps(document, indent=1))
        return
    for line in _artifact_lines(artifact):
        typer.echo(_plain(line))


def _artifact_lines(artifact: Artifact) -> Iterator[str]:
    manifest, signature = artifact.manifest, artifact.signature
    yield f"{manifest.name}: compiled for {manifest.machine} ({manifest.architecture})"
    for what, specs in (("input", manifest.inputs), ("output", manifest.outputs)):
        yield from (f"{what}: {spec.name} {_spec(spec)}" for spec in specs)
    for state in manifest.state:
        size = "of fixed size" if state.axis is None else f"grows along axis {state.axis}"
        size += f", to {state.capacity}" if state.capacity else ""
        yield f"state: {state.input} becomes {state.output}; {size}"
    for code in artifact.code.objects:
        yield f"code: {code.path} of the kind {code.kind}, {len(code.content) / 1e6:.2f} MB"
    for kernel in manifest.kernels:
        if kernel.reason:
            yield f"kernel: {kernel.name} runs on the host: {kernel.reason}"
    yield f"parameters: {manifest.params_bytes / 1e6:.2f} MB"
    yield "unsigned" if signature is None else f"signed by {signature.key.fingerprint}"


def _spec(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _lines(document: Inspection) -> Iterator[str]:
    if document.opset or document.format != Format.ONNX.value:
        version = f"opset {document.opset}" if document.opset else document.format
        producer = f", made by {document.producer}" if document.producer else ""
        yield f"{document.name}: {version}{producer}"
    for what, tensors in (("input", document.inputs), ("output", document.outputs)):
        yield from (f"{what}: {tensor.name} {_type(tensor)}" for tensor in tensors)
    if document.parameters.count:
        yield f"parameters: {document.parameters.count}, {document.parameters.bytes / 1e6:.2f} MB"
    yield from (
        f"open: {dim.name} is {dim.low} to {dim.high}, typically {dim.typical}"
        for dim in document.open_dims
    )
    yield from (f"assumed: {precondition}" for precondition in document.preconditions)
    yield from (f"possible state: --state {pair.input}={pair.output}" for pair in document.states)
    for use in document.operators:
        op = f"{use.domain}:{use.op}" if use.domain else use.op
        yield f"operator: {op} ×{use.count}" + ("" if use.supported else " (not supported)")
    for problem in document.problems:
        yield f"problem: {problem.detail}"
        if problem.hint:
            yield f"  hint: {problem.hint}"


def _type(tensor: Tensor) -> str:
    dims = "…" if tensor.dims is None else ", ".join(map(str, tensor.dims))
    return f"{tensor.dtype}[{dims}]"


def _plain(text: str) -> str:
    """Return text from a model, such as a name, with unprintable characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
