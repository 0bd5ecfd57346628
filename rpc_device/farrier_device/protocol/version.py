"""The versions of the protocol: that of this code, and the oldest that this code works with.

Fields are only ever added, so different versions understand each other until one requests a feature
that the other lacks. Increment PROTOCOL for an addition that the other side may have to know of,
and OLDEST when this code no longer works without an addition.
"""

from __future__ import annotations

PROTOCOL = 3  # 1 named no version, 2 knew no devices with secrets of their own
OLDEST = 1  # The oldest version of the other side, a broker or an agent.


def named(protocol: int) -> int:
    """Return the protocol version that the other side states in a message; 1 if it is 0, because
    the first version does not state one."""
    return protocol or 1
