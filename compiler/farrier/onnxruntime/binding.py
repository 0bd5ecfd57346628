"""`IOBinding`: inputs and outputs in memory that the caller reuses from call to call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.errors import FarrierError, InputMismatchError, UsageError
from farrier.onnxruntime.errors import refused
from farrier.onnxruntime.values import (
    Array,
    OrtValue,
    array_at,
    check_device,
    check_writable,
    element_dtype,
)

if TYPE_CHECKING:
    from farrier.onnxruntime.session import InferenceSession


class IOBinding:
    """The inputs and outputs of a session's `run_with_iobinding`.

    An input is read from its memory at each run, so changes between runs count. An output with
    memory is written there at each run, after all inputs have been read, so both may overlap; if
    its shape or dtype differs from the output's, nothing is written. An output without memory is a
    new array at each run, and arrays of earlier runs keep their values. A caller that binds an
    address keeps its memory alive; the binding keeps arrays and OrtValues alive.

    Mistakes raise RuntimeError, as ONNX Runtime's binding does. A binding is for one thread.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: list[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Bind an array to the input `name`."""
        if not isinstance(arr_on_cpu, np.ndarray):
            raise _refused(f"the input {name} is a {type(arr_on_cpu).__name__}, and no array")
        self._bind_input(name, arr_on_cpu)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind a contiguous array by its address; `element_type` is numpy's, or ONNX's number."""
        check_device(device_type)
        self._bind_input(name, array_at(buffer_ptr, element_dtype(element_type), shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._bind_input(name, _tensor(name, ortvalue))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output: to a new array, or to the memory at an address. Raises ValueError for an
        address without element type and shape."""
        check_device(device_type)
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise refused(
                UsageError, "ValueError", "memory for an output needs element_type and shape"
            )
        self._outputs[name] = array_at(buffer_ptr, element_dtype(element_type), shape)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._outputs[name] = _tensor(name, ortvalue)

    def synchronize_inputs(self) -> None:
        """Do nothing: the memory of the CPU needs no copies."""

    def synchronize_outputs(self) -> None:
        """Do nothing: the memory of the CPU needs no copies."""

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run, in the order in which they were bound."""
        return [OrtValue(value) for value in self._results]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the outputs of the last run as new arrays; a sequence is a list of arrays."""
        return [_copy(value) for value in self._results]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._results = []

    def _bind_input(self, name: str, array: Array) -> None:
        if name not in self._session._inputs:
            raise _refused(f"the model has no input {name!r}")
        self._inputs[name] = array

    def _run(self, run_options: Any) -> None:
        session = self._session
        missing = sorted(set(session._inputs) - set(self._inputs))
        if not self._outputs:
            raise _refused("no output is bound")
        if missing:
            raise _refused(f"the inputs {', '.join(missing)} are not bound")
        unknown = sorted(set(self._outputs) - set(session._outputs))
        if unknown:
            raise _refused(f"the model has no output {', '.join(unknown)}")
        into: dict[str, Array] = {}
        for name, array in self._outputs.items():
            if array is None:
                continue
            declared = session._outputs[name]
            if declared.members != (name,) or declared.type == "tensor(string)":
                raise _refused(f"the output {name}, {declared.type}, is not a tensor of numbers")
            check_writable(array, f"the output {name}")
            into[name] = array
        try:
            self._results = session._computed(list(self._outputs), self._inputs, into, run_options)
        except FarrierError as error:
            raise refused(type(error), "RuntimeError", error.message, error.hint) from error


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return None if value is None else value.copy()


def _tensor(name: str, value: Any) -> Array:
    if not isinstance(value, OrtValue):
        raise refused(
            InputMismatchError,
            "RuntimeError,AttributeError",
            f"{name} is a {type(value).__name__}, and no OrtValue",
            "OrtValue.ortvalue_from_numpy(array)",
        )
    return value.numpy()


def _refused(message: str) -> FarrierError:
    return refused(InputMismatchError, "RuntimeError", message)
