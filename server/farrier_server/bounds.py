"""The limits of the integers in requests."""

MOST = 1 << 53
"""2^53: every JSON parser represents integers up to here exactly (RFC 8259, section 6). Numbers of
bytes, lines or items in a farm are far smaller, and Redis and file systems allow 2^63."""
