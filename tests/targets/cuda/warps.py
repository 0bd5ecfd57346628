"""Instructions that a warp runs together, and copies that go on meanwhile."""

from __future__ import annotations

import numpy as np

from tests.targets.cuda import tensor_cores
from tests.targets.cuda.ptx import listed
from tests.targets.cuda.traffic import LANES

_WORD = np.dtype(np.uint32)


class Warps:
    """Instructions of whole warps, of which no thread may be elsewhere."""

    def _of_warps(self, operand, dtype=_WORD):
        """Return an operand, [warps, lanes]."""
        return self._get(operand, dtype).reshape(-1, LANES)

    def _check_warps(self):
        if self._threads % LANES:
            self._fail(f"blocks of {self._threads} threads are no whole warps")
        warps = self._mask.reshape(-1, LANES)
        if np.any(warps.any(1) != warps.all(1)):
            self._fail("not all threads of a warp reach the instruction")
        if np.any(self._apart & self._mask):
            self._fail("a branch has parted the threads of a warp, and no barrier joined them")

    def _meet_in_warps(self):
        """Let the threads of a warp wait for each other."""
        if self._threads % LANES:
            self._fail(f"blocks of {self._threads} threads are no whole warps")
        warps = self._mask.reshape(-1, LANES)
        if np.any(warps.any(1) != warps.all(1)) or np.any(self._apart & self._mask):
            self._history.needed.add(self._place)
        self._held |= self._mask
        whole = self._held.reshape(-1, LANES).all(1)
        self._held &= ~np.repeat(whole, LANES)
        self._apart &= ~np.repeat(whole, LANES)

    def _spread_doubt(self):
        """Spread the marks of undefined operands to all threads of a warp."""
        if self._doubt.any():
            self._doubt = np.repeat(self._doubt.reshape(-1, LANES).any(1), LANES)

    def _do_shfl(self):
        self._check_warps()
        result, source, lane, *_ = self._at.operands
        value, operand = self._of_warps(source), self._of_warps(lane).astype(np.int64)
        self._spread_doubt()
        mode = next(each for each in self._at.suffixes if each in ("bfly", "down", "up", "idx"))
        self._put(result.split("|")[0], tensor_cores.shuffled(mode, value, operand).reshape(-1))

    def _do_ldmatrix(self):
        self._check_warps()
        results, place = self._at.operands
        names, address = listed(results), self._addresses(place)
        is_transposed = "trans" in self._at.suffixes
        for number, name in enumerate(names):
            lanes = np.arange(self._count) % LANES
            here = np.flatnonzero(self._mask & (lanes // 8 == number))
            loaded = self._load("shared", address, np.dtype(np.uint16), 8, here)
            rows = np.stack([value[here] for value, _ in loaded], 1).reshape(-1, 8, 8)
            doubt = np.stack([doubt[here] for _, doubt in loaded], 1).reshape(-1, 64).any(1)
            words = np.zeros((self._count // LANES, LANES), np.uint32)
            warps = here[::8] // LANES
            words[warps] = tensor_cores.transposed_rows(rows, is_transposed)
            self._doubt = np.zeros(self._count, bool)
            self._doubt.reshape(-1, LANES)[warps] = doubt[:, None]
            self._put(name, words.reshape(-1))

    def _do_mma(self):
        self._check_warps()
        shape = next(each for each in self._at.suffixes if each.startswith("m16"))
        kinds = self._at.suffixes[-4:]
        total = np.dtype(np.int32 if kinds[3] == "s32" else np.float32)
        results, a, b, c = self._at.operands
        left, right, old = (
            np.stack([self._of_warps(name, dtype) for name in listed(operand)], -1)
            for operand, dtype in ((a, _WORD), (b, _WORD), (c, total))
        )
        self._spread_doubt()
        new = tensor_cores.multiply(shape, kinds[1:3], left, right, old)
        doubt = self._doubt
        for number, name in enumerate(listed(results)):
            self._doubt = doubt
            self._put(name, new[:, :, number].reshape(-1))

    def _do_cp(self):
        suffixes = self._at.suffixes
        if "commit_group" in suffixes:
            self._copies.close(self._mask)
        elif "wait_group" in suffixes or "wait_all" in suffixes:
            self._land(int(self._at.operands[0]) if self._at.operands else 0)
        elif "tensor" in suffixes:
            self._fetch()
        else:
            self._begin()

    def _begin(self):
        """Begin a copy to shared memory, of zeros beyond the bytes of the last operand if any."""
        target, source, nbytes, *more = self._at.operands
        to, of = self._addresses(target), self._addresses(source)
        here = np.flatnonzero(self._mask)
        count = int(nbytes) // _WORD.itemsize
        taken = np.full(self._count, int(nbytes), np.int64)
        if more:
            taken = self._get(more[0], _WORD).astype(np.int64)
            self._settle()
        some = here[taken[here] > 0]
        loaded = self._load("global", of, _WORD, count, some)
        words = [
            np.where(taken > number * _WORD.itemsize, value, 0)[here]
            for number, (value, _) in enumerate(loaded)
        ]
        doubts = [doubt[here] for _, doubt in loaded]
        # Whoever looks before the wait sees nothing that is defined.
        nothing = [np.ones(len(here), bool)] * count
        self._store("shared", to, _WORD, words, nothing, here)
        self._copies.begin(here, to, words, doubts, self._history.time)

    def _land(self, most):
        for threads, place, words, doubts, time in self._copies.done(self._mask, most):
            self._history.needed.add(self._place)
            self._store("shared", place, _WORD, words, doubts, threads, since=time)
