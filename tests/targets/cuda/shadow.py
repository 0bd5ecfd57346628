"""Shadow memory: who has touched each part of an array last, so that races show in whatever order
the threads would run.

Two threads race if they touch one part, one of them writes it, and no barrier of their block stands
between. Blocks never wait for each other, so what one writes no other may touch within a launch.
"""

from __future__ import annotations

import numpy as np

_NOBODY = -1
_SEVERAL = -2


class Shadow:
    """The last touches of an array, in parts of `grain` bytes."""

    def __init__(self, nbytes, grain):
        self.grain = grain
        self._writes, self._reads = (_Touches(-(-nbytes // grain)) for _ in range(2))

    def touch(self, start, nbytes, writes, who, since=None):
        """Note an access of each thread to `nbytes` from its `start` on. Return the instruction
        that another thread has touched one of them by, with no barrier between, or None. `since` is
        the number of barriers when the access began, where that was earlier."""
        steps = np.arange(0, nbytes, self.grain) // self.grain
        at = (start[:, None] // self.grain + steps).reshape(-1)
        who = who.repeated(len(steps))
        since = who.time if since is None else since
        for touches in (self._writes, self._reads) if writes else (self._writes,):
            if (other := touches.clash(at, who, since)) is not None:
                return other
        touches = self._writes if writes else self._reads
        touches.note(at, who)
        if writes and np.any(touches.thread[at] != who.thread):
            return who.instruction
        return None


class Who:
    """Some threads and their blocks, the number of barriers so far, and the instruction."""

    def __init__(self, thread, block, time, instruction):
        self.thread, self.block, self.time, self.instruction = thread, block, time, instruction

    def repeated(self, count):
        if count == 1:
            return self
        thread, block = (np.repeat(each, count) for each in (self.thread, self.block))
        return Who(thread, block, self.time, self.instruction)

    def chosen(self, which):
        return Who(self.thread[which], self.block[which], self.time, self.instruction)


class _Touches:
    def __init__(self, count):
        self.thread, self.block, self._time, self._instruction = (
            np.full(count, _NOBODY, np.int32) for _ in range(4)
        )

    def clash(self, at, who, since):
        """Return the instruction of a touch that no barrier separates from this one, or None."""
        elsewhere = (self.block[at] != _NOBODY) & (self.block[at] != who.block)
        at_once = (self._time[at] >= since) & (self.thread[at] != who.thread)
        clashes = np.flatnonzero(elsewhere | at_once)
        return int(self._instruction[at[clashes[0]]]) if len(clashes) else None

    def note(self, at, who):
        fresh = self._time[at] != who.time
        self.thread[at[fresh]] = who.thread[fresh]
        self._time[at] = who.time
        self.thread[at[self.thread[at] != who.thread]] = _SEVERAL
        untouched = self.block[at] == _NOBODY
        self.block[at[untouched]] = who.block[untouched]
        self.block[at[self.block[at] != who.block]] = _SEVERAL
        self._instruction[at] = who.instruction
