"""Who sends a request: by a token in its head, or by the cookie of a session.

A browser sends a cookie by itself, also with what another site's page makes it send. So a request
with a cookie that is to change something comes from no other site, and says the session's CSRF
token, which no other site can read."""

from __future__ import annotations

import dataclasses
import hmac
import urllib.parse

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from farrier.errors import AuthenticationError
from farrier_farm import tokens
from farrier_farm.farm import Farm
from farrier_farm.users import DEFAULT, Users
from farrier_server import sessions
from farrier_server.sessions import Session, Sessions

CSRF_HEADER = "X-CSRF-Token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class CsrfError(AuthenticationError):
    """A request that another site may have made this browser send."""

    code = "csrf"
    http_status = 403


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Whose a request is; of a browser that has logged in, its session."""

    owner: str
    session: Session | None = None


class Authentication:
    """The installation's token, those of its users, and the sessions that they open."""

    def __init__(self, farm: Farm, token: str) -> None:
        self._token = token
        self._users = Users(farm.settings.home)
        self._logouts = farm.logouts
        self.sessions = Sessions(token, self._users, farm.settings)

    def names(self, request: Request) -> bool:
        """Whether a request says who sends it, be it true or not."""
        cookie = request.cookies.get(self.sessions.cookie)
        return bool(cookie or request.headers.get("authorization"))

    async def caller(self, request: Request) -> Caller:
        """By the Authorization header where there is one. Raises AuthenticationError, StorageError,
        for a session also ServiceError where Redis is away."""
        given = request.headers.get("authorization", "")
        cookie = request.cookies.get(self.sessions.cookie, "")
        if given or not cookie:
            return Caller(self._owner_by_header(given))
        session = self.sessions.of(cookie)
        if request.method not in _SAFE:
            refuse_other_sites(request)
            said = request.headers.get(CSRF_HEADER, "")
            if not hmac.compare_digest(said.encode(), session.csrf.encode()):
                raise CsrfError(
                    f"the {CSRF_HEADER} is wrong" if said else f"the request has no {CSRF_HEADER}",
                    hint="GET /v1/session tells it; a request with a token needs none",
                )
        if await run_in_threadpool(self._logouts.has, session.id):
            raise sessions.over(session)
        return Caller(session.owner, session)

    def owner_of(self, token: str) -> str:
        """The name of the user who has this token. Raises AuthenticationError, StorageError."""
        if tokens.matches(token, self._token):
            return DEFAULT
        owner = self._users.owner_of(token)
        if owner is None:
            raise AuthenticationError(
                "the token is wrong",
                hint="`farrier up` names the installation's at its start; "
                "`farrier tokens add NAME` makes another",
            )
        return owner

    def _owner_by_header(self, given: str) -> str:
        scheme, _, token = given.partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return self.owner_of(token.strip())
        raise AuthenticationError(
            "the token is wrong" if given else "the request has no token",
            hint="send `Authorization: Bearer TOKEN`; FARRIER_TOKEN sets it for the client",
        )


def refuse_other_sites(request: Request) -> None:
    """Raises CsrfError for what a page of another origin made the browser send. Browsers say so in
    Sec-Fetch-Site (W3C Fetch Metadata), older ones in Origin."""
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
