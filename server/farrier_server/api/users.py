"""Routes by which admins manage users: the token, role, group and expiry of each user.

A token is shown only in the answer that creates it; the farm stores only its hash.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from farrier.errors import NotFoundError
from farrier_farm.access.users import NAME, Role, User, Users, read_expiry
from farrier_server.access import UsersDep
from farrier_server.gate import CallerDep
from farrier_server.problems import documented

router = APIRouter(prefix="/v1", tags=["users"])
UserName = Annotated[str, Path(description="The name of the user.", pattern=rf"^{NAME}$")]
Expiry = Annotated[
    str,
    Field(
        max_length=40,
        description="The time at which the token expires: a duration from now (12h, 30d, 8w), "
        "a date in UTC (2030-01-31), or `never`.",
    ),
]


class AccountView(BaseModel):
    """The user who sent the request."""

    name: str
    role: Role = Field(
        description="The role of the user. Each role has the rights of all roles before it."
    )
    group: str = Field(
        description="The group of the user, whose members share their jobs; empty for none."
    )
    expires: float | None = Field(
        description="The time at which the token expires, in Unix seconds; null for never."
    )


class UserView(AccountView):
    """A user who has a token of their own."""

    created: float = Field(description="The time at which the token was created, in Unix seconds.")
    expired: bool = Field(description="True if the token has expired.")

    @classmethod
    def of(cls, user: User) -> UserView:
        return cls(
            name=user.name,
            role=user.role,
            group=user.group,
            expires=user.expires,
            created=user.created,
            expired=user.has_expired,
        )


class UserList(BaseModel):
    """All users with a token of their own. The user `default`, who has the installation's token, is
    not included."""

    users: list[UserView] = Field(description="The users, sorted by name.")


class UserRequest(BaseModel):
    """A user to add."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "ann", "group": "vision", "expires": "30d"}]},
    )

    name: str = Field(pattern=rf"^{NAME}$")
    role: Role = Role.USER
    group: str = Field(
        default="", pattern=rf"^({NAME})?$", description="The group of the user; empty for none."
    )
    expires: Expiry = "never"


class RotateRequest(BaseModel):
    """A request to replace a user's token."""

    model_config = ConfigDict(extra="forbid")

    expires: Expiry | None = Field(
        default=None,
        description="The time at which the new token expires; null for the expiry of the old "
        "token.",
    )


class TokenView(BaseModel):
    """A new token. The token is shown only in this answer."""

    user: UserView
    token: str = Field(
        description="The token, for the header `Authorization: Bearer` or for FARRIER_TOKEN."
    )


@router.get("/account", responses=documented())
def get_account(caller: CallerDep) -> AccountView:
    """Return the user to whom the request's token or session belongs."""
    return AccountView(
        name=caller.owner, role=caller.role, group=caller.group, expires=caller.expires
    )


@router.get("/users", responses=documented(507))
def list_users(users: UsersDep) -> UserList:
    """Return the users who have tokens of their own, including expired ones."""
    return UserList(users=[UserView.of(user) for user in users.list()])


@router.post("/users", status_code=201, responses=documented(400, 409, 507))
def add_user(body: UserRequest, users: UsersDep, response: Response) -> TokenView:
    """Add a user and create the user's token, which is valid at once."""
    expires = read_expiry(body.expires)
    token = users.add(body.name, body.role, group=body.group, expires=expires)
    return _shown_once(users, body.name, token, response)


@router.post("/users/{name}/rotate", responses=documented(400, 404, 507))
def rotate_token(
    name: UserName, body: RotateRequest, users: UsersDep, response: Response
) -> TokenView:
    """Replace a user's token by a new one. The old token becomes invalid, and its sessions end."""
    expires = None if body.expires is None else read_expiry(body.expires)
    token = users.rotate(name, expires=expires, for_ever=body.expires == "never")
    return _shown_once(users, name, token, response)


@router.delete("/users/{name}", status_code=204, responses=documented(404, 507))
def remove_user(name: UserName, users: UsersDep) -> None:
    """Revoke a user's token. The user's sessions end; the user's jobs stay."""
    users.remove(name)


def _shown_once(users: Users, name: str, token: str, response: Response) -> TokenView:
    response.headers["Cache-Control"] = "no-store"
    user = users.named(name)
    if user is None:  # Another admin has removed the user meanwhile.
        raise NotFoundError(f"the user {name!r} was removed meanwhile")
    return TokenView(user=UserView.of(user), token=token)
