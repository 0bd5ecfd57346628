"""Routes for sessions, the logins of browsers."""

from __future__ import annotations

import importlib.metadata
import time

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from farrier_farm.access.users import Role
from farrier_server.authentication import Authentication, refuse_other_sites
from farrier_server.context import FarmDep
from farrier_server.gate import CallerDep, SessionDep
from farrier_server.problems import documented
from farrier_server.sessions import Session

PATH = "/v1/session"
login = APIRouter(prefix=PATH, tags=["session"])
router = APIRouter(prefix=PATH, tags=["session"])


class Credentials(BaseModel):
    """The token with which a user logs in."""

    token: str = Field(
        description="The installation's token, or the token of a user.", max_length=1000
    )


class SessionView(BaseModel):
    """An open session."""

    owner: str = Field(description="The name of the user.")
    csrf: str = Field(
        description="The value of the header `X-CSRF-Token`, which every request of the "
        "session except GET and HEAD has to contain."
    )
    expires: float = Field(description="The time at which the session ends, in Unix seconds.")
    version: str = Field(description="The version of Farrier that the server runs.")
    role: Role = Field(description="The role of the user, which determines the user's rights.")
    group: str = Field(
        description="The group of the user, whose members share their jobs; empty for none."
    )

    @classmethod
    def of(cls, session: Session, role: Role, group: str) -> SessionView:
        return cls(
            owner=session.owner,
            role=role,
            group=group,
            csrf=session.csrf,
            expires=session.expires,
            version=importlib.metadata.version("farrier"),
        )


@login.post("", responses=documented(400, 403))
async def log_in(credentials: Credentials, request: Request, response: Response) -> SessionView:
    """Open a session. Its cookie is sent by the browser with each request and is not readable by
    scripts. The session ends after `FARRIER_SESSION_S` seconds, with `DELETE`, or when the token
    with which the user logged in becomes invalid."""
    refuse_other_sites(request)
    authentication: Authentication = request.app.state.authentication
    user = authentication.user_of(credentials.token.strip())
    session, cookie = authentication.sessions.open(user)
    response.set_cookie(
        authentication.sessions.cookie,
        cookie,
        max_age=max(1, int(session.expires - time.time())),
        secure=_is_encrypted(request),
        httponly=True,
        samesite="strict",
    )
    response.headers["Cache-Control"] = "no-store"
    return SessionView.of(session, user.role, user.group)


@router.get("", responses={204: {"description": "The request has no session and no token"}})
async def get_session(session: SessionDep, caller: CallerDep, response: Response) -> SessionView:
    """Return the session of the request's cookie; 204 for a request without a cookie or with a
    token, 401 if the session has ended."""
    response.headers["Cache-Control"] = "no-store"
    return SessionView.of(session, caller.role, caller.group)


@router.delete("", status_code=204, responses=documented(403))
async def log_out(session: SessionDep, request: Request, farm: FarmDep) -> Response:
    """End the session permanently: copies of its cookie become invalid, too."""
    await run_in_threadpool(farm.logouts.add, session.id, session.expires - time.time())
    answer = Response(status_code=204)
    answer.delete_cookie(
        request.app.state.authentication.sessions.cookie,
        secure=_is_encrypted(request),
        httponly=True,
        samesite="strict",
    )
    return answer


def _is_encrypted(request: Request) -> bool:
    """Return whether the browser's connection is encrypted, either directly to this server or to a
    proxy in front of it."""
    origin = request.headers.get("origin", "")
    return request.url.scheme == "https" or origin.startswith("https://")
