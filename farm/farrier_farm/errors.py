"""The two ways in which the farm tells a holder that it holds nothing any more."""

from __future__ import annotations

from typing import ClassVar

from farrier.errors import ConflictError


class StaleLeaseError(ConflictError):
    """The lease expired, was taken over, or its item reached a final state: stop working on it."""

    code: ClassVar[str] = "stale-lease"


class StaleSessionError(ConflictError):
    """The device has opened a newer session, or none yet: open a new session."""

    code: ClassVar[str] = "stale-session"
