"""What callers give for inputs, held to ONNX Runtime's rules: no dtype is converted in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from farrier.artifact.manifest import TensorSpec
from farrier.declaration import Declaration, tensor_type
from farrier.errors import InputMismatchError, UsageError
from farrier.onnxruntime.errors import refused
from farrier.onnxruntime.values import Array, OrtValue


def check_names(feed: Mapping[str, Any], declaration: Declaration) -> None:
    """Raises ValueError for inputs that are missing, InvalidArgument for those that the model
    lacks, NotImplemented for those that are constants of the compiled model."""
    names = {value.name for value in declaration.inputs}
    missing = sorted(names - set(feed))
    if missing:
        raise refused(
            InputMismatchError,
            "ValueError",
            f"the inputs {', '.join(missing)} are missing; given: {_listed(feed)}",
        )
    for name in feed:
        if name in declaration.defaults:
            raise refused(
                InputMismatchError,
                "NotImplemented",
                f"the input {name!r} has a value in the model's file, which is compiled in",
                "remove its initializer from the file, and give it in every call",
            )
        if name not in names:
            raise refused(
                InputMismatchError,
                "InvalidArgument",
                f"the model has no input {name!r}",
                f"its inputs: {_listed(names)}",
            )


def wanted(output_names: Sequence[str] | None, declaration: Declaration) -> list[str]:
    """The outputs to compute, all of them for None or none. Raises InvalidArgument for one that the
    model lacks, TypeError for what is no list of names."""
    known = [value.name for value in declaration.outputs]
    if isinstance(output_names, str):
        raise refused(UsageError, "TypeError", f"outputs are a list: [{output_names!r}]")
    asked = list(output_names) if output_names else known
    for name in asked:
        if name not in known:
            raise refused(
                UsageError,
                "InvalidArgument",
                f"the model has no output {name!r}",
                f"its outputs: {_listed(known)}",
            )
    return asked


def array_of(value: Any, spec: TensorSpec) -> Array:
    """An array that the model takes as that input: an array, an OrtValue, or a list, which becomes
    one of the input's dtype. Raises InvalidArgument for another dtype, rank or size; RuntimeError
    for what is no array; Fail for None."""
    array = value.numpy() if isinstance(value, OrtValue) else value
    if array is None:
        raise refused(InputMismatchError, "Fail", f"the input {spec.name} is None")
    if isinstance(array, list | tuple):
        array = _of_list(array, spec)
    if not isinstance(array, np.ndarray):
        raise refused(
            InputMismatchError,
            "RuntimeError",
            f"the input {spec.name} is a {type(value).__name__}, and no array",
            "numpy.asarray(…), or an OrtValue",
        )
    return _checked(array, spec)


def _of_list(items: Sequence[Any], spec: TensorSpec) -> Array:
    try:
        return np.array(items, np.str_ if spec.is_strings else spec.element.numpy)
    except (TypeError, ValueError) as error:
        raise refused(
            InputMismatchError, "RuntimeError", f"the list for input {spec.name}: {error}"
        ) from error


def _checked(array: Array, spec: TensorSpec) -> Array:
    if spec.is_strings:
        fits, shape = array.dtype.kind in "USOT", spec.shape[:-1]
    else:
        fits, shape = array.dtype.newbyteorder("=") == spec.element.numpy, spec.shape
    if not fits:
        raise refused(
            InputMismatchError,
            "InvalidArgument",
            f"the input {spec.name} is {array.dtype}, and the model takes "
            f"{tensor_type(spec.dtype)}",
            "convert it with .astype()",
        )
    pairs = list(zip(array.shape, shape, strict=False))
    if array.ndim != len(shape) or any(isinstance(own, int) and size != own for size, own in pairs):
        raise refused(
            InputMismatchError,
            "InvalidArgument",
            f"the input {spec.name} has the shape {list(array.shape)}, and the model takes "
            f"[{', '.join(map(str, shape))}]",
        )
    # A byte order is no dtype of ONNX: the numbers stay what they are.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "none"
