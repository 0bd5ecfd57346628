"""Routes for the inspection of a model before compilation. A worker parses the model and writes the
result to a document, since the server itself parses no models.

    POST /v1/models/{id}/inspection   → queues an inspection, unless there is one
    GET  /v1/models/{id}/inspection   → its progress, and the document

The worker that writes the document parses an untrusted model, so the server does not trust the
document either: its size is bounded, and the type and limits of every field are checked.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from farrier.errors import NotFoundError
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import Job
from farrier_farm.leases.states import State
from farrier_server.access import AccessDep, ViewerDep
from farrier_server.api.models import ModelId
from farrier_server.api.prepared import read_json
from farrier_server.context import FarmDep
from farrier_server.gate import OwnerDep
from farrier_server.problems import Problem, documented, from_stored

router = APIRouter(prefix="/v1/models", tags=["models"])
_MOST = 1 << 53  # The largest integer that every JSON reader represents exactly.
_Text = Annotated[str, Field(max_length=1100)]
_Message = Annotated[str, Field(max_length=20_000)]
_Label = Annotated[str, Field(max_length=130)]
_Count = Annotated[int, Field(ge=0, le=_MOST)]
_Dims = Annotated[list[_Count | _Text], Field(max_length=1000)]
_NodeId = Annotated[int, Field(ge=0, lt=20_000)]


class _Part(BaseModel):
    """The base class of the schemas in this document. Unknown fields, which a newer worker may
    write, are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


class TensorView(_Part):
    """An input or output of the model."""

    name: _Text
    dtype: _Text = Field(
        description="The element type, such as f32 or i64; `string`; or ONNX's name for a type "
        "that is not a tensor."
    )
    dims: _Dims | None = Field(
        description="The shape: numbers, and a name or `?` for each open dimension. Null if the "
        "rank is unknown."
    )


class ParametersView(_Part):
    """The initializers of the model: their number and size."""

    count: _Count
    bytes: _Count


class OperatorView(_Part):
    """An operator that the model uses."""

    op: _Text
    domain: _Text = Field(description="The domain of the operator; empty for ONNX's own.")
    count: _Count = Field(description="The number of nodes, including those in branches and loops.")
    supported: bool
    reason: _Text = Field(
        description="The reason why the operator is not supported; empty if it is."
    )


class OpenDimView(_Part):
    """A dimension whose size is known only when the model runs."""

    name: _Text
    low: _Count
    high: _Count
    typical: _Count


class ProblemView(_Part):
    """A reason why the model, or one of its operators, cannot be compiled."""

    code: _Label
    detail: _Message
    hint: _Message


class NodeView(_Part):
    """A node of the graph in the file, or an input or output of the model."""

    id: _NodeId
    kind: _Label = Field(description="The kind of the node: input, node or output.")
    op: _Label
    name: _Label
    outputs: Annotated[list[_Label], Field(max_length=8)] = Field(
        description="The names of the first tensors that the node writes."
    )


class GraphView(_Part):
    """The main graph of the model."""

    nodes: Annotated[list[NodeView], Field(max_length=20_000)]
    edges: Annotated[list[tuple[_NodeId, _NodeId, _Label]], Field(max_length=80_000)] = Field(
        description="The edges, each as [from, to, name of the tensor]."
    )
    left_out: _Count = Field(description="The number of nodes that are not shown.")


class StateView(_Part):
    """An input and an output that are probably a state: the output of one call is the input of the
    next."""

    input: _Text
    output: _Text


class InspectionDocument(_Part):
    """The contents of a model, and the problems that its compilation would have."""

    name: _Text
    producer: _Text
    opset: _Count = Field(
        description="The version of ONNX's operators; 0 if it cannot be read, or if the format has "
        "none."
    )
    inputs: Annotated[list[TensorView], Field(max_length=1000)]
    outputs: Annotated[list[TensorView], Field(max_length=1000)]
    parameters: ParametersView
    operators: Annotated[list[OperatorView], Field(max_length=1000)]
    open_dims: Annotated[list[OpenDimView], Field(max_length=1000)]
    preconditions: Annotated[list[_Text], Field(max_length=1000)] = Field(
        description="The assumptions about the open dimensions."
    )
    states: Annotated[list[StateView], Field(max_length=1000)] = Field(
        default_factory=list,
        description="Pairs that the option `states` may declare: an input, and the output that "
        "may replace it in the next call.",
    )
    problems: Annotated[list[ProblemView], Field(max_length=1001)] = Field(
        description="The reasons why the model cannot be compiled; empty for a model that compiles."
    )
    graph: GraphView
    format: _Text = Field(
        default="ONNX", description="The format of the file, such as ONNX or TFLite."
    )


class InspectionView(BaseModel):
    """The progress of an inspection, and its document."""

    state: State
    job: str = Field(
        description="The id of the job that inspects the model, for GET /v1/jobs/{id}, its events "
        "and its cancellation."
    )
    error: Problem | None = Field(
        description="The reason why the inspection failed. A POST starts it again."
    )
    inspection: InspectionDocument | None = Field(
        description="The document, once the inspection has succeeded."
    )

    @classmethod
    def of(cls, job: Job, document: InspectionDocument | None) -> InspectionView:
        error = None if job.error is None else from_stored(job.error)
        return cls(state=job.state, job=job.id, error=error, inspection=document)


@router.post("/{model_id}/inspection", status_code=201, responses=documented(400, 404, 429, 503))
def inspect_model(
    model_id: ModelId, farm: FarmDep, access: AccessDep, viewer: ViewerDep, response: Response
) -> InspectionView:
    """Queue the inspection of a model: 201. If an inspection of the model is in progress or has
    succeeded, return that inspection: 200. A failed or cancelled inspection is queued again."""
    is_lent = access.hold_model(viewer, model_id)
    job, is_new = farm.jobs.inspect(model_id, owner=viewer.name, lent=is_lent)
    response.status_code = 201 if is_new else 200
    return InspectionView.of(job, None)


@router.get("/{model_id}/inspection", responses=documented(400, 404, 503))
def get_inspection(model_id: ModelId, farm: FarmDep, owner: OwnerDep) -> InspectionView:
    """Return the progress and the document of the caller's inspection of a model; 404 if the caller
    has not requested an inspection."""
    job = farm.jobs.inspection(model_id, owner)
    if job is None:
        raise NotFoundError(
            f"the model {model_id} was not inspected",
            hint=f"request it with POST /v1/models/{model_id}/inspection",
        )
    return InspectionView.of(job, _found(farm, job))


def _found(farm: Farm, job: Job) -> InspectionDocument | None:
    return None if job.artifact is None else read_json(InspectionDocument, farm, job)
