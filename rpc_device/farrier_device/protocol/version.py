"""Versions of the protocol: the one of this code, and the others that it works with.

Fields are only ever added, so different versions understand each other until one requests something
that the other lacks. Raise PROTOCOL for an addition that the other side may have to know of, and
OLDEST when this code no longer works without it."""

from __future__ import annotations

PROTOCOL = 3  # 1 named no version, 2 knew no devices with secrets of their own
OLDEST = 1  # The oldest version of the other side, a broker or an agent.


def named(protocol: int) -> int:
    """Return the version of the other side, which may not have stated one."""
    return protocol or 1
