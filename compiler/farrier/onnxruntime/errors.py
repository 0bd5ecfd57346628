"""Errors that programs can catch as ONNX Runtime's and as Farrier's.

A mistake raises the class that ONNX Runtime raises for it: each error here derives from the
FarrierError that describes the mistake, from the class of this module that has the name of ONNX
Runtime's class, and, if the program has imported `onnxruntime`, from ONNX Runtime's class itself.
So

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
    """An execution provider failed. Farrier never raises this error."""


class Fail(Exception):
    """An error that has no specific class: a wrong type in a graph, an input of None, a terminated
    run."""


class InvalidArgument(Exception):
    """An input or output has an unknown name, or a wrong dtype, rank or size; or a file has no
    graph."""


class InvalidGraph(Exception):
    """A graph is not valid, or contains unknown operators."""


class InvalidProtobuf(Exception):
    """A file that is not a protobuf message."""


class NoSuchFile(Exception):
    """The path of a model does not exist."""


class NotImplemented(Exception):
    """An operator, option or type is not supported by Farrier."""


class RuntimeException(Exception):
    """An error in a node, and every other error."""


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
# A size that the values of inputs decide and that a node rejects is one or another of these.
_IN_A_NODE = "RuntimeException,InvalidArgument,Fail"
# Options of the command line, and their names as options of the provider.
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
_GRAPH = 7  # The number of the field `graph` of a ModelProto (onnx.proto).


def refused(base: type[FarrierError], kinds: str, message: str, hint: str = "") -> FarrierError:
    """Return an error for the caller to raise. It is an instance of `base`, and of all classes of
    ONNX Runtime whose names `kinds` lists, separated by commas."""
    plain = next(kind for kind in base.__mro__ if kind.__module__ != __name__)
    return _class(plain, tuple(kinds.split(",")), _STATE in sys.modules)(message, hint=hint)


@functools.cache
def _class(base: type, kinds: tuple[str, ...], has_other: bool) -> type[FarrierError]:
    """Return the class of errors that derives from `base` and from ONNX Runtime's classes `kinds`.
    The same arguments return the same class."""
    other = sys.modules[_STATE] if has_other else None
    bases: list[type] = [base]
    for name in kinds:
        original = getattr(other, name, None)
        bases += [_KINDS[name]] if original is None else [_KINDS[name], original]
    members: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": base.__doc__,
        "__reduce__": lambda error: (refused, (base, ",".join(kinds), error.message, error.hint)),
    }
    created: type[FarrierError] = type(kinds[0], tuple(bases), members)
    return created


@contextmanager
def as_onnxruntime_loads(model: Path | bytes) -> Iterator[None]:
    """A context that converts errors of reading and compiling a model to ONNX Runtime's classes."""
    try:
        yield
    except FarrierError as error:
        raise _told(error, _of_loading(error, model)) from error


@contextmanager
def as_onnxruntime_runs() -> Iterator[None]:
    """A context that converts errors of a call to ONNX Runtime's classes, after the inputs were
    checked."""
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
    """Replace command-line options in a hint by the equivalent provider options: `--shape x=1,3` →
    `provider option shapes x=1,3`."""
    return _COMMAND_LINE.sub(lambda match: f"provider option {_OPTIONS[match[1]]}", hint)


def _of_loading(error: FarrierError, model: Path | bytes) -> str:
    """Return the names of ONNX Runtime's classes for an error of reading or compiling a model."""
    if isinstance(model, Path) and not model.is_file():
        return "InvalidProtobuf" if model.exists() else "NoSuchFile"
    if isinstance(error, UnsupportedOperatorError):
        return "NotImplemented,InvalidGraph"
    if isinstance(error, InvalidModelError):
        return _of_invalid(model)
    return "Fail,RuntimeException"


def _of_invalid(model: Path | bytes) -> str:
    """Return the names of ONNX Runtime's classes for an invalid graph. ONNX Runtime has three
    classes for these, and chooses among them by no documented rule, so the error belongs to all
    three."""
    try:
        message = memoryview(model) if isinstance(model, bytes) else MappedFile(model).view
        numbers = {field.number for field in fields(message, 0, len(message))}
    except MalformedError:
        return "InvalidProtobuf"
    return "InvalidGraph,InvalidArgument,Fail" if _GRAPH in numbers else "InvalidArgument"
