"""The priority of a job among the jobs of the same user.

The priority determines the order in which the jobs of one user are leased. It does not affect the
order of users, which depends on their running jobs (`shares.lua`), so no priority is at the expense
of another user.
"""

from __future__ import annotations

import enum


class Priority(enum.StrEnum):
    """The priorities, from the one whose jobs are leased last to the one whose jobs are leased
    first."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
