"""Authentication of requests, by a token in the header or by the cookie of a session.

A browser sends its cookie with every request to this site, even if a page of another site causes
the request. A request that changes something and is authenticated by a cookie must therefore come
from a page of this site, and contain the session's CSRF token, which no other site can read.
"""

from __future__ import annotations

import dataclasses
import hmac
import urllib.parse

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from farrier.errors import AuthenticationError
from farrier_farm.access import tokens
from farrier_farm.access.users import THE_DEFAULT, Role, User, Users
from farrier_farm.farm import Farm
from farrier_server import sessions
from farrier_server.sessions import Session, Sessions

CSRF_HEADER = "X-CSRF-Token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class CsrfError(AuthenticationError):
    """A request that a page of another site may have caused a browser to send."""

    code = "csrf"
    http_status = 403


class ExpiredError(AuthenticationError):
    """The error for a token that has expired."""

    code = "token-expired"


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """The user who sent a request, and the session if it came from a logged-in browser."""

    owner: str
    role: Role = Role.USER
    group: str = ""  # The group whose members share their jobs; empty for none.
    expires: float | None = None  # Unix seconds, of the token
    session: Session | None = None

    @classmethod
    def of(cls, user: User, session: Session | None = None) -> Caller:
        return cls(user.name, user.role, user.group, user.expires, session)


class Authentication:
    """The authentication of requests by the installation's token, by the tokens of users, and by
    the sessions that were opened with such tokens."""

    def __init__(self, farm: Farm, token: str) -> None:
        self._token = token
        self.users = Users(farm.settings.home)
        self._logouts = farm.logouts
        self.sessions = Sessions(token, self.users, farm.settings)

    def names(self, request: Request) -> bool:
        """Return whether a request contains credentials, valid or not."""
        cookie = request.cookies.get(self.sessions.cookie)
        return bool(cookie or request.headers.get("authorization"))

    async def caller(self, request: Request) -> Caller:
        """Return the user who sent a request, from the Authorization header if the request has one,
        else from the session cookie. Raises AuthenticationError and StorageError; for a session
        also ServiceError if Redis is unavailable."""
        header = _authorization(request)
        cookie = request.cookies.get(self.sessions.cookie, "")
        if header or not cookie:
            return Caller.of(self._user_by_header(header))
        session, user = self.sessions.of(cookie)
        if request.method not in _SAFE:
            refuse_other_sites(request)
            said = request.headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(said.encode(), session.csrf.encode()):
                raise CsrfError(
                    f"the {CSRF_HEADER} is wrong" if said else f"the request has no {CSRF_HEADER}",
                    hint="GET /v1/session returns the value; a request with a token does "
                    "not need this header",
                )
        if await run_in_threadpool(self._logouts.has, session.id):
            raise sessions.over(session)
        return Caller.of(user, session)

    def user_of(self, token: str) -> User:
        """Return the user who has this token. Raises AuthenticationError, StorageError."""
        if tokens.matches(token, self._token):
            return THE_DEFAULT
        user = self.users.who_has(token)
        if user is None:
            raise AuthenticationError(
                "the token is wrong",
                hint="`farrier up` prints the installation's token when it starts; "
                "`farrier tokens add NAME` creates another token",
            )
        if user.has_expired:
            raise ExpiredError(
                f"the token of {user.name} has expired",
                hint=f"an admin can create a new one: farrier tokens rotate {user.name} "
                "--expires 30d",
            )
        return user

    def _user_by_header(self, header: str) -> User:
        scheme, _, token = header.partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return self.user_of(token.strip())
        raise AuthenticationError(
            "the token is wrong" if header else "the request has no token",
            hint="send `Authorization: Bearer TOKEN`; FARRIER_TOKEN sets it for the client",
        )


def _authorization(request: Request) -> str:
    """Return the value of the Authorization header, "" for a request without one. Raises
    AuthenticationError for several such headers: a proxy in front of this server may have checked a
    different one than this server would."""
    headers = request.headers.getlist("authorization")
    if len(headers) > 1:
        raise AuthenticationError(
            f"the request has {len(headers)} Authorization headers", hint="send one"
        )
    return headers[0] if headers else ""


def refuse_other_sites(request: Request) -> None:
    """Raise CsrfError if a page of another origin caused the browser to send this request.
    Browsers state the origin of a request in Sec-Fetch-Site (W3C Fetch Metadata), older browsers
    in Origin."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        is_own = site in ("same-origin", "none")
    else:
        is_own = origin is None or urllib.parse.urlsplit(origin).netloc == request.headers["host"]
    if not is_own:
        raise CsrfError(
            f"the request comes from a page of another site: {origin or site}",
            hint="use the dashboard of this server, or send a token",
        )
