"""Versions of the protocol: which one this code speaks, and which others it can do with.

Fields are only ever added, so ends of unlike versions understand each other until one asks for what
the other lacks. Raise PROTOCOL where something is added that the other end may have to know of, and
OLDEST where this code does without it no more."""

from __future__ import annotations

PROTOCOL = 3  # 1 named no version, 2 knew no devices with secrets of their own
OLDEST = 1  # of the other end, whether that is a broker or an agent


def named(protocol: int) -> int:
    """The version of an end that may have named none."""
    return protocol or 1
