"""Browser sessions that were logged out before they expired.

farrier:logout:<session>   a key that exists until the session would have expired

All other facts about a session are in its signed cookie, so a farm stores nothing about open
sessions."""

from __future__ import annotations

from farrier_farm.redis.connection import Client

_PREFIX = "farrier:logout:"


class Logouts:
    """The logouts of browser sessions. Every method raises ServiceError if Redis is out of
    reach."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def add(self, session: str, seconds: float) -> None:
        """Store the logout of a session that would expire in `seconds`."""
        self._client.command("SET", _PREFIX + session, "", "EX", max(1, round(seconds + 1)))

    def has(self, session: str) -> bool:
        return bool(self._client.command("EXISTS", _PREFIX + session))
