"""Browser sessions that were logged out before their time.

farrier:logout:<session>   there until the session would have expired

All else that there is to know of a session stands, signed, in its cookie, so a farm keeps nothing
of those that go on."""

from __future__ import annotations

from farrier_farm.redis.connection import Client

_PREFIX = "farrier:logout:"


class Logouts:
    """Every method raises ServiceError where Redis is out of reach."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def add(self, session: str, seconds: float) -> None:
        """End a session that would expire in `seconds`."""
        self._client.command("SET", _PREFIX + session, "", "EX", max(1, round(seconds + 1)))

    def has(self, session: str) -> bool:
        return bool(self._client.command("EXISTS", _PREFIX + session))
