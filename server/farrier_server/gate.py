"""The gate, a middleware that every request passes before its route. It checks the token or
session, counts the request against the limits of its user, and limits the size of the body and the
time in which it arrives."""

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
# The answer is 204 without a session: a page sends this request before it shows its login form.
WHO_AM_I = ("GET", "/v1/session")
ADMITTED = "farrier.admitted"
"""The key, in the state of a request's scope, of the function that `Gate` calls with the user's
name when it admits a request. The function protects the connection from being closed in favour of
others. It raises TooManyRequestsError if the user has too many connections."""
BODY_BYTES = 1 << 20  # The bound of a JSON body; uploads are read by their route, piece by piece.
LOGIN_BYTES = 4096
BODY_TIMEOUT_S = 30.0
STREAM_CHECK_S = 10.0  # Streams and transfers end at most this long after their token or session.
CALLER = "farrier.caller"  # The key of the caller in a request's scope.

bearer_scheme = HTTPBearer(
    auto_error=False,
    description="The installation's user token, or a user's own: `Authorization: Bearer TOKEN`",
)
"""The security scheme for the OpenAPI document. The check itself is done by `Gate`, before FastAPI
reads a body."""


def session_scheme(cookie: str) -> APIKeyCookie:
    """Return the security scheme of the session cookie for the OpenAPI document."""
    return APIKeyCookie(
        name=cookie,
        scheme_name="Session",
        auto_error=False,
        description="The cookie that `POST /v1/session` sets. A browser sends it by itself, so "
        "there is no value to enter here. Requests other than GET and HEAD also need the "
        f"session's `csrf` in the header `{CSRF_HEADER}`.",
    )


class Gate:
    """ASGI middleware that authenticates requests. All paths, including unknown ones, need a token
    or a session, except `OPEN_PATHS`, `LOGIN` and `WHO_AM_I`. Routes get the user from `OwnerDep`.
    A request with a user counts against the limits of that user (`limits.py`)."""

    def __init__(
        self, app: ASGIApp, authentication: Authentication, limits: Limits, request_s: float
    ) -> None:
        """Create the gate. A route may run for at most `request_s` seconds without reading or
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
        """Pass a request of `user` on to its route, unless the user's limits refuse it. An ordinary
        request first waits until the user may occupy a further thread."""
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
    """The repeated check of a long request, a transfer or an event stream: its token or session is
    checked again every `STREAM_CHECK_S`."""

    def __init__(self, authentication: Authentication, request: Request) -> None:
        self._authentication = authentication
        self._request = request
        self._checked = time.monotonic()
        self._is_stream = self._is_over = False

    async def receive(self) -> Message:
        """Return the next piece of an upload. Raises AuthenticationError if the token or session
        has become invalid; the client gets this error as a complete answer."""
        message = await self._request.receive()
        if message["type"] == "http.request" and (error := await self._refusal()) is not None:
            self._checked = math.inf
            raise error
        return message

    async def send(self, send: Send, message: Message) -> None:
        """Send a piece of an answer. If the token or session has become invalid, an event stream
        ends normally, and its route is notified as if the client had disconnected. An incomplete
        download is ended by _EndedError."""
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
        """Check the token or session, unless it was checked less than `STREAM_CHECK_S` ago. Return
        the error if it has become invalid, otherwise None."""
        if time.monotonic() - self._checked <= STREAM_CHECK_S:
            return None
        self._checked = time.monotonic()
        try:
            await self._authentication.caller(self._request)
        except AuthenticationError as error:
            return error
        except FarrierError:  # The token or session may still be valid.
            return None
        return None


class _EndedError(Exception):
    """The error that ends a download whose token or session is no longer valid."""


async def _owner_of(request: Request) -> str:
    caller: Caller = request.scope[CALLER]
    return caller.owner


async def _session_of(request: Request) -> Session:
    caller: Caller = request.scope[CALLER]
    if caller.session is None:
        raise AuthenticationError(
            "the request has a token and no session", hint="POST /v1/session creates a session"
        )
    return caller.session


async def _caller_of(request: Request) -> Caller:
    caller: Caller = request.scope[CALLER]
    return caller


CallerDep = Annotated[Caller, Depends(_caller_of)]
"""The user who is authenticated by the token or session of the request."""
OwnerDep = Annotated[str, Depends(_owner_of)]
"""The name of the user who is authenticated by the token or session of the request."""
SessionDep = Annotated[Session, Depends(_session_of)]
"""The session of the request. Raises AuthenticationError for a request with a token instead of a
session."""


async def _in_time(
    seconds: float, run: Callable[[Receive, Send], Awaitable[None]], receive: Receive, send: Send
) -> None:
    """Run a route. The time between two pieces that the route reads or sends is limited to
    `seconds`."""
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
    """Run a route while holding the semaphore `turn`, which limits the threads of a user. The
    semaphore is released when the answer begins, so that a client that reads slowly does not delay
    other requests of the user."""
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
    """Read the whole request body, and return a `receive` function that passes the body on.

    Raises TooLargeError for more than `most_bytes`, SlowError for a body that does not arrive in
    time, ClientDisconnect.
    """
    too_large = problems.TooLargeError(
        f"the body is larger than {most_bytes} bytes", hint="upload models with POST /v1/uploads"
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
