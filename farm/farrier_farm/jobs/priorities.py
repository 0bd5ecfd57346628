"""The priority of a job among those of its user.

It says in which order a user's jobs are leased, and nothing of whose turn it is: that is decided by
what users have running (`shares.lua`), so no priority takes anything from another user."""

from __future__ import annotations

import enum


class Priority(enum.StrEnum):
    """In the order in which the jobs of a user are leased, the last first."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
