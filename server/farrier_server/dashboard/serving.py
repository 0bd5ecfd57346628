"""The middleware that serves the dashboard's pages and assets, which need no token. Other requests
are passed on to the API.

/assets/VERSION/app/main.js   the file of this version; browsers may cache it forever
/assets/app/main.js           the file of the present version; browsers ask for it each time
/jobs/j-17                    a page. All pages are one document, whose script reads the address
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farrier.errors import NotFoundError
from farrier_server import problems
from farrier_server.dashboard.site import ASSETS, SHELL, STATIC, Asset, Site

PAGES = (
    "/",
    "/jobs",
    "/jobs/{id}",
    "/jobs/{id}/model",
    "/compare",
    "/devices",
    "/devices/{id}",
    "/explorations",
    "/explorations/{id}",
    "/records",
    "/users",
    "/submit",
    "/models/{id}",
    "/login",
)
DOCS = "docs.html"
_API = ("/v1", "/metrics", "/healthz", "/readyz", "/openapi.json")
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_ANEW = "no-cache"
_ISOLATED = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NO_PAGE = "default-src 'none'; frame-ancestors 'none'"


class Dashboard:
    """ASGI middleware for pages and assets. It answers GET and HEAD requests for them, and for any
    unknown path from which a browser requests a page. To every answer, also of the API, it adds
    headers that isolate the answer from other sites and allow pages to load only the dashboard's
    own files."""

    def __init__(self, app: ASGIApp, folder: Path = STATIC) -> None:
        self._app = app
        self._folder = folder
        self._site = Site.read(folder)
        self._routes = [
            Route(ASSETS + "/{path:path}", self._asset),
            Route("/docs", self._docs),
            *(Route(path, self._page) for path in PAGES),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def isolated(message: Message) -> None:
            if message["type"] == "http.response.start":
                _isolate(message)
            await send(message)

        for route in self._routes:
            match, child = route.matches(scope)
            if match == Match.FULL:
                scope.update(child)
                # `Observed` counts the request under the path of this route.
                scope["route"] = route
                answer = await route.endpoint(Request(scope))
                await answer(scope, receive, isolated)
                return
        if scope["method"] in ("GET", "HEAD") and _wants_page(scope):
            answer = await self._served(Request(scope), self._page_of(SHELL), status=404)
            await answer(scope, receive, isolated)
            return
        await self._app(scope, receive, isolated)

    async def _asset(self, request: Request) -> Response:
        path = request.path_params["path"]
        version, _, rest = path.partition("/")
        is_versioned = version == self._site.version
        asset = self._site.assets.get(rest if is_versioned else path)
        if asset is None:
            return problems.answer_to(
                NotFoundError(
                    f"the dashboard has no file {json.dumps(path)}",
                    hint="the server may have a new version of the dashboard: reload the page",
                )
            )
        return await self._served(request, asset, cache=_FOR_EVER if is_versioned else _ASK_ANEW)

    async def _page(self, request: Request) -> Response:
        return await self._served(request, self._page_of(SHELL))

    async def _docs(self, request: Request) -> Response:
        return await self._served(request, self._page_of(DOCS))

    def _page_of(self, name: str) -> Asset:
        """Return the page `name` of the dashboard that is installed now. The files are read again
        from disk after a change, so that an update needs no restart. While an update is incomplete,
        the page of the last complete version is returned."""
        with contextlib.suppress(OSError):
            if not self._site.is_current(self._folder):
                installed = Site.read(self._folder)
                if installed.pages.keys() >= self._site.pages.keys():
                    self._site = installed
        return self._site.pages[name]

    async def _served(
        self, request: Request, asset: Asset, *, status: int = 200, cache: str = _ASK_ANEW
    ) -> Response:
        """Return a response with the asset, compressed if the client accepts gzip; 304 if the
        client already has this version of the asset."""
        headers = {"Cache-Control": cache, "Vary": "Accept-Encoding"}
        if asset.is_page:
            headers["Content-Security-Policy"] = asset.policy
        content, tag = asset.content, f'"{asset.digest[:32]}"'
        if _takes_gzip(request.headers.get("accept-encoding", "")):
            packed = await asyncio.to_thread(lambda: asset.gzipped)
            if packed is not None:
                content, tag = packed, f'"{asset.digest[:32]}-gzip"'
                headers["Content-Encoding"] = "gzip"
        headers["ETag"] = tag
        if status == 200 and _has(request.headers.get("if-none-match", ""), tag):
            headers.pop("Content-Encoding", None)
            return Response(status_code=304, headers=headers)
        headers["Content-Type"] = asset.media_type
        return Response(content, status_code=status, headers=headers)


def _wants_page(scope: Scope) -> bool:
    """Return whether a browser requests a page at a path that does not belong to the API."""
    path: str = scope["path"]
    is_api = any(path == prefix or path.startswith(f"{prefix}/") for prefix in _API)
    return not is_api and "text/html" in Request(scope).headers.get("accept", "")


def _takes_gzip(accepted: str) -> bool:
    """Return whether an Accept-Encoding header accepts gzip (RFC 9110, section 12.5.3)."""
    weights = {}
    for choice in accepted.lower().split(","):
        coding, _, parameters = choice.partition(";")
        weight = parameters.partition("q=")[2].strip()
        weights[coding.strip()] = weight.rstrip("0.") != "" if weight else True
    return weights.get("gzip", weights.get("*", False))


def _has(header: str, tag: str) -> bool:
    """Return whether an If-None-Match header contains the entity tag `tag` (RFC 9110, section
    13.1.2)."""
    tags = {etag.strip().removeprefix("W/") for etag in header.split(",")}
    return tag in tags or "*" in tags


def _isolate(message: MutableMapping[str, Any]) -> None:
    present = {name for name, _ in message["headers"]}
    added = {**_ISOLATED, "Content-Security-Policy": _NO_PAGE}
    message["headers"] = [
        *message["headers"],
        *(
            (name.lower().encode(), value.encode())
            for name, value in added.items()
            if name.lower().encode() not in present
        ),
    ]
