"""Counts of what accesses to memory cost: wavefronts of shared memory, sectors of global memory.

A wavefront reaches each of 32 banks of 4 bytes once, for lanes whose accesses are 128 bytes
together; a sector is 32 bytes of global memory.
"""

from __future__ import annotations

import collections

import numpy as np

LANES = 32
_BANKS, _WORD, _SECTOR = 32, 4, 32


class Traffic:
    """For each instruction, by its space and text: how many a launch needs, and the fewest."""

    def __init__(self):
        self.counts = collections.defaultdict(lambda: np.zeros(2, np.int64))

    def note(self, space, text, threads, address, nbytes):
        count = _wavefronts if space == "shared" else _sectors
        self.counts[space, text] += count(threads, address, nbytes)

    def over_the_fewest(self, space):
        """Return how many times the fewest all accesses to a space take."""
        total = sum((n for (of, _), n in self.counts.items() if of == space), np.zeros(2, np.int64))
        return total[0] / max(1, total[1])


def _wavefronts(threads, address, nbytes):
    together = min(LANES, 128 // max(_WORD, nbytes))
    group = threads // together
    steps = np.arange(-(-nbytes // _WORD))
    words = (address[:, None] // _WORD + steps).reshape(-1)
    pairs = np.unique(np.stack([np.repeat(group, len(steps)), words], 1), axis=0)
    groups, number = np.unique(pairs[:, 0], return_inverse=True)
    banks = np.bincount(number * _BANKS + pairs[:, 1] % _BANKS, minlength=len(groups) * _BANKS)
    return np.array([banks.reshape(-1, _BANKS).max(1).sum(), len(groups)])


def _sectors(threads, address, nbytes):
    warp = threads // LANES
    ends = np.concatenate([address // _SECTOR, (address + nbytes - 1) // _SECTOR])
    touched = np.unique(np.stack([np.tile(warp, 2), ends], 1), axis=0)
    distinct = np.unique(np.stack([warp, address], 1), axis=0)
    bytes_of = np.bincount(distinct[:, 0] - warp.min()) * nbytes
    return np.array([len(touched), np.ceil(bytes_of / _SECTOR).sum().astype(np.int64)])
