"""The gate that every request passes before its route: it checks the token or session, counts the
request against its user's share, and reads a body of bounded size in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farrier.errors import AuthenticationError, FarrierError, TooManyRequestsError
from farrier_farm.redis.retry import request_time
from farrier_server import problems
from farrier_server.authentication import CSRF_HEADER, Authentication, Caller
from farrier_server.limits import NOBODY, Limits, Pool
from farrier_server.sessions import Session

HEALTH = "/healthz"
OPEN_PATHS = frozenset({HEALTH, "/readyz", "/openapi.json"})
LOGIN = ("POST", "/v1/session")  # The token of a login is in its body.
# The answer is 204 without a session: a page asks before it shows its login.
WHO_AM_I = ("GET", "/v1/session")
ADMITTED = "farrier.admitted"
"""In the state of a scope: what a request that has shown its token or session calls with the name
of its user, so that the server keeps its connection before those of strangers. Raises
TooManyRequestsError where the user has too many."""
BODY_BYTES = 1 << 20  # The bound of a JSON body; uploads are read by their route, piece by piece.
LOGIN_BYTES = 4096
BODY_TIMEOUT_S = 30.0
STREAM_CHECK_S = 10.0  # Streams and transfers end so soon after their token or session.
CALLER = "farrier.caller"  # The key of the caller in a request's scope.

bearer_scheme = HTTPBearer(
    auto_error=False,
    description="The installation's user token, or a user's own: `Authorization: Bearer TOKEN`",
)
"""For the OpenAPI page alone: `Gate` does the checking, before FastAPI reads a body."""


def session_scheme(cookie: str) -> APIKeyCookie:
    """Return the session cookie's scheme, which serves the OpenAPI page only."""
    return APIKeyCookie(
        name=cookie,
        scheme_name="Session",
        auto_error=False,
        description="What `POST /v1/session` sets. A browser sends it by itself: there is nothing "
        "to enter here. Requests other than GET and HEAD need the session's `csrf` as "
        f"`{CSRF_HEADER}` as well",
    )


class Gate:
    """ASGI middleware that authenticates requests. Everything except `OPEN_PATHS`, `LOGIN` and
    `WHO_AM_I` needs a token or a session, including unknown paths. Routes get the user from
    `OwnerDep`. A request with a user takes a place of that user's share (`limits.py`)."""

    def __init__(
        self, app: ASGIApp, authentication: Authentication, limits: Limits, request_s: float
    ) -> None:
        """Create the gate. A route may work for `request_s` seconds without reading or
        answering."""
        self._app = app
        self._authentication = authentication
        self._limits = limits
        self._request_s = request_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == HEALTH:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if scope["path"] in OPEN_PATHS or (request.method, scope["path"]) == LOGIN:
            await self._pass(request, send, LOGIN_BYTES, self._limits.turn(NOBODY))
            return
        if (request.method, scope["path"]) == WHO_AM_I and not self._authentication.names(request):
            await Response(status_code=204, headers={"Cache-Control": "no-store"})(
                scope, receive, send
            )
            return
        try:
            scope[CALLER] = caller = await self._authentication.caller(request)
        except FarrierError as error:
            await _refuse(request, send, error)
            return
        await self._admit(request, send, caller.owner)

    async def _admit(self, request: Request, send: Send, user: str) -> None:
        """Run a request when its turn comes, if its user's shares have room for it."""
        pool = Pool.of(request.method, request.scope["path"])
        try:
            leave = self._limits.enter(user, pool)
        except FarrierError as error:
            self._limits.note(user, error)
            await _refuse(request, send, error)
            return
        try:
            request.scope["state"][ADMITTED](user)
            request.scope[problems.LISTENER] = functools.partial(self._limits.note, user)
            if pool is Pool.REQUESTS:
                await self._pass(request, send, BODY_BYTES, self._limits.turn(user))
            else:
                admission = _Admission(self._authentication, request)
                passed_on = functools.partial(admission.send, send)
                await self._app(request.scope, admission.receive, passed_on)
        except _EndedError:
            return  # The server closes the connection: the promised bytes have not all been sent.
        except TooManyRequestsError as error:
            self._limits.note(user, error)
            await _refuse(request, send, error)
        finally:
            leave()

    async def _pass(
        self,
        request: Request,
        send: Send,
        most_bytes: int,
        turn: asyncio.Semaphore,
    ) -> None:
        receive = request.receive
        try:
            if request.method in ("POST", "PUT"):
                receive = await _buffered(request, most_bytes)
        except ClientDisconnect:
            return
        except FarrierError as error:
            await _refuse(request, send, error)
            return
        await _in_time(
            self._request_s,
            functools.partial(_in_turn, turn, self._app, request.scope),
            receive,
            send,
        )


