"""Routes for uploads. A model's files are sent in chunks; after a broken connection, an upload
continues at the last byte that arrived.

    POST  /v1/uploads {size, sha256}        → id, offset; complete at once if the user has the file
    PATCH /v1/uploads/{id}  Upload-Offset   → appends the body; the last byte completes the upload
    GET, HEAD /v1/uploads/{id}              → the offset at which to continue

The server never parses the uploaded bytes: it only writes them to disk and computes their SHA-256.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from farrier.errors import (
    ConflictError,
    FarrierError,
    InvalidModelError,
    ServiceError,
    UsageError,
)
from farrier_farm.farm import Farm
from farrier_farm.storage.blobs import Upload
from farrier_server.access import AccessDep, ViewerDep
from farrier_server.bounds import MOST
from farrier_server.context import FarmDep
from farrier_server.gate import OwnerDep
from farrier_server.problems import OffsetConflictError, TooLargeError, documented

# Each piece is made durable before the next is read.
PIECE_BYTES = 4 << 20
# A connection that transfers less than `STEP_BYTES` in `STEP_S` (1 kB/s) counts as broken, and its
# upload can be continued by another connection.
STEP_BYTES = 32 << 10
STEP_S = 30.0
_SHA256 = r"^[0-9a-f]{64}$"

router = APIRouter(prefix="/v1/uploads", tags=["uploads"])
UploadId = Annotated[
    str, Path(description="The id of the upload, from POST /v1/uploads.", max_length=100)
]


class UploadRequest(BaseModel):
    """An announcement of a file of a model: its size and SHA-256."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"size": 46820000, "sha256": "9f86d081884c7d65" * 4}]},
    )

    size: int = Field(ge=0, le=MOST, strict=True, description="The size of the file in bytes.")
    sha256: str = Field(
        pattern=_SHA256,
        description="The SHA-256 of the file's bytes, as lower-case hexadecimal digits.",
    )


class UploadView(BaseModel):
    """The progress of an upload."""

    id: str | None = Field(
        description="The id of the upload; null if no bytes of the file need to be sent."
    )
    size: int = Field(description="The announced size in bytes.")
    offset: int = Field(description="The number of bytes that are stored on the server's disk.")
    sha256: str = Field(
        description="The announced SHA-256, which identifies the file once the upload is complete."
    )
    complete: bool = Field(
        description="True if the file is complete, so that POST /v1/jobs and /v1/models may name "
        "it."
    )


@router.post("", responses=documented(400, 413, 422, 429, 507))
def create_upload(
    body: UploadRequest, farm: FarmDep, access: AccessDep, viewer: ViewerDep
) -> UploadView:
    """Start an upload. For a file that the user has uploaded before, and that is still stored,
    `complete` is true at once, and no bytes need to be sent. The answer does not reveal whether
    other users have uploaded the file: then the bytes are sent again, and stored once. 429 if the
    user has uploaded too many bytes that no job or model refers to."""
    limit = farm.settings.max_upload_bytes
    if limit and body.size > limit:
        raise TooLargeError(
            f"the file has {body.size} bytes; the server accepts at most {limit}",
            hint="FARRIER_MAX_UPLOAD_BYTES on the server raises the limit",
        )
    if body.size == 0:
        raise InvalidModelError("the file is empty", hint="upload an .onnx file, or its data")
    # Without Redis the owners of a file cannot be read, but its bytes can be stored on disk.
    with contextlib.suppress(ServiceError):
        if access.owns(viewer, body.sha256) and farm.blobs.renew(body.sha256):
            farm.owners.note(viewer.name, [body.sha256])
            return _complete(body.size, body.sha256)
    return _view(_begun(farm, viewer.name, body))


def _begun(farm: Farm, owner: str, body: UploadRequest) -> Upload:
    """Start an upload of `owner`, and count it towards the owner's quota. While Redis is
    unavailable the upload is not counted, since uploads need only the disk."""
    upload = farm.blobs.begin(body.size, body.sha256, owner)
    try:
        with contextlib.suppress(ServiceError):
            farm.quotas.keep(owner, upload)
    except FarrierError:
        farm.blobs.abandon(upload.id)
        raise
    return upload


