"""The largest numbers that a request may contain."""

MOST = 1 << 53
"""The largest number to which every reader of JSON counts exactly (RFC 8259, section 6). What
counts bytes, lines or items of a farm is far from it, and so is what Redis and the disk can take
(2^63)."""
