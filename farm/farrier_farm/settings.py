"""The settings of the server processes. Only this module reads them from the environment.

Each field names its environment variable. `docs/operate/settings.md` describes the variables, and a
test compares that page with the fields.
"""

# ruff: noqa: RUF009 (`_setting` is `dataclasses.field` with metadata)

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from farrier.errors import UsageError
from farrier_device import logs
from farrier_device.alive import SIGNS

GIB = 1 << 30


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 65536:
        raise ValueError
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError
    return number


def _age(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


def _log_form(text: str) -> str:
    if text not in logs.FORMS:
        raise ValueError
    return text


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _setting(variable: str, default: Any, parse: Callable[[str], Any] = str) -> Any:
    return dataclasses.field(default=default, metadata={"variable": variable, "parse": parse})


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the server processes. Sizes are in bytes, and 0 means no limit; times are in
    seconds, and an age of 0 means that data is kept forever; counts are at least 1."""

    home: Path = _setting("FARRIER_HOME", Path("~/.farrier").expanduser(), _path)
    redis_url: str | None = _setting("REDIS_URL", None)
    log: str = _setting("FARRIER_LOG", "text", _log_form)

    server: str = _setting("FARRIER_SERVER", "http://127.0.0.1:8440")
    token: str | None = _setting("FARRIER_TOKEN", None)
    token_file: Path | None = _setting("FARRIER_TOKEN_FILE", None, _path)
    device_token: str | None = _setting("FARRIER_DEVICE_TOKEN", None)
    device_token_file: Path | None = _setting("FARRIER_DEVICE_TOKEN_FILE", None, _path)

    api_host: str = _setting("FARRIER_API_HOST", "127.0.0.1")
    api_port: int = _setting("FARRIER_API_PORT", 8440, _port)
    broker_host: str = _setting("FARRIER_BROKER_HOST", "127.0.0.1")
    broker_port: int = _setting("FARRIER_BROKER_PORT", 8441, _port)
    tls_cert: Path | None = _setting("FARRIER_TLS_CERT", None, _path)
    tls_key: Path | None = _setting("FARRIER_TLS_KEY", None, _path)
    request_s: float = _setting("FARRIER_REQUEST_S", 120.0, _seconds)
    session_s: float = _setting("FARRIER_SESSION_S", 12 * 3600.0, _seconds)
    open_results: bool = _setting("FARRIER_OPEN_RESULTS", False, _flag)
    insecure_private_network: bool = _setting("FARRIER_INSECURE_PRIVATE_NETWORK", False, _flag)

    max_upload_bytes: int = _setting("FARRIER_MAX_UPLOAD_BYTES", 32 * GIB, _number)
    blob_quota_bytes: int = _setting("FARRIER_BLOB_QUOTA_BYTES", 0, _number)
    min_free_bytes: int = _setting("FARRIER_MIN_FREE_BYTES", GIB // 8, _number)
    blob_age_s: float = _setting("FARRIER_BLOB_AGE_S", 7 * 86400.0, _seconds)
    events_kept: int = _setting("FARRIER_EVENTS_KEPT", 2000, _count)
    webhook_queue: int = _setting("FARRIER_WEBHOOK_QUEUE", 10_000, _count)
    webhook_attempts: int = _setting("FARRIER_WEBHOOK_ATTEMPTS", 8, _count)
    webhook_private: bool = _setting("FARRIER_WEBHOOK_PRIVATE", False, _flag)
    audit_kept: int = _setting("FARRIER_AUDIT_KEPT", 200_000, _count)
    audit_age_s: float = _setting("FARRIER_AUDIT_AGE_S", 365 * 86400.0, _age)
    trials_kept: int = _setting("FARRIER_TRIALS_KEPT", 100_000, _count)

    max_queued_jobs: int = _setting("FARRIER_MAX_QUEUED_JOBS", 10_000, _count)
    max_queued_jobs_of_owner: int = _setting("FARRIER_MAX_QUEUED_JOBS_OF_OWNER", 1000, _count)
    streams_of_user: int = _setting("FARRIER_STREAMS_OF_USER", 100, _number)
    transfers_of_user: int = _setting("FARRIER_TRANSFERS_OF_USER", 16, _number)
    requests_of_user: int = _setting("FARRIER_REQUESTS_OF_USER", 200, _number)
    request_rate_of_user: float = _setting("FARRIER_REQUEST_RATE_OF_USER", 200.0, _age)
    upload_bytes_of_user: int = _setting("FARRIER_UPLOAD_BYTES_OF_USER", 128 * GIB, _number)
    device_seconds_of_user: float = _setting("FARRIER_DEVICE_SECONDS_OF_USER", 0.0, _age)
    high_priority: bool = _setting("FARRIER_HIGH_PRIORITY", False, _flag)
    job_age_s: float = _setting("FARRIER_JOB_AGE_S", 90 * 86400.0, _age)
    artifact_bytes: int = _setting("FARRIER_ARTIFACT_BYTES", 0, _number)

    lease_s: float = _setting("FARRIER_LEASE_S", 30.0, _seconds)
    job_crashes: int = _setting("FARRIER_JOB_CRASHES", 2, _count)
    job_cores: int | None = _setting("FARRIER_JOB_CORES", None, _count)
    job_memory_bytes: int = _setting("FARRIER_JOB_MEMORY_BYTES", 16 * GIB, _number)
    job_deadline_s: float = _setting("FARRIER_JOB_DEADLINE_S", 86400.0, _seconds)
    job_silence_s: float = _setting("FARRIER_JOB_SILENCE_S", 1800.0, _seconds)
    step_s: float = _setting("FARRIER_STEP_S", 900.0, _seconds)
    reference_s: float = _setting("FARRIER_REFERENCE_S", 300.0, _seconds)
    inspect_s: float = _setting("FARRIER_INSPECT_S", 300.0, _seconds)
    list_s: float = _setting("FARRIER_LIST_S", 1800.0, _seconds)
    room_wait_s: float = _setting("FARRIER_ROOM_WAIT_S", 600.0, _seconds)
    jobs_at_once: int = _setting("FARRIER_JOBS_AT_ONCE", 1, _count)
    grace_s: float = _setting("FARRIER_GRACE_S", 10.0, _seconds)
    drain_s: float = _setting("FARRIER_DRAIN_S", 5.0, _seconds)

    builders: int = _setting("FARRIER_BUILDERS", 0, _number)
    builds_at_once: int | None = _setting("FARRIER_BUILDS_AT_ONCE", None, _count)
    build_timeout_s: float = _setting("FARRIER_BUILD_TIMEOUT_S", 120.0, _seconds)

    train_s: float = _setting("FARRIER_TRAIN_S", 900.0, _seconds)
    train_records: int = _setting("FARRIER_TRAIN_RECORDS", 256, _count)
    train_timeout_s: float = _setting("FARRIER_TRAIN_TIMEOUT_S", 600.0, _seconds)
    cost_models_kept: int = _setting("FARRIER_COST_MODELS_KEPT", 8, _count)

    device_expiry_s: float = _setting("FARRIER_DEVICE_EXPIRY_S", 30.0, _seconds)
    batch_attempts: int = _setting("FARRIER_BATCH_ATTEMPTS", 3, _count)
    batch_timeout_s: float = _setting("FARRIER_BATCH_TIMEOUT_S", 900.0, _seconds)
    quarantine_faults: int = _setting("FARRIER_QUARANTINE_FAULTS", 5, _count)
    sandbox: str = _setting("FARRIER_SANDBOX", "")
    engines: bool = _setting("FARRIER_ENGINES", False, _flag)
    open_enrolment: bool = _setting("FARRIER_OPEN_ENROLMENT", True, _flag)

    role_silence_s: float = _setting("FARRIER_ROLE_SILENCE_S", 6.0, _seconds)

    @property
    def signs(self) -> Path:
        """The directory of the files by which each process shows that it is alive
        (`farrier_device.alive`)."""
        return self.home / SIGNS

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables. Raises UsageError, which names the
        variable, for a value that cannot be parsed."""
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            variable = field.metadata["variable"]
            text = environ.get(variable, "")
            if not text:
                continue
            try:
                values[field.name] = field.metadata["parse"](text)
            except ValueError:
                default = _text(field.default)
                raise UsageError(
                    f"{variable} is {text!r}", hint=f"the default is {variable}={default}"
                ) from None
        return cls(**values)

    def to_environment(self) -> dict[str, str]:
        """Return all settings as environment variables, so that a child process gets exactly the
        same settings; "" means the default."""
        values = {f.metadata["variable"]: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {variable: _text(value) for variable, value in values.items()}


def variable_of(field: str) -> str:
    """Return the variable that sets a field of `Settings`."""
    variables = {f.name: str(f.metadata["variable"]) for f in dataclasses.fields(Settings)}
    return variables[field]


def variables() -> dict[str, str]:
    """Return the name of each environment variable with the text of its default, in the order of
    the fields."""
    return {f.metadata["variable"]: _text(f.default) for f in dataclasses.fields(Settings)}
