"""What every request passes before a route sees it: a token, a place among the requests under way,
and a body of modest size that comes in time."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPBearer
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farrier.errors import AuthenticationError, FarrierError
from farrier_farm import tokens
from farrier_farm.users import DEFAULT, Users
from farrier_server import problems

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
ADMITTED = "farrier.admitted"
"""In the state of a scope: what a request that has shown its token calls, so that the server keeps
its connection before those of strangers."""
REQUESTS = 1000  # at once; event streams and downloads are among them
BODY_BYTES = 1 << 20  # of a JSON body; chunks of uploads are read by their route, piece by piece
BODY_TIMEOUT_S = 30.0
_OWNER = "farrier.owner"  # the key of a request's scope

bearer_scheme = HTTPBearer(
    auto_error=False,
    description="The installation's user token, or a user's own: `Authorization: Bearer TOKEN`",
)
"""For the OpenAPI page alone: `Gate` does the checking, before FastAPI reads a body."""


class Gate:
    """ASGI middleware. Everything but `OPEN_PATHS` needs a token, unknown paths included: that of
    the installation, or of one of the `users`; the route learns whose it is by `OwnerDep`. A
    request with one is one of `REQUESTS` at once."""

    def __init__(self, app: ASGIApp, token: str, users: Users) -> None:
        self._app = app
        self._token = token
        self._users = users
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            scope[_OWNER] = self._authenticate(request)
            if self._under_way >= REQUESTS:
                raise problems.BusyError(
                    f"{REQUESTS} requests are under way, and no more are taken"
                )
        except FarrierError as error:
            await _refuse(request, send, error)
            return
        scope["state"][ADMITTED]()
        self._under_way += 1
        try:
            await self._pass(request, send)
        finally:
            self._under_way -= 1

    async def _pass(self, request: Request, send: Send) -> None:
        receive = request.receive
        try:
            if request.method in ("POST", "PUT"):
                receive = await _buffered(request)
        except ClientDisconnect:
            return
        except FarrierError as error:
            await _refuse(request, send, error)
            return
        await self._app(request.scope, receive, send)

    def _authenticate(self, request: Request) -> str:
        """The name of the user whose token the request has. Raises AuthenticationError."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if tokens.matches(given.strip(), self._token):
                return DEFAULT
            owner = self._users.owner_of(given.strip())
            if owner is not None:
                return owner
        raise AuthenticationError(
            "the token is wrong" if given else "the request has no token",
            hint="send `Authorization: Bearer TOKEN`; FARRIER_TOKEN sets it for the client",
        )


async def _owner_of(request: Request) -> str:
    owner: str = request.scope[_OWNER]
    return owner


OwnerDep = Annotated[str, Depends(_owner_of)]
"""The name of the user whose token the request has."""


async def _refuse(request: Request, send: Send, error: FarrierError) -> None:
    answer = problems.answer_to(error)
    # What is left of the body is not read, so the connection cannot be used again.
    answer.headers["Connection"] = "close"
    await answer(request.scope, request.receive, send)


async def _buffered(request: Request) -> Receive:
    """Reads the whole body; returns a `receive` that hands it out again.

    Raises TooLargeError, SlowError for a body that does not come, ClientDisconnect.
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
        raise problems.SlowError(f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None
    pending: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def receive() -> Message:
        return pending.pop() if pending else await request.receive()

    return receive
