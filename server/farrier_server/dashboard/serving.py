"""What a browser is served without a token: pages and their files. All else goes on to the API.

/assets/VERSION/app/main.js   a file as of this version, kept for ever
/assets/app/main.js           the same, asked for anew each time
/jobs/j-17                    a page: the same document for all of them, which looks at the address
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
    """ASGI middleware. GET and HEAD of pages and assets end here; so does any other path that no
    API has, where a browser asks for a page. Whatever is answered, by the API too, is isolated from
    other sites, and is no page that runs or loads anything but the dashboard's own."""

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
                scope["route"] = route  # whose path is the name that `Observed` counts it under
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
                    hint="the server may have another version of it now: load the page anew",
                )
            )
        return await self._served(request, asset, cache=_FOR_EVER if is_versioned else _ASK_ANEW)

    async def _page(self, request: Request) -> Response:
        return await self._served(request, self._page_of(SHELL))

    async def _docs(self, request: Request) -> Response:
        return await self._served(request, self._page_of(DOCS))

    def _page_of(self, name: str) -> Asset:
        """A page of what is installed now: an update needs no restart. While one is under way, the
        last complete version is served."""
        with contextlib.suppress(OSError):
            if not self._site.is_current(self._folder):
                installed = Site.read(self._folder)
                if installed.pages.keys() >= self._site.pages.keys():
                    self._site = installed
        return self._site.pages[name]

    async def _served(
        self, request: Request, asset: Asset, *, status: int = 200, cache: str = _ASK_ANEW
    ) -> Response:
        """The asset, compressed where the client takes that; 304 where it has it."""
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
    """Whether a browser goes to a path that is none of the API's."""
    path: str = scope["path"]
    is_api = any(path == known or path.startswith(f"{known}/") for known in _API)
    return not is_api and "text/html" in Request(scope).headers.get("accept", "")


def _takes_gzip(accepted: str) -> bool:
    """RFC 9110, section 12.5.3."""
    weights = {}
    for choice in accepted.lower().split(","):
        coding, _, parameters = choice.partition(";")
        weight = parameters.partition("q=")[2].strip()
        weights[coding.strip()] = weight.rstrip("0.") != "" if weight else True
    return weights.get("gzip", weights.get("*", False))


def _has(known: str, tag: str) -> bool:
    """Whether an If-None-Match names the tag (RFC 9110, section 13.1.2)."""
    tags = {one.strip().removeprefix("W/") for one in known.split(",")}
    return tag in tags or "*" in tags


def _isolate(message: MutableMapping[str, Any]) -> None:
    given = {name for name, _ in message["headers"]}
    added = {**_ISOLATED, "Content-Security-Policy": _NO_PAGE}
    message["headers"] = [
        *message["headers"],
        *(
            (name.lower().encode(), value.encode())
            for name, value in added.items()
            if name.lower().encode() not in given
        ),
    ]
