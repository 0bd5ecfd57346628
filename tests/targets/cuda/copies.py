"""Copies that `cp.async` begins, until the thread waits for their group."""

from __future__ import annotations

import numpy as np


class Copies:
    """The copies under way of all threads, and how many groups each thread has closed."""

    def __init__(self, threads):
        self._closed = np.zeros(threads, np.int64)
        self._open = []

    def begin(self, threads, place, words, doubts, time):
        """Begin to copy words of `threads` to the places of all threads, at a time."""
        groups = self._closed[threads].copy()
        self._open.append((threads, place, words, doubts, groups, time))

    def close(self, threads):
        """Make a group of what threads have begun since the last one."""
        self._closed[threads] += 1

    def done(self, mask, most):
        """Yield the copies that are done when at most `most` groups are left under way, for the
        threads under a mask. Copies that are in no group yet stay."""
        left = []
        for threads, place, words, doubts, groups, time in self._open:
            ends = mask[threads] & (groups < self._closed[threads] - most)
            if ends.any():
                part = [each[ends] for each in words], [each[ends] for each in doubts]
                yield threads[ends], place, *part, time
            if not ends.all():
                keep = ~ends
                words, doubts = ([each[keep] for each in some] for some in (words, doubts))
                left.append((threads[keep], place, words, doubts, groups[keep], time))
        self._open = left
