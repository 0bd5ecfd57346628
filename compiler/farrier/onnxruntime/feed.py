"""Check the inputs of a call by ONNX Runtime's rules: dtypes are never converted silently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from farrier.artifact.declaration import Declaration, DeclaredSize, tensor_type
from farrier.artifact.manifest import TensorSpec
from farrier.errors import InputMismatchError, UsageError
from farrier.onnxruntime.errors import refused
from farrier.onnxruntime.values import Array, OrtValue


def check_names(feed: Mapping[str, Any], declaration: Declaration) -> None:
    """Check the names of a call's inputs. Raises ValueError for a missing input, InvalidArgument
    for an unknown name, and NotImplemented for a constant of an artifact, which is compiled
    already."""
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
                f"compile the model with a shape for it (--shape {name}=…): then it is an input",
            )
        if name not in names:
            raise refused(
                InputMismatchError,
                "InvalidArgument",
                f"the model has no input {name!r}",
                f"its inputs: {_listed(names)}",
            )


def wanted(output_names: Sequence[str] | None, declaration: Declaration) -> list[str]:
    """Return the names of the outputs to compute; all outputs for None or an empty list. Raises
    InvalidArgument for an unknown name, TypeError for a value that is not a list of names."""
    declared = [value.name for value in declaration.outputs]
    if isinstance(output_names, str):
        raise refused(UsageError, "TypeError", f"outputs are a list: [{output_names!r}]")
    asked = list(output_names) if output_names else declared
    for name in asked:
        if name not in declared:
            raise refused(
                UsageError,
                "InvalidArgument",
                f"the model has no output {name!r}",
                f"its outputs: {_listed(declared)}",
            )
    return asked


class Taken:
    """The arrays that an input accepts: their dtype, rank and fixed sizes."""

    __slots__ = ("_declared", "_dtype", "_fixed", "_name", "_sizes", "_spec")

    def __init__(self, spec: TensorSpec, declared: Sequence[DeclaredSize] = ()) -> None:
        """Derive the requirements from `spec`. `declared` are the dims declared in the model's
        file; empty if there are none."""
        self._declared = declared
        self._spec = spec
        self._name = spec.name
        self._dtype = spec.element.numpy
        self._sizes = spec.shape[:-1] if spec.is_strings else spec.shape
        is_fixed = all(isinstance(size, int) for size in self._sizes) and not spec.is_strings
        self._fixed = self._sizes if is_fixed else None

    def array(self, value: Any) -> Array:
        """Return the value of an input as an array. The value is an array, an OrtValue, or a list,
        which becomes an array of the input's dtype. Raises InvalidArgument for another dtype, rank
        or size; RuntimeError for a value that is not an array; Fail for None."""
        if (
            isinstance(value, np.ndarray)
            and value.dtype == self._dtype
            and value.shape == self._fixed
        ):
            return value
        array = value.numpy() if isinstance(value, OrtValue) else value
        if array is None:
            raise refused(InputMismatchError, "Fail", f"the input {self._name} is None")
        if isinstance(array, list | tuple):
            array = self._of_list(array)
        if not isinstance(array, np.ndarray):
            raise refused(
                InputMismatchError,
                "RuntimeError",
                f"the input {self._name} is a {type(value).__name__}, and no array",
                "numpy.asarray(…), or an OrtValue",
            )
        return self._checked(array)

    def _of_list(self, items: Sequence[Any]) -> Array:
        try:
            return np.array(items, np.str_ if self._spec.is_strings else self._dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise refused(
                InputMismatchError, "RuntimeError", f"the list for input {self._name}: {error}"
            ) from error

    def _checked(self, array: Array) -> Array:
        if self._spec.is_strings:
            fits = array.dtype.kind in "USOT"
        else:
            fits = array.dtype.newbyteorder("=") == self._dtype
        if not fits:
            raise refused(
                InputMismatchError,
                "InvalidArgument",
                f"the input {self._name} is {array.dtype}, and the model takes "
                f"{tensor_type(self._spec.dtype)}",
                "convert it with .astype()",
            )
        pairs = zip(array.shape, self._sizes, strict=False)
        is_other = any(isinstance(own, int) and size != own for size, own in pairs)
        if array.ndim != len(self._sizes) or is_other:
            raise refused(
                InputMismatchError,
                "InvalidArgument",
                f"the input {self._name} has the shape {list(array.shape)}, and the model takes "
                f"[{', '.join(self._shown())}]",
            )
        # ONNX's dtypes have no byte order: the numbers stay the same.
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def _shown(self) -> list[str]:
        """Return the sizes for messages: an open dim is its name in the model, or `?`."""
        is_declared = len(self._declared) == len(self._sizes)
        names = self._declared if is_declared else (None,) * len(self._sizes)
        pairs = zip(self._sizes, names, strict=True)
        return [str(own if isinstance(own, int) else name or "?") for own, name in pairs]


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "none"
