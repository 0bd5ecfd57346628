"""Routes for models of several files: an ONNX message and the data files that the message refers
to, each uploaded separately.

    POST /v1/models {message, files}   → the model and its id; the same model again has the same id
    GET  /v1/models/{id}               → the list of its files

A model of a single file needs no request to these routes: the SHA-256 of its upload is its id.
"""

from __future__ import annotations

import contextlib
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from farrier.errors import NotFoundError
from farrier_farm.farm import Farm
from farrier_farm.storage.models import DataFile, Manifest
from farrier_server.access import AccessDep, ViewerDep
from farrier_server.bounds import MOST
from farrier_server.context import FarmDep
from farrier_server.problems import TooLargeError, documented

_SHA256 = r"^[0-9a-f]{64}$"

router = APIRouter(prefix="/v1/models", tags=["models"])
ModelId = Annotated[str, Path(description="The id of the model.", pattern=_SHA256)]
Digest = Annotated[str, Field(pattern=_SHA256, description="The SHA-256 of a complete upload.")]


class DataFileBody(BaseModel):
    """A data file of a model."""

    model_config = ConfigDict(extra="forbid")

    sha256: Digest
    size: int = Field(ge=0, le=MOST, strict=True, description="The size of the file in bytes.")


class ModelRequest(BaseModel):
    """A request to create a model from uploaded files."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "message": "9f86d081884c7d65" * 4,
                    "files": {
                        "m.onnx.data": {"sha256": "60303ae22b998861" * 4, "size": 2500000000}
                    },
                }
            ]
        },
    )

    message: Digest
    files: dict[str, DataFileBody] = Field(
        default_factory=dict,
        description="The data files by location. A location is a relative path in the model's "
        "folder, exactly as the ONNX message states it.",
    )

    def manifest(self) -> Manifest:
        files = {name: DataFile(file.sha256, file.size) for name, file in self.files.items()}
        return Manifest(self.message, files)


class ModelView(BaseModel):
    """A model that the server stores."""

    id: str = Field(
        description="The id of the model for POST /v1/jobs. Without data files, it is the SHA-256 "
        "of the ONNX message."
    )
    message: str = Field(description="The SHA-256 of the ONNX message, the .onnx file.")
    files: dict[str, DataFileBody] = Field(description="The data files of the model by location.")

    @classmethod
    def of(cls, manifest: Manifest) -> ModelView:
        files = {
            name: DataFileBody(sha256=file.sha256, size=file.size)
            for name, file in manifest.files.items()
        }
        return cls(id=manifest.id, message=manifest.message, files=files)


@router.post("", status_code=201, responses=documented(400, 409, 413, 422, 503, 507))
def create_model(
    body: ModelRequest, farm: FarmDep, access: AccessDep, viewer: ViewerDep
) -> ModelView:
    """Create a model from uploaded files. The model is stored durably before the answer. If files
    are missing, the answer is 409 and names them: upload them, and repeat the request."""
    manifest = body.manifest()
    owns = {sha256: access.owns(viewer, sha256) for sha256 in manifest.blobs()}
    _check_size(farm, manifest, is_known=owns[manifest.message])
    farm.models.create(manifest, owns.__getitem__)
    farm.owners.note(viewer.name, [manifest.id, *manifest.blobs()])
    return ModelView.of(manifest)


@router.get("/{model_id}", responses=documented(400, 404, 503))
def get_model(model_id: ModelId, farm: FarmDep) -> ModelView:
    """Return the list of the files of a model."""
    return ModelView.of(farm.models.get(model_id))


def _check_size(farm: Farm, manifest: Manifest, *, is_known: bool) -> None:
    """Check the total size of the files of a model. Raises TooLargeError. The size of the ONNX
    message counts only if the caller has uploaded it and it is stored here (`is_known`), so that
    the answer does not reveal the size of another user's file."""
    limit = farm.settings.max_upload_bytes
    size = sum({file.sha256: file.size for file in manifest.files.values()}.values())
    if is_known:
        with contextlib.suppress(NotFoundError):
            size += farm.blobs.size(manifest.message)
    if limit and size > limit:
        raise TooLargeError(
            f"the model has {size} bytes; the server accepts at most {limit}",
            hint="FARRIER_MAX_UPLOAD_BYTES on the server raises the limit",
        )
