"""The ASGI application that serves the REST API and the dashboard."""

from __future__ import annotations

import asyncio
import importlib.metadata
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse

from farrier_farm.farm import Farm
from farrier_server import access, problems
from farrier_server.api import (
    artifacts,
    audit,
    classes,
    cost_model,
    curves,
    devices,
    enrolments,
    events,
    explorations,
    health,
    inspections,
    jobs,
    listings,
    log,
    metrics,
    models,
    overview,
    records,
    sessions,
    targets,
    trials,
    uploads,
    users,
    webhooks,
)
from farrier_server.audited import Audited
from farrier_server.authentication import Authentication
from farrier_server.context import Context
from farrier_server.dashboard.serving import Dashboard
from farrier_server.gate import Gate, bearer_scheme, session_scheme
from farrier_server.limits import Limits
from farrier_server.metrics import Metrics
from farrier_server.observed import Observed

_DESCRIPTION = """
Fits deep-learning models to the hardware they run on: upload an ONNX model, name a target,
watch the compiler tune it on real devices of that kind, fetch verified native code.

Every error is `application/problem+json` (RFC 9457) with a stable `code` and a `hint`.
"""


def create_app(farm: Farm, token: str) -> FastAPI:
    """Create the application for an open farm. Every route except health checks, pages and
    documentation needs the token of a user (`token` is the installation's), or a session that was
    opened with such a token."""
    app = FastAPI(
        title="Farrier",
        version=importlib.metadata.version("farrier"),
        description=_DESCRIPTION,
        # FastAPI's own route would write the document in the event loop, while all requests wait.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # A redirect would lead to the host that the request names, which may be another site's.
        redirect_slashes=False,
        dependencies=[Depends(access.check)],
    )
    app.state.context = Context.of(farm)
    problems.install(app)
    app.state.limits = limits = Limits(farm.settings)
    app.state.metrics = Metrics(farm, limits)
    app.state.authentication = authentication = Authentication(farm, token)
    app.state.access = access.Access(farm, authentication.users)
    app.add_middleware(
        Gate, authentication=authentication, limits=limits, request_s=farm.settings.request_s
    )
    app.add_middleware(Audited, farm=farm)
    app.add_middleware(Dashboard)
    app.add_middleware(Observed, metrics=app.state.metrics)
    app.include_router(health.router)
    app.include_router(sessions.login)
    session = Depends(session_scheme(authentication.sessions.cookie))
    app.include_router(sessions.router, dependencies=[session])
    for resource in (
        overview,
        uploads,
        models,
        inspections,
        jobs,
        listings,
        events,
        curves,
        log,
        trials,
        artifacts,
        explorations,
        devices,
        enrolments,
        classes,
        records,
        cost_model,
        targets,
        metrics,
        users,
        audit,
        webhooks,
    ):
        app.include_router(resource.router, dependencies=[Depends(bearer_scheme), session])
    # The first request generates the document; requests that arrive meanwhile wait for it.
    writing = asyncio.Lock()

    async def document(_: Request) -> JSONResponse:
        async with writing:
            return JSONResponse(await asyncio.to_thread(openapi_document, app))

    app.add_route("/openapi.json", document, include_in_schema=False)
    return app


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return FastAPI's OpenAPI document, in which the errors have the format of problem documents
    (`problems.py`) instead of FastAPI's own."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = document["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["Problem"] = problems.Problem.model_json_schema()
        for path, operations in document["paths"].items():
            for operation in operations.values():
                sent = operation.get("requestBody", {}).get("content", {})
                statuses = (
                    [401, 403, 429, 503] if path.startswith("/v1/") or path == "/metrics" else []
                )
                statuses += [408] if "application/json" in sent else []
                _describe_problems(operation["responses"], statuses)
        app.openapi_schema = document
    return app.openapi_schema


def _describe_problems(responses: dict[str, Any], statuses: list[int]) -> None:
    """Add the errors that the gate (`gate.py`) can return to the documented responses of an
    operation. FastAPI's own 422 is removed, since a request that does not match its schema is
    answered with 400."""
    generated = {"$ref": "#/components/schemas/HTTPValidationError"}
    unsent = responses.get("422", {}).get("content", {}).get("application/json", {})
    if unsent.get("schema") == generated:
        del responses["422"]
        statuses = [400, *statuses]
    for status, response in problems.documented(*statuses).items():
        responses.setdefault(str(status), response)
