"""What callers give for inputs, held to ONNX Runtime's rules: no dtype is converted in silence."""

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
    for one that the model does not have, and NotImplemented for one that is a constant of an
    artifact, which is compiled already."""
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


class Taken:
    """What the model takes as one input: dtype, rank, and the sizes that are fixed."""

    __slots__ = ("_declared", "_dtype", "_fixed", "_name", "_sizes", "_spec")

    def __init__(self, spec: TensorSpec, declared: Sequence[DeclaredSize] = ()) -> None:
        """`declared` are the dims as the model's file has them; none where it does not say."""
        self._declared = declared
        self._spec = spec
        self._name = spec.name
        self._dtype = spec.element.numpy
        self._sizes = spec.shape[:-1] if spec.is_strings else spec.shape
        is_fixed = all(isinstance(size, int) for size in self._sizes) and not spec.is_strings
        self._fixed = self._sizes if is_fixed else None

    def array(self, value: Any) -> Array:
        """What is given as an array: an array, an OrtValue, or a list, which becomes one of the
        input's dtype. Raises InvalidArgument for another dtype, rank or size; RuntimeError for what
        is no array; Fail for None."""
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
        # A byte order is no dtype of ONNX: the numbers stay what they are.
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def _shown(self) -> list[str]:
        """The sizes for people: what is open by the name that the model gives it, or `?`."""
        is_told = len(self._declared) == len(self._sizes)
        names = self._declared if is_told else (None,) * len(self._sizes)
        pairs = zip(self._sizes, names, strict=True)
        return [str(own if isinstance(own, int) else name or "?") for own, name in pairs]


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "none"
