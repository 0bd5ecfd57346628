"""The lease layer (signatures; the scripts follow)."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one item until the lease expires. `fence` grows with every attempt; each
    state change names it, and one of an earlier attempt is refused."""

    item: str
    fence: int
    attempt: int
    owner: str
