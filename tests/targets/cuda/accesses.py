"""Loads and stores of the emulator: bounds, alignment, races, and what nobody has written."""

from __future__ import annotations

import re

import numpy as np

from tests.targets.cuda.memory import PLACE
from tests.targets.cuda.ptx import dtype_of, listed
from tests.targets.cuda.shadow import Who

_ADDRESS = re.compile(r"\[([%\w$.]+)(?:\+(-?\d+))?\]")


class Accesses:
    """The part of a run that knows memory."""

    def _do_ld(self):
        results, place = self._at.operands
        space = self._at.suffixes[0]
        if space == "param":
            name = _ADDRESS.fullmatch(place)[1]
            value = self._arguments[self._kernel.params.index(name)]
            self._put(results, np.full(self._count, value, np.uint64))
            return
        dtype, names = dtype_of(self._at.suffixes[-1]), listed(results)
        address = self._addresses(place)
        loaded = self._load(space, address, dtype, len(names), np.flatnonzero(self._mask))
        for name, (value, doubt) in zip(names, loaded, strict=True):
            self._doubt = doubt
            self._put(name, value)

    def _do_st(self):
        place, sources = self._at.operands
        space, dtype = self._at.suffixes[0], dtype_of(self._at.suffixes[-1])
        values, doubts = [], []
        here = np.flatnonzero(self._mask)
        for name in listed(sources):
            values.append(np.ascontiguousarray(self._get(name, dtype))[here])
            if space == "global":
                self._settle()
            doubts.append(self._doubt[here])
            self._doubt = self._nothing
        self._store(space, self._addresses(place), dtype, values, doubts, here)

    def _addresses(self, place):
        """Return the addresses that an operand names, of all threads."""
        base, offset = _ADDRESS.fullmatch(place).groups()
        address = self._get(base, np.dtype(np.uint64)).astype(np.int64) + int(offset or 0)
        if base[0] == "%" and self._kernel.bits(base) == 32:
            address %= 1 << 32
        self._settle()
        return address

    def _load(self, space, address, dtype, count, here):
        """Return `count` neighbours from the address of each thread that is `here`, each with the
        threads that nobody wrote it for."""
        loaded = [(np.zeros(self._count, dtype), np.zeros(self._count, bool)) for _ in range(count)]
        nbytes = dtype.itemsize * count
        self._count_traffic(space, address[here], nbytes, here)
        for array, shadow, at, chosen in self._parts(space, address[here], nbytes, here):
            threads = here[chosen]
            self._touch(shadow, at, nbytes, False, threads)
            for number, (value, doubt) in enumerate(loaded):
                start = at + number * dtype.itemsize
                doubt[threads] = ~array.written[start]
                value[threads] = array.content.view(dtype)[start // dtype.itemsize]
        return loaded

    def _store(self, space, address, dtype, values, doubts, here, since=None):
        """Store neighbours at the address of each thread that is `here`."""
        nbytes = dtype.itemsize * len(values)
        if since is None:
            self._count_traffic(space, address[here], nbytes, here)
        for array, shadow, at, chosen in self._parts(space, address[here], nbytes, here):
            self._touch(shadow, at, nbytes, True, here[chosen], since)
            if space == "shared":
                self._storing[at[:, None] + np.arange(nbytes)] = here[chosen][:, None]
            for number, (value, doubt) in enumerate(zip(values, doubts, strict=True)):
                start = at + number * dtype.itemsize
                places = start[:, None] + np.arange(dtype.itemsize)
                array.written[places] = ~doubt[chosen][:, None]
                array.content.view(dtype)[start // dtype.itemsize] = value[chosen]

    def _parts(self, space, address, nbytes, here):
        """Yield the arrays that an access touches, with their shadows, the offsets in each, and
        which of the threads that are `here` these are."""
        if np.any(address % nbytes):
            self._fail(f"an address is no multiple of {nbytes}")
        everyone = np.ones(len(address), bool)
        if space == "shared":
            self._check(address, nbytes, self._shared_bytes)
            at = self._block[here] * self._shared_step + address
            yield self._shared, self._shared_shadow, at, everyone
            return
        if space == "local":
            self._check(address, nbytes, self._local_bytes)
            yield self._local, None, here * self._local_step + address, everyone
            return
        numbers = address >> PLACE
        for each in np.unique(numbers):
            array = self._memory.arrays.get(int(each))
            if array is None:
                self._fail("an address is in no array")
            chosen = numbers == each
            at = address[chosen] & ((1 << PLACE) - 1)
            self._check(at, nbytes, len(array.content))
            yield array, self._history.shadows.get(int(each)), at, chosen

    def _check(self, at, nbytes, size):
        if np.any(at < 0) or np.any(at + nbytes > size):
            self._fail(f"an address is outside of the {size} bytes of its array")

    def _touch(self, shadow, at, nbytes, writes, threads, since=None):
        """Note an access; fail if it races with another one."""
        if shadow is None:
            return
        who = Who(self._thread[threads], self._number[threads], self._history.time, self._place)
        if (other := shadow.touch(at, nbytes, writes, who, since)) is not None:
            text = self._kernel.code[other].text
            self._fail(f"threads race, with no barrier after {text!r} and before")

    def _count_traffic(self, space, address, nbytes, here):
        if self._traffic is not None and space != "local" and len(here):
            self._traffic.note(space, self._at.text, here, address, nbytes)
