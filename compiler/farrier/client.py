"""The SDK: a Farrier server's REST API as Python calls, and nothing else.

    with farrier.Client() as client:
        job = client.submit("resnet18.onnx", target="host", trials=1000)
        for update in client.watch(job.id):
            print(update)
        client.fetch(job.id, "resnet18.farrier")

Every call has a timeout, every transfer resumes where it broke, and every failure is a
`FarrierError` of the kind that the server raised. httpx is imported when a `Client` is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from farrier import progress
from farrier.client_models import (
    Device,
    Job,
    StateChanged,
    Update,
    error_from_problem,
    from_json,
)
from farrier.errors import (
    ArtifactError,
    CancelledError,
    ConflictError,
    FarrierError,
    ServiceError,
    StorageError,
    UsageError,
)
from farrier.options import CompileOptions

if TYPE_CHECKING:
    import httpx

__all__ = ["Client", "Device", "Job", "StateChanged", "Update"]

DEFAULT_URL = "http://127.0.0.1:8700"
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 60.0
# The server comments on an idle event stream every 15 s, so silence of this long is a dead link.
STREAM_TIMEOUT_S = 45.0
# How long a transfer or a watch outlives a server that is away, counted from its last progress.
PATIENCE_S = 60.0
UPLOAD_CHUNK = 8 << 20
DOWNLOAD_CHUNK = 1 << 20

_T = TypeVar("_T")


class Client:
    """A connection to one server. Thread-safe; close it, or use it as a context manager.

    `url` defaults to `$FARRIER_SERVER`, else a server on this machine. `token` defaults to
    `$FARRIER_TOKEN`, else the token file that `farrier up` leaves in `$FARRIER_HOME` (`~/.farrier`).
    `ca` is a PEM file with the authority of a server whose certificate is self-signed
    (`$FARRIER_CA`). `patience_s` bounds how long transfers and watches wait for a server to return.

    Raises UsageError when httpx is not installed or the URL is not one.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        ca: str | os.PathLike[str] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise UsageError(
                "the client needs httpx", hint='pip install "farrier[compiler]"'
            ) from None
        defaults = _Defaults.read()
        self.url = (url or defaults.url).rstrip("/")
        self._patience_s = patience_s
        self._httpx = httpx
        token = token or defaults.token
        authority = os.fspath(ca) if ca is not None else defaults.ca
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"the server's URL is {self.url!r}", hint="http://HOST:PORT")
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            verify=_verification(authority) if self.url.startswith("https://") else False,
            # A proxy of the environment would see the token; name one in the URL if you mean it.
            trust_env=False,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; a watch in another thread ends with ServiceError."""
        self._http.close()

    # Models.

    def upload(self, model: str | os.PathLike[str] | bytes) -> str:
        """Sends a model (a path, or its bytes) and returns its sha256.

        A model that the server has is not sent again. An upload that breaks goes on where it
        stood. Raises InvalidModelError for a model that is empty, too large or was damaged on the
        way, StorageError when a disk is full or the file cannot be read.
        """
        with _opened(model) as file:
            size, sha256 = _measure(file)
            upload = self._call("POST", "/v1/uploads", json={"size": size, "sha256": sha256})
            where = f"/v1/uploads/{upload['id']}"
            patience = _Patience(self._patience_s)
            offset, complete = upload["offset"], upload["complete"]
            while not complete:
                try:
                    before = offset
                    file.seek(offset)
                    answer = self._send_chunk(where, offset, file.read(UPLOAD_CHUNK))
                    offset, complete = answer["offset"], answer["complete"]
                except (ServiceError, ConflictError) as error:
                    patience.sleep_or_raise(error)
                    offset = self._stand(where, before)
                if offset > before:
                    patience.renew()
        return sha256

    def _send_chunk(self, where: str, offset: int, chunk: bytes) -> Any:
        headers = {"Upload-Offset": str(offset), "Content-Type": "application/octet-stream"}
        return self._call("PATCH", where, content=chunk, headers=headers)

    def _stand(self, where: str, known: int) -> int:
        """How many bytes the server has; `known` while it cannot be asked."""
        try:
            return int(self._response("HEAD", where).headers["Upload-Offset"])
        except ServiceError:
            return known

    # Jobs.

    def submit(
        self,
        model: str | os.PathLike[str] | bytes,
        *,
        target: str = "host",
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        trials: int | None = None,
        budget_s: float | None = None,
        threads: int = 0,
        seed: int = 0,
        verify: bool = True,
        name: str | None = None,
        idempotency_key: str | None = None,
        wait_for_device: bool = False,
    ) -> Job:
        """Uploads the model and queues its compilation; the options are `CompileOptions`.

        The same `idempotency_key` always means the same job: sent again it returns that job, and
        ConflictError when anything else of the request differs. `name` defaults to the file's.
        Raises NoDeviceError when tuning needs a device of a kind that is not connected, unless
        `wait_for_device`; then the job waits for one.
        """
        options = CompileOptions(
            target=target,
            shapes=shapes or {},
            trials=trials,
            budget_s=budget_s,
            threads=threads,
            seed=seed,
            verify=verify,
        )
        body = {
            "model": self.upload(model),
            "name": name or _name_of(model),
            "options": options.to_dict(),
            "wait_for_device": wait_for_device,
        }
        # With a key the request may be sent again after an answer was lost on the way.
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._job(self._retry(lambda: self._call("POST", "/v1/jobs", json=body, headers=headers)))

    def job(self, job_id: str) -> Job:
        """The job as it stands. Raises NotFoundError."""
        return self._job(self._call("GET", _job_path(job_id)))

    def jobs(self, *, state: str | None = None, limit: int | None = None) -> Iterator[Job]:
        """All jobs, the newest first, fetched page by page; only those in `state` where given."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            page_size = 100 if left is None else min(left, 100)
            params = {"limit": str(page_size), "state": state, "cursor": cursor}
            page = self._call(
                "GET", "/v1/jobs", params={k: v for k, v in params.items() if v is not None}
            )
            for raw in page["jobs"]:
                yield self._job(raw)
            left = None if left is None else left - len(page["jobs"])
            cursor = page["next"]
            if cursor is None:
                return

    def cancel(self, job_id: str) -> Job:
        """Asks the job to stop. Raises ConflictError when it had ended already."""
        return self._job(self._call("POST", f"{_job_path(job_id)}/cancel"))

    def watch(self, job_id: str) -> Iterator[Update]:
        """What happens to the job, from its beginning until it ends; the last is a final state.

        A stream that breaks is taken up again at the event after the last one seen. Raises
        ServiceError when the server stays away for `patience_s`.
        """
        last_id: str | None = None
        patience = _Patience(self._patience_s)
        while True:
            try:
                for event_id, kind, data in self._events(job_id, last_id):
                    last_id = event_id
                    patience.renew()
                    update = _update(kind, data)
                    if update is None:
                        continue
                    yield update
                    if isinstance(update, StateChanged) and update.final:
                        return
                # A server that shuts down ends its streams; the next one carries on.
                patience.sleep_or_raise(ServiceError(f"{self.url} ended the event stream"))
            except ServiceError as error:
                patience.sleep_or_raise(error)

    def wait(
        self,
        job_id: str,
        *,
        listener: Callable[[Update], None] | None = None,
    ) -> Job:
        """Watches the job until it ends and returns it. Raises the job's error where it failed,
        CancelledError where it was cancelled."""
        for update in self.watch(job_id):
            if listener is not None:
                listener(update)
        job = self.job(job_id)
        job.raise_for_state()
        if job.state == "cancelled":
            raise CancelledError(f"job {job.id} was cancelled")
        return job

    def fetch(self, job_id: str, path: str | os.PathLike[str]) -> pathlib.Path:
        """Downloads the job's artifact to `path` and returns it.

        The bytes collect beside `path` in a hidden file that the next call continues; only when
        their sha256 is right do they take the name. Raises ConflictError while the job has no
        artifact, StorageError when the disk is full, ArtifactError when the bytes are damaged.
        """
        path = pathlib.Path(path)
        where = f"{_job_path(job_id)}/artifact"
        head = self._retry(lambda: self._response("HEAD", where))
        sha256, size = _identity(head)
        part = path.parent / f".{path.name}.{sha256[:16]}.part"
        patience = _Patience(self._patience_s)
        try:
            while (have := part.stat().st_size if part.exists() else 0) < size:
                try:
                    self._download(where, part, sha256, have)
                except ServiceError as error:
                    if part.exists() and part.stat().st_size > have:
                        patience.renew()
                    patience.sleep_or_raise(error)
            with part.open("rb+") as file:
                damaged = _measure(file)[1] != sha256
                os.fsync(file.fileno())
            if damaged:
                part.unlink()
                raise ArtifactError(
                    f"the artifact of job {job_id} was damaged on the way", hint="fetch it again"
                )
            part.replace(path)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error}") from error
        return path

    def _download(self, where: str, part: pathlib.Path, sha256: str, have: int) -> None:
        """Appends bytes `have`… of the artifact to `part`."""
        headers = {"Range": f"bytes={have}-", "If-Range": f'"{sha256}"'} if have else {}
        with self._stream(where, headers, REQUEST_TIMEOUT_S) as response:
            # 200 in place of 206: the artifact is another one now, so start over.
            mode = "ab" if response.status_code == 206 else "wb"
            with part.open(mode) as file:
                for chunk in response.iter_raw(DOWNLOAD_CHUNK):
                    file.write(chunk)

    # Devices.

    def devices(self) -> list[Device]:
        """The devices that are registered, connected or not."""
        return [from_json(Device, raw) for raw in self._call("GET", "/v1/devices")["devices"]]

    # Transport.

    def _job(self, raw: Any) -> Job:
        job: Job = from_json(Job, raw)
        return job

    def _retry(self, call: Callable[[], _T]) -> _T:
        """Repeats a call that is safe to repeat when its answer was lost on the way."""
        try:
            return call()
        except _LostAnswerError:
            return call()

    def _call(self, method: str, path: str, **request: Any) -> Any:
        """One request; returns the JSON of its answer."""
        response = self._response(method, path, **request)
        try:
            return response.json()
        except ValueError:
            raise self._nonsense(response) from None

    def _response(self, method: str, path: str, **request: Any) -> httpx.Response:
        with self._reaching():
            response = self._http.request(method, path, **request)
        if not response.is_success:
            raise self._error(response)
        return response

    @contextlib.contextmanager
    def _stream(
        self, path: str, headers: Mapping[str, str], read_timeout_s: float
    ) -> Iterator[httpx.Response]:
        """A GET whose body is read piece by piece."""
        timeout = self._httpx.Timeout(
            REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=read_timeout_s
        )
        with (
            self._reaching(),
            self._http.stream("GET", path, headers=dict(headers), timeout=timeout) as response,
        ):
            if not response.is_success:
                response.read()
                raise self._error(response)
            yield response

    def _events(self, job_id: str, last_id: str | None) -> Iterator[tuple[str, str, Any]]:
        """(id, kind, data) of the job's server-sent events after `last_id`."""
        headers = {"Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        with self._stream(f"{_job_path(job_id)}/events", headers, STREAM_TIMEOUT_S) as response:
            fields: dict[str, str] = {}
            for line in response.iter_lines():
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.removeprefix(" ")
                    continue
                if "id" in fields and "data" in fields:
                    yield fields["id"], fields.get("event", "message"), json.loads(fields["data"])
                fields = {}

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turns the failures of the connection into ServiceError."""
        try:
            yield
        except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
            raise ServiceError(
                f"no server answers at {self.url}: {error}",
                hint="`farrier up` starts one; FARRIER_SERVER names another",
            ) from error
        except self._httpx.TransportError as error:
            raise _LostAnswerError(
                f"the connection to {self.url} broke: {error or type(error).__name__}"
            ) from error

    def _error(self, response: httpx.Response) -> FarrierError:
        if response.request.method == "HEAD":
            return self._error_of_head(response)
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or "code" not in problem:
            return self._nonsense(response)
        return error_from_problem(problem)

    def _error_of_head(self, response: httpx.Response) -> FarrierError:
        """A HEAD answer has no body to say why: ask for it."""
        path = response.request.url.raw_path.decode()
        with self._stream_any(path) as full:
            ...
        return self._nonsense(full)

    def _nonsense(self, response: httpx.Response) -> ServiceError:
        return ServiceError(
            f"{self.url} answered {response.status_code} in words that are not Farrier's",
            hint="is FARRIER_SERVER the URL of a Farrier server?",
        )


class _LostAnswerError(ServiceError):
    """The request may or may not have been carried out."""
