"""A fast path for models with small inputs and outputs, whose calls take less time than the usual
bookkeeping.

A random forest predicts one row in a microsecond. Determining the addresses of the caller's arrays,
and allocating arrays for the results, takes several; copying a few hundred bytes takes less.
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
    """A call for fixed shapes. `inputs` and `outputs` are the arrays that the entry reads and
    writes, by name, and `args` the arguments that point to them."""

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
        """Check whether arrays are small enough for the fast path."""
        return all(array.nbytes <= LARGEST for array in arrays)

    def run(self, entry: Any, context: Any, inputs: Mapping[str, Any]) -> dict[str, Array] | None:
        """Copy the inputs, run the model, and return its outputs as new arrays. Return None if an
        input is not an array of the fixed shape, or the model returns an error code: the general
        path then reports the reason."""
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
