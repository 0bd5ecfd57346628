"""The format of all errors of the API: problem+json (RFC 9457) with the additional fields `code`
and `hint`.

A `FarrierError` keeps its message and status. A request that does not match its schema becomes a
usage error that names the field. Any other exception is logged with its traceback, and the answer
contains no details.
"""

from __future__ import annotations

import http
import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from farrier.errors import (
    AuthenticationError,
    ConflictError,
    FarrierError,
    InvalidModelError,
    NotFoundError,
    QueueFullError,
    ServiceError,
    TooManyRequestsError,
    UsageError,
)

MEDIA_TYPE = "application/problem+json"
LISTENER = "farrier.listener"
"""The key, in the scope of a request, of a function that is called with each error that the route
raises."""
_log = logging.getLogger(__name__)


class Problem(BaseModel):
    """The reason for which a request failed, and a hint how to solve the problem."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:farrier:problem:not-found",
                    "title": "Not Found",
                    "status": 404,
                    "detail": "there is no job 'j-17'",
                    "hint": "GET /v1/jobs lists them",
                    "code": "not-found",
                }
            ]
        }
    )

    type: str = Field(description="`urn:farrier:problem:` followed by the code.")
    title: str = Field(description="The HTTP status in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(
        description="A description of the problem, which names the object and the facts that "
        "conflict."
    )
    hint: str = Field(description="A way to solve the problem; empty if none is known.")
    code: str = Field(description="The stable name of the kind of error.")


class TooLargeError(InvalidModelError):
    """The error for a body that is larger than the limit; the body is refused before it is read."""

    http_status = 413


class OffsetConflictError(ConflictError):
    """The error for a chunk that does not begin at the present offset of the upload. The answer
    states that offset."""

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message, hint=f"continue at Upload-Offset: {offset}")
        self.offset = offset


class NotReadyError(ConflictError):
    """The error for a job that has no artifact yet, or ended without one. The message names the
    job's state."""


class BusyError(ServiceError):
    """The error of a server whose capacity is exhausted. The answer states when to try again."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message, hint=f"try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class SlowError(UsageError):
    """The error for a request that did not arrive completely in time."""

    http_status = 408


class RangeError(UsageError):
    """The error for a Range header outside the artifact."""

    http_status = 416

    def __init__(self, message: str, *, size: int) -> None:
        super().__init__(message, hint=f"the artifact has {size} bytes")
        self.size = size


def describe(status: int, *, detail: str, hint: str = "", code: str) -> Problem:
    """Return a problem with this HTTP status."""
    return Problem(
        type=f"urn:farrier:problem:{code}",
        title=http.HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        hint=hint,
        code=code,
    )


def from_error(error: FarrierError) -> Problem:
    """Return the problem with the message, hint and code of an error."""
    return describe(error.http_status, detail=error.message, hint=error.hint, code=error.code)


def from_stored(error: Mapping[str, str]) -> Problem:
    """Return the problem of a job's stored `{"code", "message", "hint"}`."""
    code = error["code"]
    statuses = {kind.code: kind.http_status for kind in FarrierError.__subclasses__()}
    return describe(
        statuses.get(code, 500), detail=error["message"], hint=error.get("hint", ""), code=code
    )


def respond(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Return the problem as an HTTP response."""
    return Response(
        problem.model_dump_json(),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def answer_to(error: FarrierError) -> Response:
    """Return the HTTP response for an error, with the headers that its status requires."""
    headers: dict[str, str] = {}
    match error:
        case AuthenticationError() if error.http_status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="farrier"'
        case OffsetConflictError():
            headers["Upload-Offset"] = str(error.offset)
        case BusyError() | QueueFullError() | TooManyRequestsError():
            headers["Retry-After"] = f"{math.ceil(error.retry_after_s)}"
        case RangeError():
            headers["Content-Range"] = f"bytes */{error.size}"
        case _:
            pass
    return respond(from_error(error), headers)


def install(app: FastAPI) -> None:
    """Register the exception handlers of this module with the application."""
    app.add_exception_handler(FarrierError, _farrier_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _defect)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses=` argument of a route that can answer with these error statuses. If 503
    (Redis is unavailable) is among them, 507 (Redis is full) is added, since each route that uses
    Redis can meet both."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    without_room = {507} if 503 in statuses else set()
    return {
        status: {"description": http.HTTPStatus(status).phrase, "content": content}
        for status in sorted({*statuses, *without_room})
    }


async def _farrier_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FarrierError)
    if error.http_status >= 500:
        _log.warning("%s %s: %s", request.method, request.url.path, error)
    if listener := request.scope.get(LISTENER):
        listener(error)
    return answer_to(error)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    usage = UsageError(
        f"{place}: {_plain(first['msg'])}", hint="GET /openapi.json describes every field"
    )
    return respond(from_error(usage))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: NotFoundError.code, 401: AuthenticationError.code}.get(
        error.status_code, UsageError.code
    )
    detail = f"{request.method} {json.dumps(request.url.path)}: {error.detail}"
    return respond(
        describe(error.status_code, detail=detail, hint="GET /docs lists every route", code=code),
        error.headers,
    )


async def _defect(request: Request, error: Exception) -> Response:
    # Starlette raises the error again after this answer, and uvicorn logs its traceback.
    _log.error("%s %s: %s", request.method, request.url.path, type(error).__name__)
    return respond(
        describe(
            500,
            detail="the server could not handle the request: this is a defect of Farrier",
            hint="the server's log contains the traceback",
            code="internal",
        )
    )


def _plain(message: str, longest: int = 300) -> str:
    """Return a validator's message, cut to `longest` characters because it may quote the user's
    input."""
    return message if len(message) <= longest else message[:longest] + "…"
