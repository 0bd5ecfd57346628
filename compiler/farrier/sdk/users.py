"""Manage the users of a farm through its server: their tokens, roles and expiry dates."""

from __future__ import annotations

import dataclasses
import urllib.parse
from typing import Any

from farrier.sdk.models import from_json
from farrier.sdk.uploads import Call

_USERS = "/v1/users"


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """A user of the farm; times are Unix seconds."""

    name: str
    role: str  # One of user, operator or admin.
    group: str  # The members of a group share their jobs; empty for none.
    expires: float | None  # None stands for a token that never expires.
    created: float | None = None  # The time of the token; None for `me` alone.
    expired: bool = False


class FarmUsers:
    """The users of the farm to which `call` sends requests. Every method except `me` raises
    ForbiddenError if the client's own user has no right to it."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def me(self) -> User:
        """Return the user to whom the client's token belongs."""
        return _user(self._call("GET", "/v1/account"))

    def list(self) -> list[User]:
        """Return the users that have tokens of their own, by name. Only for operators."""
        return [_user(raw) for raw in self._call("GET", _USERS)["users"]]

    def add(self, name: str, *, role: str = "user", group: str = "", expires: str = "never") -> str:
        """Add a user and return the token, which is not shown again. Only for admins.

        The token `expires` after a duration (`30d`), at a date in UTC (`2030-01-31`), or never.
        Raises UsageError, and ConflictError for a name that is in use.
        """
        body = {"name": name, "role": role, "group": group, "expires": expires}
        return str(self._call("POST", _USERS, json=body)["token"])

    def rotate(self, name: str, *, expires: str | None = None) -> str:
        """Replace a user's token, which becomes invalid, by a new one, and return that. Only for
        admins. Without `expires` the new token expires when the old one would have. Raises
        NotFoundError."""
        path = f"{_path(name)}/rotate"
        return str(self._call("POST", path, json={"expires": expires})["token"])

    def remove(self, name: str) -> None:
        """Revoke a user's token; the user's jobs stay. Only for admins. Raises NotFoundError."""
        self._call("DELETE", _path(name))


def _path(name: str) -> str:
    return f"{_USERS}/{urllib.parse.quote(name, safe='')}"


def _user(raw: Any) -> User:
    user: User = from_json(User, raw)
    return user