@router.patch(
    "/{upload_id}",
    responses=documented(400, 404, 409, 422, 507),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def append_to_upload(
    upload_id: UploadId,
    request: Request,
    response: Response,
    farm: FarmDep,
    owner: OwnerDep,
    upload_offset: Annotated[
        int,
        Header(
            ge=0,
            le=MOST,
            description="The offset in the file at which the bytes of the body begin.",
        ),
    ],
) -> UploadView:
    """Append the request body to the upload. If the connection breaks, the bytes that have arrived
    are kept: request the offset, and continue there.

    The last byte completes the upload: the SHA-256 is checked, and the upload's id becomes invalid.
    If the bytes have another SHA-256, they are deleted and the answer is 422: start a new upload.
    """
    upload = await run_in_threadpool(farm.blobs.upload, upload_id)
    if upload_offset != upload.offset:
        raise OffsetConflictError(
            f"the body begins at byte {upload_offset}, but the upload is at offset {upload.offset}",
            offset=upload.offset,
        )
    length = int(request.headers.get("content-length", "0"))
    if upload.offset + length > upload.size:
        raise UsageError(
            f"{length} bytes at offset {upload.offset} exceed the announced size of {upload.size}"
        )
    async for piece in _pieces(request, response):
        upload = await run_in_threadpool(farm.blobs.append, upload_id, upload.offset, piece)
    if upload.offset < upload.size:
        return _view(upload)
    return await run_in_threadpool(_finish, farm, owner, upload)


@router.get("/{upload_id}", responses=documented(404))
def get_upload(upload_id: UploadId, farm: FarmDep, response: Response) -> UploadView:
    """Return the progress of the upload. 404 for a complete upload; to check whether the file is
    stored, announce it again."""
    upload = farm.blobs.upload(upload_id)
    response.headers["Upload-Offset"] = str(upload.offset)
    response.headers["Cache-Control"] = "no-store"
    return _view(upload)


@router.head("/{upload_id}", responses=documented(404))
def head_upload(upload_id: UploadId, farm: FarmDep) -> Response:
    """Return the number of bytes that have arrived, in the header `Upload-Offset`."""
    upload = farm.blobs.upload(upload_id)
    return Response(
        headers={
            "Upload-Offset": str(upload.offset),
            "Upload-Length": str(upload.size),
            "Cache-Control": "no-store",
        }
    )


async def _pieces(request: Request, response: Response) -> AsyncIterator[bytes]:
    """Yield the request body in pieces of `PIECE_BYTES`. If the connection breaks, the last piece
    contains the bytes that have arrived. A connection that stops sending is closed after the
    response."""
    stream = request.stream()
    piece = bytearray()
    now = asyncio.get_running_loop().time
    deadline, step = now() + STEP_S, 0
    try:
        while True:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(stream)
            piece += chunk
            step += len(chunk)
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
            if step >= STEP_BYTES:
                deadline, step = now() + STEP_S, 0
    except (StopAsyncIteration, ClientDisconnect):
        pass
    except TimeoutError:
        response.headers["Connection"] = "close"
    if piece:
        yield bytes(piece)


def _finish(farm: Farm, owner: str, upload: Upload) -> UploadView:
    try:
        sha256 = farm.blobs.finish(upload.id, lambda digest: farm.owners.note(owner, [digest]))
    except ConflictError as error:
        raise InvalidModelError(
            f"the bytes were damaged during the transfer: {error.message}",
            hint="upload the file again",
        ) from error
    return _complete(upload.size, sha256)


def _complete(size: int, sha256: str) -> UploadView:
    return UploadView(id=None, size=size, offset=size, sha256=sha256, complete=True)


def _view(upload: Upload) -> UploadView:
    return UploadView(
        id=upload.id,
        size=upload.size,
        offset=upload.offset,
        sha256=upload.sha256 or "",
        complete=False,
    )