class _Admission:
    """The right of a long request to go on: its token or session is checked every
    `STREAM_CHECK_S`."""

    def __init__(self, authentication: Authentication, request: Request) -> None:
        self._authentication = authentication
        self._request = request
        self._checked = time.monotonic()
        self._is_stream = self._is_over = False

    async def receive(self) -> Message:
        """Read a piece of an upload. Raises AuthenticationError, which is answered in full."""
        message = await self._request.receive()
        if message["type"] == "http.request" and (error := await self._refusal()) is not None:
            self._checked = math.inf
            raise error
        return message

    async def send(self, send: Send, message: Message) -> None:
        """Send a piece of an answer. An event stream of an ended session is completed in order, and
        the server then reports to the route that the client has gone. Raises _EndedError for a
        download that is not complete."""
        if message["type"] == "http.response.start":
            kind = Headers(raw=message["headers"]).get("content-type", "")
            self._is_stream = kind.startswith("text/event-stream")
        elif message.get("more_body") and not self._is_over and await self._refusal() is not None:
            if not self._is_stream:
                raise _EndedError
            self._is_over = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        if not self._is_over:
            await send(message)

    async def _refusal(self) -> AuthenticationError | None:
        """Return the reason why the token or session no longer counts, or None if it does."""
        if time.monotonic() - self._checked <= STREAM_CHECK_S:
            return None
        self._checked = time.monotonic()
        try:
            await self._authentication.caller(self._request)
        except AuthenticationError as error:
            return error
        except FarrierError:  # This error says nothing about the caller.
            return None
        return None


class _EndedError(Exception):
    """The end of a download whose token or session has ended."""


async def _owner_of(request: Request) -> str:
    caller: Caller = request.scope[CALLER]
    return caller.owner


async def _session_of(request: Request) -> Session:
    caller: Caller = request.scope[CALLER]
    if caller.session is None:
        raise AuthenticationError(
            "the request has a token and no session", hint="POST /v1/session opens one"
        )
    return caller.session


async def _caller_of(request: Request) -> Caller:
    caller: Caller = request.scope[CALLER]
    return caller


CallerDep = Annotated[Caller, Depends(_caller_of)]
"""The user whose token or session the request has."""
OwnerDep = Annotated[str, Depends(_owner_of)]
"""The name of the user whose token or session the request has."""
SessionDep = Annotated[Session, Depends(_session_of)]
"""The session of the request. Raises AuthenticationError for one with a token instead."""


async def _in_time(
    seconds: float, run: Callable[[Receive, Send], Awaitable[None]], receive: Receive, send: Send
) -> None:
    """Run a route, which may take `seconds` between two pieces that it reads or sends."""
    with request_time(seconds) as time_left:

        async def received() -> Message:
            message = await receive()
            time_left.renew()
            return message

        async def passed_on(message: Message) -> None:
            await send(message)
            time_left.renew()

        await run(received, passed_on)


async def _in_turn(
    turn: asyncio.Semaphore, app: ASGIApp, scope: Scope, receive: Receive, send: Send
) -> None:
    """Run a route in its user's turn, which ends when the answer begins: a client that reads slowly
    delays nobody."""
    async with contextlib.AsyncExitStack() as until_answered:
        await until_answered.enter_async_context(turn)

        async def passed_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                await until_answered.aclose()
            await send(message)

        await app(scope, receive, passed_on)


async def _refuse(request: Request, send: Send, error: FarrierError) -> None:
    answer = problems.answer_to(error)
    # The rest of the body is not read, so the connection cannot be used again.
    answer.headers["Connection"] = "close"
    await answer(request.scope, request.receive, send)


async def _buffered(request: Request, most_bytes: int) -> Receive:
    """Read the whole body, and return a `receive` that passes it on.

    Raises TooLargeError, SlowError for a body that does not arrive, ClientDisconnect.
    """
    too_large = problems.TooLargeError(
        f"the body is larger than {most_bytes} bytes", hint="POST /v1/uploads takes models"
    )
    if int(request.headers.get("content-length", "0")) > most_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most_bytes:
                    raise too_large
    except TimeoutError:
        raise problems.SlowError(f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None
    pending: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def receive() -> Message:
        return pending.pop() if pending else await request.receive()

    return receive
