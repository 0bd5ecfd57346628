"""Calls of models with small inputs and outputs, which take less time than their bookkeeping.

A forest answers for one row in a microsecond. To look up where a caller's arrays lie, and to make
new ones for the results and look up these, takes several; to copy a few hundred bytes takes less.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LARGEST = 4096  # Bytes of an array that are copied in the time in which its address is looked up.


class SmallCall:
    """A call for one layout of memory. `inputs` and `outputs` are the arrays that the entry reads
    and writes, by name, and `args` its arguments for these."""

    def __init__(
        self,
        inputs: Sequence[tuple[str, Array]],
        outputs: Sequence[tuple[str, Array]],
        args: ctypes.Array[ctypes.c_void_p],
    ) -> None:
        self._inputs = [(name, array, array.dtype, array.shape) for name, array in inputs]
        self._outputs = list(outputs)
        self._args = args

    @staticmethod
    def suits(*arrays: Array) -> bool:
        """Return whether arrays are small enough."""
        return all(array.nbytes <= LARGEST for array in arrays)

    def run(self, entry: Any, context: Any, inputs: Mapping[str, Any]) -> dict[str, Array] | None:
        """Run the model and return its outputs as new arrays. Return None if an input is not an
        array of this layout, or the model returns a code: the long way says why."""
        if len(inputs) != len(self._inputs):
            return None
        for name, array, dtype, shape in self._inputs:
            value = inputs.get(name)
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                return None
            array[...] = value
        if entry(self._args, context):
            return None
        return {name: array.copy() for name, array in self._outputs}
