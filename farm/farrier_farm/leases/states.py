"""The states of everything that is leased, jobs and measurement batches alike, and their changes.

    queued ──▶ running ──▶ succeeded | failed
      ▲  │        │  │
      │  │        │  └───▶ dead        (crashed its holder too often)
      │  └────────┼──────▶ cancelled
      └───────────┘                    (its lease expired or was handed back)

No change leaves a final state. The Lua scripts of `leases` get this very table.
"""

from __future__ import annotations

import enum


class State(enum.StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"

    @property
    def final(self) -> bool:
        return not CHANGES[self]


CHANGES: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.RUNNING, State.CANCELLED}),
    State.RUNNING: frozenset(
        {State.QUEUED, State.SUCCEEDED, State.FAILED, State.CANCELLED, State.DEAD}
    ),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
    State.DEAD: frozenset(),
}
