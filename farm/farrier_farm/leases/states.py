"""The states of leased items (jobs, batches and builds), and the permitted changes between them.

    queued ──▶ running ──▶ succeeded | failed
      ▲  │        │  │
      │  │        │  └───▶ dead        (crashed its holder too often)
      │  └────────┼──────▶ cancelled
      └───────────┘                    (its lease expired or was handed back)

An item never leaves a final state. The Lua scripts of `leases` are generated from the table in this
module.
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
