"""What every request passes before a route sees it: a token, and a body of modest size."""

from __future__ import annotations

import asyncio
import dataclasses

from fastapi.security import HTTPBearer
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farrier.errors import AuthenticationError, FarrierError, UsageError
from farrier_farm import tokens
from farrier_server import problems

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/docs", "/openapi.json"})
BODY_BYTES = 1 << 20  # of a JSON body; chunks of uploads are read by their route, piece by piece
BODY_TIMEOUT_S = 30.0

bearer_scheme = HTTPBearer(
    auto_error=False, description="The installation's user token: `Authorization: Bearer TOKEN`"
)
"""For the OpenAPI page alone: `Gate` does the checking, before FastAPI reads a body."""


@dataclasses.dataclass(frozen=True, slots=True)
class Gate:
    """ASGI middleware. Everything but `OPEN_PATHS` needs the token, unknown paths included."""

    app: ASGIApp
    token: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            if scope["path"] not in OPEN_PATHS:
                self._authenticate(request)
            if scope["method"] in ("POST", "PUT"):
                receive = await _buffered(request)
        except ClientDisconnect:
            return
        except FarrierError as error:
            answer = problems.answer_to(error)
            # What is left of the body is not read, so the connection cannot be used again.
            answer.headers["Connection"] = "close"
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _authenticate(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not tokens.matches(given.strip(), self.token):
            raise AuthenticationError(
                "the token is wrong" if given else "the request has no token",
                hint="send `Authorization: Bearer TOKEN`; FARRIER_TOKEN sets it for the client",
            )


async def _buffered(request: Request) -> Receive:
    """Reads the whole body; returns a `receive` that hands it out again.

    Raises TooLargeError, UsageError for a body that does not come, ClientDisconnect.
    """
    too_large = problems.TooLargeError(
        f"the body is larger than {BODY_BYTES} bytes", hint="POST /v1/uploads takes models"
    )
    if int(request.headers.get("content-length", "0")) > BODY_BYTES:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES:
                    raise too_large
    except TimeoutError:
        raise UsageError(f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s") from None
    pending: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def receive() -> Message:
        return pending.pop() if pending else await request.receive()

    return receive
