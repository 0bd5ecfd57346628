"""Sums and differences of several words, which hand a carry from one instruction to the next."""

from __future__ import annotations

import numpy as np

from tests.targets.cuda.ptx import dtype_of


class Carries:
    """The part of a run that has the carry of each thread."""

    def _do_add(self):
        self._carried(np.add, takes=False)

    def _do_addc(self):
        self._carried(np.add, takes=True)

    def _do_sub(self):
        self._carried(np.subtract, takes=False)

    def _do_subc(self):
        self._carried(np.subtract, takes=True)

    def _carried(self, function, takes):
        result, *sources = self._at.operands
        dtype = dtype_of(self._at.suffixes[-1])
        a, b = (self._get(each, dtype) for each in sources)
        total = function(a, b)
        if dtype.kind in "iu":
            unsigned = np.dtype(f"u{dtype.itemsize}")
            carry = self._carry.astype(dtype) if takes else np.zeros_like(total)
            whole = function(total, carry)
            # A sum that is less than a part of it has overflowed; so has a larger difference.
            over = np.less if function is np.add else np.greater
            parts = ((total, a), (whole, total))
            overflows = [over(x.view(unsigned), y.view(unsigned)) for x, y in parts]
            total = whole
            if "cc" in self._at.suffixes:
                self._carry = np.where(self._mask, overflows[0] | overflows[1], self._carry)
        self._put(result, total)
