"""Sessions of browsers, represented by a signed cookie instead of a token. Scripts on a page cannot
read the cookie.

    cookie    = v1.<payload>.<signature>
    payload   = base64url of the JSON {"expires", "id", "owner"}
    key       = HMAC-SHA256(installation's token, "farrier-session-v1", owner, hash of their token)
    signature = HMAC-SHA256(key, "cookie", payload)
    csrf      = HMAC-SHA256(key, "csrf", payload)

Therefore the servers store nothing about an open session, every server of a farm accepts the
cookie, and a session ends when the token that opened it becomes invalid. Only a logout is stored
(`farrier_farm.access.logouts`).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import secrets
import time
from typing import Any

from farrier.errors import AuthenticationError
from farrier_farm.access.users import User, Users
from farrier_farm.settings import Settings

_VERSION = "v1"
_AGAIN = "log in again, with a token"


class SessionError(AuthenticationError):
    """The error for a session that has ended; the message states the reason."""

    code = "session-expired"


@dataclasses.dataclass(frozen=True, slots=True)
class Session:
    """A login of a user in a browser."""

    id: str
    owner: str
    expires: float  # Unix seconds
    csrf: str  # The token that a request with changes has to send: no other site can know it.


class Sessions:
    """Opens and verifies sessions of the installation's token and of users' own tokens."""

    def __init__(self, token: str, users: Users, settings: Settings) -> None:
        self._token = token.encode()
        self._users = users
        self._age_s = settings.session_s
        home = hashlib.sha256(str(settings.home).encode()).hexdigest()[:8]
        self.cookie = f"farrier_session_{home}"
        """The name of the session cookie. It differs between farms, because browsers send a cookie
        to all ports of a host."""

    def open(self, user: User) -> tuple[Session, str]:
        """Open a session for a user who has authenticated with a token. Return the session and the
        value of its cookie."""
        expires = float(int(time.time() + self._age_s))
        if user.expires is not None:
            expires = min(expires, user.expires)
        payload = _encoded({"expires": expires, "id": secrets.token_hex(16), "owner": user.name})
        signature = _mac(self._key(user), "cookie", payload)
        return self.of(value := f"{_VERSION}.{payload}.{signature}")[0], value

    def of(self, value: str) -> tuple[Session, User]:
        """Return the session of a cookie, and its user. Raises SessionError if the session has
        expired or its token is no longer valid. The caller has to check separately whether the
        session was logged out."""
        version, _, rest = value.partition(".")
        payload, _, signature = rest.partition(".")
        fields = _decoded(payload) if version == _VERSION else None
        if fields is None:
            raise SessionError("the session cookie is not from this server", hint=_AGAIN)
        user = self._users.named(fields["owner"])
        key = secrets.token_bytes(32) if user is None else self._key(user)
        if not hmac.compare_digest(signature.encode(), _mac(key, "cookie", payload).encode()):
            raise SessionError(
                "the session has ended: its token was removed or changed", hint=_AGAIN
            )
        if user is None or user.has_expired:
            raise SessionError("the session has ended: its token has expired", hint=_AGAIN)
        if fields["expires"] <= time.time():
            raise SessionError("the session has expired", hint=_AGAIN)
        csrf = _mac(key, "csrf", payload)
        return Session(fields["id"], fields["owner"], fields["expires"], csrf), user

    def _key(self, user: User) -> bytes:
        words = ("farrier-session-v1", user.name, user.sha256)
        return hmac.digest(self._token, "\0".join(words).encode(), "sha256")


def over(session: Session) -> SessionError:
    """Return the error for a session that was logged out."""
    return SessionError(f"the session of {session.owner} was logged out", hint=_AGAIN)


def _mac(key: bytes, purpose: str, payload: str) -> str:
    return hmac.new(key, f"{purpose}\0{payload}".encode(), hashlib.sha256).hexdigest()


def _encoded(fields: dict[str, Any]) -> str:
    text = json.dumps(fields, separators=(",", ":"), sort_keys=True)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decoded(payload: str) -> dict[str, Any] | None:
    """Return the JSON object in a cookie's payload, or None for a malformed payload. The object is
    untrusted until the cookie's signature is checked."""
    try:
        fields = json.loads(base64.b64decode(payload + "=" * (-len(payload) % 4), b"-_", True))
        return {
            "id": str(fields["id"]),
            "owner": str(fields["owner"]),
            "expires": float(fields["expires"]),
        }
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
