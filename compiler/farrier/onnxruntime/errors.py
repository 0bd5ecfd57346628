"""Errors that are caught as ONNX Runtime's, and as Farrier's.

A mistake raises the class that ONNX Runtime raises for it: each error here has as its bases the
FarrierError that says what is wrong, the class of this module that is named as ONNX Runtime's, and,
where the program has imported `onnxruntime`, ONNX Runtime's own. So

    except InvalidArgument:      # onnxruntime's, or farrier.onnxruntime's
    except InputMismatchError:   # farrier.errors'
    except ValueError:           # where ONNX Runtime raises Python's own

all catch it. `onnxruntime` is never imported for that: a program that names one of its classes has
done so. Messages are Farrier's.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from farrier.errors import (
    FarrierError,
    InputMismatchError,
    InvalidModelError,
    UnsupportedOperatorError,
)
from farrier.files.mapped import MappedFile
from farrier.frontends.onnx.model.wire import MalformedError, fields

_STATE = "onnxruntime.capi.onnxruntime_pybind11_state"


class EPFail(Exception):
    """An execution provider has failed. Farrier never raises it."""


class Fail(Exception):
    """What has no class of its own: a wrong type in a graph, an input of None, a run ended."""


class InvalidArgument(Exception):
    """An input or output of another name, dtype, rank or size; a file without a graph."""


class InvalidGraph(Exception):
    """A graph that is not valid, or has operators that nobody knows."""


class InvalidProtobuf(Exception):
    """A file that is no protobuf message."""


class NoSuchFile(Exception):
    """The path of a model leads to nothing."""


class NotImplemented(Exception):
    """An operator, option or type that Farrier lacks."""


class RuntimeException(Exception):
    """What goes wrong in a node, and everything else."""


_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        EPFail,
        Fail,
        InvalidArgument,
        InvalidGraph,
        InvalidProtobuf,
        NoSuchFile,
        NotImplemented,
        RuntimeException,
        # Python's own, which ONNX Runtime's Python layer raises.
        AttributeError,
        RuntimeError,
        TypeError,
        ValueError,
    )
}
# What a node finds wrong in a size that the values of inputs decide is one or another of these.
_IN_A_NODE = "RuntimeException,InvalidArgument,Fail"
# Options of the command line, and what the provider calls them.
_OPTIONS = {
    "budget": "budget_s",
    "cores": "cores",
    "hot": "hot",
    "max-layer-error": "max_layer_error",
    "no-verify": "verify=False",
    "precision": "precision",
    "shape": "shapes",
    "target": "target",
    "threads": "threads",
    "trials": "trials",
    "typical": "typical",
}
_COMMAND_LINE = re.compile(rf"--({'|'.join(_OPTIONS)})\b")
_GRAPH = 7  # the field of a ModelProto


def refused(base: type[FarrierError], kinds: str, message: str, hint: str = "") -> FarrierError:
    """The error to raise: a `base`, and of each of ONNX Runtime's `kinds`, by name and comma."""
    plain = next(kind for kind in base.__mro__ if kind.__module__ != __name__)
    return _class(plain, tuple(kinds.split(",")), _STATE in sys.modules)(message, hint=hint)


@functools.cache
def _class(base: type, kinds: tuple[str, ...], has_other: bool) -> type[FarrierError]:
    """One class an error for each combination, so that classes compare equal."""
    other = sys.modules[_STATE] if has_other else None
    bases: list[type] = [base]
    for name in kinds:
        found = getattr(other, name, None)
        bases += [_KINDS[name]] if found is None else [_KINDS[name], found]
    members: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": base.__doc__,
        "__reduce__": lambda error: (refused, (base, ",".join(kinds), error.message, error.hint)),
    }
    made: type[FarrierError] = type(kinds[0], tuple(bases), members)
    return made


@contextmanager
def as_onnxruntime_loads(model: Path | bytes) -> Iterator[None]:
    """Errors of reading and compiling a model, in the classes of ONNX Runtime."""
    try:
        yield
    except FarrierError as error:
        raise _told(error, _of_loading(error, model)) from error


@contextmanager
def as_onnxruntime_runs() -> Iterator[None]:
    """Errors of a call whose inputs fit the model, in the classes of ONNX Runtime."""
    try:
        yield
    except InputMismatchError as error:
        raise _told(error, _IN_A_NODE) from error
    except FarrierError as error:
        raise _told(error, "RuntimeException") from error


def _told(error: FarrierError, kinds: str) -> FarrierError:
    if isinstance(error, tuple(_KINDS.values())):
        return error
    return refused(type(error), kinds, error.message, as_provider_option(error.hint))


def as_provider_option(hint: str) -> str:
    """A hint that names options of the command line, with those of the provider, which take the
    same text: `--shape x=1,3` → `provider option shapes x=1,3`."""
    return _COMMAND_LINE.sub(lambda found: f"provider option {_OPTIONS[found[1]]}", hint)


def _of_loading(error: FarrierError, model: Path | bytes) -> str:
    """The classes for an error of a compilation."""
    if isinstance(model, Path) and not model.is_file():
        return "InvalidProtobuf" if model.exists() else "NoSuchFile"
    if isinstance(error, UnsupportedOperatorError):
        return "NotImplemented,InvalidGraph"
    if isinstance(error, InvalidModelError):
        return _of_invalid(model)
    return "Fail,RuntimeException"


def _of_invalid(model: Path | bytes) -> str:
    """ONNX Runtime has three classes for graphs that are not valid, and no rule which is for what:
    such an error is of all three."""
    try:
        message = memoryview(model) if isinstance(model, bytes) else MappedFile(model).view
        numbers = {field.number for field in fields(message, 0, len(message))}
    except MalformedError:
        return "InvalidProtobuf"
    return "InvalidGraph,InvalidArgument,Fail" if _GRAPH in numbers else "InvalidArgument"
