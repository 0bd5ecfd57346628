"""Copies of whole tiles by tensor maps, `cp.async.bulk.tensor`, and the mbarriers that count their
bytes. A copy is done when somebody waits for its mbarrier."""

from __future__ import annotations

import dataclasses
import re
import struct

import numpy as np

from tests.targets.cuda.memory import PLACE
from tests.targets.cuda.ptx import listed
from tests.targets.cuda.shadow import Who

MAP = 1 << 62  # An address from here on is that of a tensor map among the parameters.
_FIELDS = struct.Struct("<5Q")
_CHUNK, _ROW = 16, 128  # Bytes.
_WORD = np.dtype(np.uint32)
_SOURCE = re.compile(r"\[(%\w+), (\{[^}]*\})\]")


def encoded_map(address, element, width, height, rows):
    """Return the bytes of a tensor map: here, its fields."""
    return _FIELDS.pack(address, element, width, height, rows)


@dataclasses.dataclass
class _Barrier:
    """An mbarrier for one arrival: how often it was complete, the bytes that are expected now, and
    the copies that count for it."""

    since: int  # The number of barriers of the block before it was initialized.
    phases: int = 0
    expected: int = 0
    has_arrived: bool = False
    copies: list = dataclasses.field(default_factory=list)


class Fetches:
    """The instructions of mbarriers and of copies of tiles."""

    def _begin_fetches(self):
        self._barriers = {}  # By the block and the address.
        self._are_fenced = False
        for number, name in enumerate(self._kernel.params):
            if name in self._kernel.maps:
                self._places[name] = MAP + number

    def _fence_barriers(self):
        self._are_fenced = True

    def _barriers_at(self, place):
        """Return the mbarriers at an operand with a thread of each block under the mask."""
        address, threads = self._addresses(place), {}
        for thread in np.flatnonzero(self._mask):
            key = int(self._block[thread]), int(address[thread])
            threads.setdefault(key, int(thread))
        return [(self._barriers.get(key), key, thread) for key, thread in threads.items()]

    def _known(self, barrier):
        if barrier is None:
            self._fail("an mbarrier that nobody has initialized")
        return barrier

    def _do_mbarrier(self):
        kind, operands = self._at.suffixes[0], self._at.operands
        if kind == "init":
            assert operands[1] == "1"
            for _, key, _ in self._barriers_at(operands[0]):
                self._barriers[key] = _Barrier(self._history.time)
        elif kind == "expect_tx":
            nbytes = self._get(operands[1], _WORD)
            for barrier, _, thread in self._barriers_at(operands[0]):
                self._known(barrier).expected += int(nbytes[thread])
        elif kind == "arrive":
            for barrier, _, _ in self._barriers_at(operands[1]):
                if self._known(barrier).has_arrived:
                    self._fail("an mbarrier for one arrival has two")
                barrier.has_arrived = True
        elif kind == "try_wait":
            self._try_wait(*operands)
        else:
            self._fail("an opcode that the emulator does not have")

    def _try_wait(self, result, place, parity):
        parities = self._get(parity, _WORD)
        for barrier, _, thread in self._barriers_at(place):
            if self._known(barrier).since == self._history.time:
                self._fail("threads race for an mbarrier, with no barrier after its initialization")
            if barrier.phases % 2 == parities[thread]:
                self._complete(barrier)
        self._put(result, np.ones(self._count, bool))

    def _complete(self, barrier):
        if not barrier.has_arrived or barrier.expected != sum(
            len(copy[1]) * _CHUNK for copy in barrier.copies
        ):
            self._fail("a wait for an mbarrier that nothing completes")
        self._history.needed.add(self._place)
        for who, places, chunks, time in barrier.copies:
            self._write_chunks(who, places, chunks, time)
        barrier.phases, barrier.expected = barrier.phases + 1, 0
        barrier.has_arrived, barrier.copies = False, []

    def _fetch(self):
        """Begin the copy of a tile."""
        target, source, barrier = self._at.operands
        if not self._are_fenced:
            self._fail("no fence.mbarrier_init after the initialization")
        base, coordinates = _SOURCE.fullmatch(source).groups()
        maps = self._get(base, np.dtype(np.uint64))
        x, y = (self._get(each, np.dtype(np.int32)) for each in listed(coordinates))
        to = self._addresses(target)
        self._settle()
        barriers = self._barriers_at(barrier)
        assert len(barriers) == np.count_nonzero(self._mask), "one thread of a block copies"
        for each, _, thread in barriers:
            described = _FIELDS.unpack(self._arguments[int(maps[thread]) - MAP][: _FIELDS.size])
            chunks = self._tile(described, int(x[thread]), int(y[thread]), thread)
            first = int(to[thread])
            if first % _ROW or first + chunks.size > self._shared_bytes:
                self._fail("an address is misaligned or outside of its array")
            at = first + _CHUNK * np.arange(len(chunks))
            at = (at ^ (at >> 7 & 7) << 4) + self._block[thread] * self._shared_step
            number, block = self._thread[thread], self._number[thread]
            who = Who(*(np.full(len(at), n, np.int32) for n in (number, block)), 0, self._place)
            # Whoever looks before the wait sees nothing that is defined.
            self._write_chunks(who, at, None, None)
            self._known(each).copies.append((who, at, chunks, self._history.time))

    def _check_race(self, shadow, at, nbytes, who, since=None, writes=False):
        other = shadow.touch(at, nbytes, writes, who, since)
        if other is not None:
            text = self._kernel.code[other].text
            self._fail(f"threads race, with no barrier after {text!r} and before")

    def _tile(self, described, x, y, thread):
        """Return the bytes of a tile in chunks, with zeros outside of its matrix."""
        address, element, width, height, rows = described
        number, start = address >> PLACE, address & ((1 << PLACE) - 1)
        array, columns = self._memory.arrays[number], _ROW // element
        column, row = x + np.arange(columns)[None, :], y + np.arange(rows)[:, None]
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        at = start + np.where(inside, row * width + column, 0) * element
        places = at[..., None] + np.arange(element)
        if (shadow := self._history.shadows.get(number)) is not None:
            starts = at[inside]
            owner = np.full((2, len(starts)), -1, np.int32)
            owner[0], owner[1] = self._thread[thread], self._number[thread]
            self._check_race(shadow, starts, element, Who(*owner, self._history.time, self._place))
        if not np.all(array.written[places][inside]):
            self._fail("a copy depends on memory that nobody has written")
        content = np.where(inside[..., None], array.content[places], 0).astype(np.uint8)
        return content.reshape(-1, _CHUNK)

    def _write_chunks(self, who, at, chunks, since):
        who.time = self._history.time
        self._check_race(self._shared_shadow, at, _CHUNK, who, since, writes=True)
        places = at[:, None] + np.arange(_CHUNK)
        self._shared.written[places] = chunks is not None
        if chunks is not None:
            self._shared.content[places] = chunks
            self._storing[places] = -1
