"""The middleware that adds a request id to the log lines and the answer of each request, and
measures the time of the request."""

from __future__ import annotations

import dataclasses
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farrier_device import logs
from farrier_server.metrics import Metrics

HEADER = b"x-request-id"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})  # RFC 9110, 5789


@dataclasses.dataclass(frozen=True, slots=True)
class Observed:
    """The ASGI middleware that encloses all others."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id, begin = secrets.token_hex(8), time.perf_counter()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - begin
                labels = (_method(scope), _route(scope), str(message["status"]))
                self.metrics.requests.labels(*labels).observe(seconds)
                message["headers"] = [*message["headers"], (HEADER, request_id.encode())]
            await send(message)

        with logs.about(request=request_id), self.metrics.streams.track_inprogress():
            await self.app(scope, receive, answer)


def _method(scope: Scope) -> str:
    """Return the HTTP method of a request, or "other" for an unknown method. Each method has its
    own metric, and a client could invent any number of methods."""
    method = str(scope["method"])
    return method if method in _METHODS else "other"


def _route(scope: Scope) -> str:
    """Return the path template of a request. All paths without a route share one name, because
    clients can request any number of such paths."""
    return getattr(scope.get("route"), "path", "none")
