"""The SDK: Python calls for the REST API of a Farrier server.

    with farrier.Client() as client:
        job = client.submit("resnet18.onnx", target="host", trials=1000)
        for update in client.watch(job.id):
            print(update)
        client.fetch(job.id, "resnet18.farrier")

Every call has a timeout, every transfer resumes after an interruption, and every failure raises a
`FarrierError` of the kind that the server reported. httpx is imported when a `Client` is
constructed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
import ssl
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from farrier import progress
from farrier.artifact.trust import Trust
from farrier.conversion import jax
from farrier.errors import (
    ArtifactError,
    ConflictError,
    FarrierError,
    NotFoundError,
    QueueFullError,
    ServiceError,
    StorageError,
    TooManyRequestsError,
    UsageError,
    error_from_problem,
)
from farrier.files.atomic import check_writable, is_special
from farrier.frontends.onnx.model.file import Model
from farrier.options import MAX_LAYER_ERROR, TYPICAL_ALONE, CompileOptions
from farrier.options.shapes import GivenShape, Hot
from farrier.pytorch.export import exported, is_module
from farrier.records import KnownSchedule, RuleSummary, numbered_lines
from farrier.sdk.explorations import FarmExplorations
from farrier.sdk.models import (
    AuditEntry,
    Choices,
    Curve,
    Device,
    DeviceEvent,
    DeviceInvitation,
    DeviceStanding,
    FarmEvent,
    Job,
    JobVersion,
    LogLine,
    Overview,
    StateChanged,
    Task,
    Trial,
    Update,
    Webhook,
    from_json,
)
from farrier.sdk.records import FarmRecords, Imported
from farrier.sdk.retry import Patience
from farrier.sdk.uploads import Listener as UploadListener
from farrier.sdk.uploads import Sending, Uploads
from farrier.sdk.users import FarmUsers, User
from farrier.targets import to_text
from farrier_device import codec
from farrier_device.baseline.engines import NAMES
from farrier_device.closing import Closing
from farrier_device.describe import describe
from farrier_device.storage.digest import digest_of_file

if TYPE_CHECKING:
    import httpx

__all__ = [
    "AuditEntry",
    "Choices",
    "Client",
    "Curve",
    "Device",
    "DeviceEvent",
    "FarmEvent",
    "Imported",
    "Job",
    "JobVersion",
    "KnownSchedule",
    "LogLine",
    "Overview",
    "RuleSummary",
    "Sending",
    "StateChanged",
    "Task",
    "Trial",
    "Update",
    "User",
]

DEFAULT_URL = "http://127.0.0.1:8440"
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 60.0
# The server comments on an idle event stream every 15 s, so silence of this long is a dead link.
STREAM_TIMEOUT_S = 45.0
# The seconds that a transfer or a watch outlives a server that went away.
PATIENCE_S = 60.0
DOWNLOAD_CHUNK = 1 << 20  # The size of a chunk in bytes.

_log = logging.getLogger(__name__)

GivenModel: TypeAlias = str | os.PathLike[str] | bytes | Model


class Client(Closing):
    """A connection to one server. It is thread-safe; close it, or use it as a context manager.

    `url` defaults to `$FARRIER_SERVER`, else a server on this machine. `token` defaults to
    `$FARRIER_TOKEN`, else the content of the token file: `$FARRIER_TOKEN_FILE`, or the file that
    `farrier up` writes to `$FARRIER_HOME` (`~/.farrier`). `ca` (`$FARRIER_CA`) is a PEM file with
    the authority that signed the server's certificate, unless it is a public one. `patience_s` is
    the time in seconds for which transfers and watches wait for a server that cannot be reached.

    Raises UsageError if httpx is not installed or the URL is not valid.
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
                "the client needs the package httpx", hint='pip install "farrier[compiler]"'
            ) from None
        default_url, default_token, default_ca = _defaults()
        self.url = (url or default_url).rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(
                f"{self.url!r} is not the URL of a server", hint="write it as http://HOST:PORT"
            )
        token = token or default_token
        self._patience_s = patience_s
        self._httpx = httpx
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(REQUEST_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            # Certificates are loaded for https alone: reading the system's store takes 20 ms.
            verify=_trust(ca or default_ca) if self.url.startswith("https://") else False,
            trust_env=False,  # A proxy of the environment must not see a token meant for loopback.
        )

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    # Models

    def upload(self, model: GivenModel, *, listener: UploadListener | None = None) -> str:
        """Upload a model (a path, its bytes, or a `Model`) with the data files to which it refers,
        and return its id: for a model of one file, its sha256. `listener` is called with the
        progress of each file.

        A file that the server has is not sent again; an interrupted upload resumes. Raises
        InvalidModelError for a model that is empty, too large or was damaged in transfer, and for a
        data file that is missing, too short, outside the model's folder, or changes in the
        meantime; StorageError if the server's disk is full, UsageError if a file cannot be read.
        """
        uploads = Uploads(
            self._call,
            self._repeated,
            patience_s=self._patience_s,
            timeout_s=REQUEST_TIMEOUT_S,
            listener=listener or _ignore,
        )
        return uploads.send(_given(model))

    def inspection(
        self, model: GivenModel, *, listener: UploadListener | None = None
    ) -> Mapping[str, Any]:
        """Upload a model as `upload` does, and return the description that a worker generates:
        inputs, outputs, operators, open dims, the graph, and in `problems` the reasons why the
        model does not compile. The server caches the result.

        Raises CompilerError if the model crashes the worker's process, MemoryLimitError, and the
        errors of `upload`.
        """
        return self._prepared(f"/v1/models/{self.upload(model, listener=listener)}", "inspection")

    def _prepared(self, resource: str, what: str) -> Mapping[str, Any]:
        """Return a document that a worker generates about a resource, waiting until it is ready."""
        asked = self._repeated("POST", f"{resource}/{what}")
        if asked["state"] != "succeeded":
            self.wait(asked["job"])
        document: Mapping[str, Any] = self._repeated("GET", f"{resource}/{what}")[what]
        return document

    # Jobs

    def submit(
        self,
        model: GivenModel,
        *,
        target: str = "host",
        shapes: Mapping[str, GivenShape] | None = None,
        hot: Sequence[Hot] = TYPICAL_ALONE,
        typical: Hot | None = None,
        trials: int | None = None,
        budget_s: float | None = None,
        threads: int = 0,
        seed: int = 0,
        max_layer_error: float = MAX_LAYER_ERROR,
        verify: bool = True,
        precision: str = "f32",
        states: Mapping[str, str] | None = None,
        name: str | None = None,
        idempotency_key: str | None = None,
        wait_for_device: bool = False,
        against: Sequence[str] = (),
        now: bool = False,
        private: bool = False,
        priority: str = "normal",
        listener: UploadListener | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
    ) -> Job:
        """Upload the model and queue its compilation; most options are those of `CompileOptions`.

        `target` may also be `class:ID` or `device:NAME` of the farm; "host" is this machine, whose
        description is sent.

        A repeated `idempotency_key` always identifies the same job: a second request returns that
        job, or raises ConflictError if the model, options or name differ. `name` defaults to the
        name of the file. If the queue is full, the request is repeated at the times that the server
        asks for, for at most `patience_s`; then QueueFullError is raised. NoDeviceError is raised
        if no device of the target's kind is connected to tune or verify on, unless
        `wait_for_device`: then the job waits in the queue for one, even if it loses its device
        later. After verification the model is raced against the engines `against` ("onnxruntime",
        "openvino") on a device that has them; the job's report contains the results, or a warning
        if no device has the engine. A job with `now` has its artifact as soon as the untuned model
        is verified, and continues tuning; each better artifact becomes the next version
        (`Job.versions`). UsageError is raised if such a job has neither trials nor a budget.
        Measurements and results of a `private` job are visible to its user alone
        (docs/tuning/records.md). Among the user's own jobs those of a higher `priority` (low,
        normal, high) start first; ForbiddenError is raised for a high one unless the user is an
        operator. `listener` receives the progress of the upload; see `upload`. A PyTorch module is
        exported on this machine, with the example arguments `args` and `kwargs`, and with
        `dynamic_shapes` as `torch.export.export` takes them.
        """
        _check_submission(priority, against)
        if is_module(model):
            model = exported(model, args, kwargs, dynamic_shapes)
        elif jax.is_jax(model):
            model = jax.exported(model, args, kwargs, dynamic_shapes)
        file = _given(model)
        options = CompileOptions(
            target=_of_this_machine(target),
            shapes=shapes or {},
            hot=tuple(hot),
            typical=dict(typical or {}),
            trials=trials,
            budget_s=budget_s,
            threads=threads,
            seed=seed,
            max_layer_error=max_layer_error,
            verify=verify,
            precision=precision,
            states=states or {},
        )
        if now:
            options.require_tuning()
        body = {
            "model": self.upload(file, listener=listener),
            "name": name or file.name,
            "options": options.to_dict(),
            "wait_for_device": wait_for_device,
            **_newer_fields(against, now, private, priority),
        }
        return self._queue(body, idempotency_key or uuid.uuid4().hex)

    def _queue(self, body: Mapping[str, Any], key: str) -> Job:
        """Submit a job, repeating a request that the server rejected for now. With a key the
        request may also be repeated after its answer was lost."""
        headers = {"Idempotency-Key": key}
        patience = Patience(self._patience_s)
        patience.renew()
        while True:
            try:
                return _job(self._repeated("POST", "/v1/jobs", json=body, headers=headers))
            except QueueFullError as error:
                _wait_as_asked(patience, error)

    def job(self, job_id: str) -> Job:
        """Return the current state of a job. Raises NotFoundError."""
        return _job(self._repeated("GET", _job_path(job_id)))

    def jobs(
        self,
        *,
        state: str | None = None,
        owner: str | None = None,
        search: str | None = None,
        sort: str = "created",
        descending: bool = True,
        limit: int | None = None,
    ) -> Iterator[Job]:
        """Iterate over jobs, the newest first, fetched page by page.

        `state`, `owner` (a user) and `search` (text in the name, id or target) select jobs. `sort`
        may be created, finished, name or best; orders other than `created` cover only the newest
        2,000 jobs.
        """
        yielded, after = 0, ""
        while limit is None or yielded < limit:
            params = {"limit": 100 if limit is None else min(limit - yielded, 100), "after": after}
            if state is not None:
                params["state"] = state
            if owner is not None:
                params["owner"] = owner
            if search:
                params["q"] = search
            if (sort, descending) != ("created", True):
                params |= {"sort": sort, "descending": str(descending).lower()}
            page = self._call("GET", "/v1/jobs", params=params)
            yield from map(_job, page["jobs"])
            yielded, after = yielded + len(page["jobs"]), page["next"]
            if not after:
                return

    def cancel(self, job_id: str) -> Job:
        """Cancel the job and return it; cancelling a cancelled job is not an error. Raises
        ConflictError for a job that ended otherwise."""
        return _job(self._repeated("POST", f"{_job_path(job_id)}/cancel"))

    def roll_back(self, job_id: str, to: int | None = None) -> Job:
        """Put an earlier version of the job's artifact into use: version number `to`, or the
        version before the one in use. Later versions are then listed, but no longer put into use.
        Raises NotFoundError if the version does not exist."""
        # The number is determined here, so that a repeated request goes back only once.
        if to is None:
            job = self.job(job_id)
            if job.version is None or job.version == 1:
                raise NotFoundError(
                    f"job {job_id} has no version before the one in use",
                    hint="`farrier versions JOB` and Job.versions list the versions",
                )
            to = job.version - 1
        return _job(self._repeated("POST", f"{_job_path(job_id)}/rollback", json={"to": to}))

    def delete(self, job_id: str) -> None:
        """Remove the job with its events and its artifact; a job that has not ended is cancelled.
        Raises NotFoundError if it does not exist."""
        try:
            self._call("DELETE", _job_path(job_id))
        except _LostAnswerError:
            with contextlib.suppress(NotFoundError):  # The first request was carried out.
                self._call("DELETE", _job_path(job_id))

    def tasks(self, job_id: str) -> Iterator[Task]:
        """Iterate over the job's tasks with their current schedules, in the order of the model.
        Tasks and trials are deleted some time after the job's end."""
        first: int | None = 0
        while first is not None:
            page = self._repeated("GET", f"{_job_path(job_id)}/tasks", params={"first": first})
            yield from (from_json(Task, raw) for raw in page["tasks"])
            first = page["next"]

    def trials(
        self,
        job_id: str,
        *,
        task: str = "",
        status: str = "",
        context: str = "",
        order: str = "oldest",
        after: str = "",
    ) -> Iterator[Trial]:
        """Iterate over the job's measurements: the oldest, the newest or the fastest first, by
        `order`. The other arguments select those of one task, by its key, with one status or
        context, or after the trial with the id `after`."""
        wanted = {"task": task, "status": status, "context": context, "order": order}
        for raw in self._paged(f"{_job_path(job_id)}/trials", "trials", after=after, **wanted):
            yield from_json(Trial, raw)

    def curve(self, job_id: str, points: int = 500) -> Curve:
        """Return the best time of the model, and that of each kernel, as a function of the job's
        trials, with at most `points` points. Raises NotFoundError."""
        raw = self._repeated("GET", f"{_job_path(job_id)}/curve", params={"points": points})
        curve: Curve = from_json(Curve, raw)
        return curve

    def choices(self, job_id: str, task: str) -> Choices:
        """Return the effect of each choice in a kernel's schedule, according to the trials of the
        job. Raises NotFoundError."""
        path = f"{_job_path(job_id)}/tasks/{urllib.parse.quote(task, safe='')}/choices"
        choices: Choices = from_json(Choices, self._repeated("GET", path))
        return choices

    def log(self, job_id: str, after: str = "") -> Iterator[LogLine]:
        """Iterate over the events of the job other than its trials, the oldest first; with `after`,
        over those after the line with that id. Raises NotFoundError."""
        for raw in self._paged(f"{_job_path(job_id)}/log", "lines", after=after):
            yield from_json(LogLine, raw)

    def listing(self, job_id: str) -> Mapping[str, Any]:
        """Return the kernel report of a job that has succeeded: schedules, shares of time,
        positions relative to the roofline, the graph of their calls. A worker generates it once;
        `kernel_texts` returns the code of a kernel. Raises ConflictError for a job without an
        artifact."""
        return self._prepared(_job_path(job_id), "listing")

    def kernel_texts(self, job_id: str, kernel: int) -> Mapping[str, str]:
        """Return the schedule, loops, LLVM text and assembly of a kernel, by its `id` in the kernel
        report. Raises NotFoundError."""
        path = f"{_job_path(job_id)}/listing/kernels/{int(kernel)}"
        texts: Mapping[str, str] = self._repeated("GET", path)
        return texts

    def records(self, job_id: str, *, task: str = "") -> Iterator[Mapping[str, Any]]:
        """Iterate over the job's trials as complete tuning records: the JSON objects of
        `farrier.records`."""
        return self._paged(f"{_job_path(job_id)}/records", "records", task=task)

    def _paged(self, path: str, what: str, *, after: str = "", **query: str) -> Iterator[Any]:
        while True:
            params = {**query, "after": after, "limit": "500"}
            page = self._repeated("GET", path, params=params)
            yield from page[what]
            after = page["next"]
            if not after:
                return

    def watch(self, job_id: str) -> Iterator[Update]:
        """Iterate over the job's events, from its start until it ends; the last event is a final
        state.

        An interrupted stream resumes after the last event received. Raises ServiceError or
        StorageError if the server cannot be reached, or has no room, for `patience_s`.
        """
        last_id = ""
        patience = Patience(self._patience_s)
        while True:
            try:
                path = f"{_job_path(job_id)}/events"
                for event_id, data in self._events(path, last_id, patience):
                    last_id = event_id
                    update = _update(data)
                    if update is not None:
                        yield update
                    if isinstance(update, StateChanged) and update.final:
                        return
                # A server that shuts down ends its streams; the next one continues them.
                raise ServiceError(f"{self.url} ended the events of job {job_id} before the job")
            # The server may report a full disk, for example.
            except (ServiceError, StorageError) as error:
                patience.sleep_or_raise(error)

    def wait(self, job_id: str, *, listener: Callable[[Update], None] | None = None) -> Job:
        """Wait until the job ends and return it; `listener` is called with each update. Raises the
        error of a failed job, and CancelledError for a cancelled job."""
        for update in self.watch(job_id):
            if listener is not None:
                listener(update)
        job = self.job(job_id)
        job.raise_for_state()
        return job

    def fetch(
        self, job_id: str, path: str | os.PathLike[str], *, version: int | None = None
    ) -> pathlib.Path:
        """Download the job's artifact, or one `version` of it, to `path` and return the path.

        The bytes are collected in a hidden file in the same folder, which a repeated call
        continues; the file is renamed to `path` only if its sha256 matches. Raises ConflictError
        while the job has no artifact, NotFoundError if the version does not exist, StorageError if
        the disk is full or `path` cannot hold a file, ArtifactError if the bytes are damaged, or if
        their signer is not among the keys in FARRIER_TRUST. After an error nothing is written to
        `path`.
        """
        trusted = Trust.of_environment()
        path = pathlib.Path(path)
        place = pathlib.Path(
            os.path.realpath(path)
        )  # If the path is a link, the file to which it points is replaced.
        check_writable(path)
        if is_special(place):
            raise StorageError(
                f"cannot write {path}: it is not a regular file", hint="choose another name"
            )
        where, artifact = self._artifact(job_id, version)
        part = place.parent / f".{place.name}.{artifact[:16]}.part"
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            self._download(where, part)
            with part.open("rb+") as file:
                damaged = digest_of_file(file) != artifact
                os.fsync(file.fileno())
            if damaged:
                part.unlink()
                raise ArtifactError(
                    f"the artifact of job {job_id} was damaged in transfer", hint="fetch it again"
                )
            if trusted is not None:
                _check_signature(job_id, part, trusted)
            part.replace(place)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
        return path

    def _artifact(self, job_id: str, version: int | None) -> tuple[str, str]:
        """Return the URL path of an artifact and its sha256. The path for a job with versions
        contains the number of the version, since the job may get another version in the meantime.
        """
        job = self.job(job_id)
        artifacts = {
            version_record.number: version_record.artifact for version_record in job.versions
        }
        number = job.version if version is None else version
        where = f"{_job_path(job_id)}/artifact"
        if number is not None:
            if number not in artifacts:
                raise NotFoundError(
                    f"job {job_id} has no version {number}",
                    hint=f"`farrier versions {job_id}` lists its versions"
                    if artifacts
                    else "only jobs submitted with --now have versions",
                )
            return f"{where}?version={number}", artifacts[number]
        if job.artifact is None:
            raise ConflictError(
                f"job {job_id} is {job.state}: it has no artifact",
                hint="" if job.final else f"wait for its end with `farrier watch {job_id}`",
            )
        return where, job.artifact

    def _download(self, where: str, part: pathlib.Path) -> None:
        """Append the bytes that the partial file `part` lacks."""
        patience = Patience(self._patience_s)
        patience.renew()
        while True:
            have = part.stat().st_size if part.exists() else 0
            try:
                self._download_from(where, part, have)
                return
            except ServiceError as error:
                if part.exists() and part.stat().st_size > have:
                    patience.renew()
                patience.sleep_or_raise(error)

    def _download_from(self, where: str, part: pathlib.Path, have: int) -> None:
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with self._stream(where, headers, REQUEST_TIMEOUT_S) as response:
            if response.status_code == 416:  # The partial file is complete already.
                return
            with part.open("ab" if response.status_code == 206 else "wb") as file:
                for chunk in response.iter_raw(DOWNLOAD_CHUNK):
                    file.write(chunk)

    # The farm

    def overview(self) -> Overview:
        """Return an overview of the farm that is at most a second old."""
        overview: Overview = from_json(Overview, self._repeated("GET", "/v1/overview"))
        return overview

    def events(self, last_id: str = "") -> Iterator[FarmEvent]:
        """Iterate over the farm's events, without end: from now on, or after the event with the id
        `last_id` ("0-0": all stored events). Raises ServiceError if the server cannot be reached
        for `patience_s`."""
        patience = Patience(self._patience_s)
        while True:
            try:
                for event_id, data in self._events("/v1/events", last_id, patience):
                    last_id = event_id
                    yield FarmEvent(event_id, str(data["kind"]), data)
                raise ServiceError(f"{self.url} ended the events of the farm")
            except ServiceError as error:
                patience.sleep_or_raise(error)

    def audit(
        self,
        *,
        user: str = "",
        action: str = "",
        object: str = "",
        outcome: str = "",
        since: float = 0.0,
    ) -> Iterator[AuditEntry]:
        """Iterate over the farm's audit log, the newest entry first. Only for operators.

        The arguments select entries: of one user, action (`jobs.cancel`, or `jobs` for all actions
        on jobs), object (its id) or outcome (`ok`), or since a time in Unix seconds.
        """
        wanted = {"user": user, "action": action, "object": object, "outcome": outcome}
        for raw in self._paged("/v1/audit", "entries", since=str(since), **wanted):
            yield from_json(AuditEntry, raw)

    def webhooks(self) -> list[Webhook]:
        """Return the user's webhooks, the oldest first."""
        hooks = self._repeated("GET", "/v1/webhooks")["webhooks"]
        return [from_json(Webhook, raw) for raw in hooks]

    def add_webhook(self, url: str, events: Sequence[str] = ()) -> Webhook:
        """Register a URL to receive events, by default the ends of the user's jobs.

        Only the returned object contains the secret that signs the requests. Raises UsageError for
        a URL that the server does not accept, ForbiddenError for events that are reserved for
        operators.
        """
        body = {"url": url, **({"events": list(events)} if events else {})}
        hook: Webhook = from_json(Webhook, self._call("POST", "/v1/webhooks", json=body))
        return hook

    def remove_webhook(self, webhook_id: str) -> None:
        """Remove a webhook. Raises NotFoundError."""
        self._call("DELETE", _webhook_path(webhook_id))

    def ping_webhook(self, webhook_id: str) -> None:
        """Send the event `ping` to a webhook. Raises NotFoundError."""
        self._call("POST", f"{_webhook_path(webhook_id)}/ping")

    def check_ready(self) -> None:
        """Raise ServiceError if the server or its Redis cannot be reached, StorageError if its disk
        is full."""
        self._call("GET", "/readyz")

    def version(self) -> str:
        """Return the version of Farrier that the server runs."""
        return str(self._repeated("GET", "/openapi.json")["info"]["version"])

    # Tuning records

    # `private` ones are those of the user's private jobs, which are not among all others.

    def show_records(self, *, private: bool = False) -> list[RuleSummary]:
        """Return the number of records, by device class and rule."""
        return self._records(private).show()

    def fastest_schedules(
        self, task: str, limit: int = 10, *, private: bool = False
    ) -> list[KnownSchedule]:
        """Return the fastest schedules of a task, by its key, on each device class: up to `limit`
        schedules measured in a model, and up to `limit` measured alone; the two kinds of times are
        not comparable."""
        return self._records(private).fastest(task, limit)

    def export_records(
        self,
        *,
        device_class: str | None = None,
        task: str | None = None,
        since: float | None = None,
        private: bool = False,
    ) -> Iterator[str]:
        """Iterate over records as JSON lines, without line ends, in the order in which they were
        added.

        The arguments select records of one device class, of one task, or made since a time in Unix
        seconds. Records are fetched page by page; raises ServiceError if the server cannot be
        reached for `patience_s`.
        """
        chosen = {"device_class": device_class, "task": task, "since": since}
        return self._records(private).export(chosen)

    def import_records(
        self,
        path: str | os.PathLike[str],
        *,
        private: bool = False,
        listener: Callable[[Imported], None] | None = None,
    ) -> Imported:
        """Add the records in a file of JSON lines, which is sent in batches; `listener` is called
        with the counts after each batch. A record that the farm has is not added twice, so a file
        may be imported again.

        Raises UsageError that names a line which is not a record: the records before that line are
        added, and none after it. Raises StorageError if the file cannot be read.
        """
        imported = Imported(0, 0)
        for imported in self._records(private).load(numbered_lines(pathlib.Path(path))):
            if listener is not None:
                listener(imported)
        return imported

    def prune_records(
        self,
        *,
        device_class: str | None = None,
        before: float | None = None,
        failed: bool = False,
        other_versions: bool = False,
        keep: int | None = None,
        dry_run: bool = False,
        private: bool = False,
        listener: Callable[[int], None] | None = None,
    ) -> int:
        """Permanently remove records, and return their number.

        The conditions select records of a device class, records made `before` a time in Unix
        seconds, `failed` ones, and records of rules that this installation of Farrier does not
        have. A record must meet all conditions that are set. The `keep` fastest schedules of each
        task, rule and device class stay. With `dry_run` the records are only counted.

        `listener` is called with the number so far. After an interruption, a repeated call
        continues. Raises UsageError without any condition.
        """
        rules = None
        if other_versions:
            from farrier.model_tuning.known_rules import known_rules

            rules = [{"name": rule.name, "version": rule.version} for rule in known_rules()]
        request = {
            "device_class": device_class,
            "before": before,
            "failed": failed,
            "rules": rules,
            "keep": keep,
            "dry_run": dry_run,
        }
        pruned = 0
        for pruned in self._records(private).prune(request):
            if listener is not None:
                listener(pruned)
        return pruned

    def drop_records(
        self,
        device: str,
        *,
        since: float | None = None,
        listener: Callable[[int], None] | None = None,
    ) -> int:
        """Permanently remove the measurements of a device, of all users, private records included,
        and return the number of records; with `since`, only those made from that time on, in Unix
        seconds.

        `listener` is called with the number so far. After an interruption, a repeated call
        continues.
        """
        dropped = 0
        for dropped in self._records(False).drop(device, since):
            if listener is not None:
                listener(dropped)
        return dropped

    def _records(self, private: bool) -> FarmRecords:
        return FarmRecords(self._call, patience_s=self._patience_s, private=private)

    # The cost model that tuning records train

    def cost_model(self) -> Mapping[str, Any]:
        """Return, as the JSON of the REST API, the cost model's versions, the version that new jobs
        use, and the result of the last training."""
        versions: Mapping[str, Any] = self._repeated("GET", "/v1/cost-model")
        return versions

    def roll_back_cost_model(self, to: int | None = None) -> Mapping[str, Any]:
        """Use another version of the cost model from the next job on: version number `to`, 0 for
        the shipped one, or by default the version before. Raises NotFoundError, ConflictError."""
        params = {} if to is None else {"to": to}
        versions: Mapping[str, Any] = self._call("POST", "/v1/cost-model/rollback", params=params)
        return versions

    # Devices

    def devices(self, *, tag: str = "") -> list[Device]:
        """Return the registered devices, connected or not, or only those with a tag."""
        registered: list[Device] = []
        after = ""
        while True:
            params = {"after": after, **({"tag": tag} if tag else {})}
            page = self._repeated("GET", "/v1/devices", params=params)
            registered += (from_json(Device, raw) for raw in page["devices"])
            after = page.get("next", "")  # An older server has one page.
            if not after:
                return registered

    def device_history(self, device_id: str) -> Iterator[DeviceEvent]:
        """Iterate over the events of a device, the newest first. Raises NotFoundError."""
        path = f"{_path_of(device_id)}/history"
        after = ""
        while True:
            page = self._repeated("GET", path, params={"after": after})
            yield from (from_json(DeviceEvent, raw) for raw in page["history"])
            after = page["next"]
            if not after:
                return

    def device(self, device_id: str) -> Device:
        """Return the current state of a device. Raises NotFoundError."""
        device: Device = from_json(Device, self._repeated("GET", _path_of(device_id)))
        return device

    def add_device(
        self, name: str, *, expires_s: float = 3600.0, again: bool = False
    ) -> DeviceInvitation:
        """Create a token with which a device can enrol once under this name; with `again` it
        replaces an enrolled device of that name. Raises UsageError, ConflictError."""
        body = {"name": name, "expires_s": expires_s, "again": again}
        invitation: DeviceInvitation = from_json(
            DeviceInvitation, self._call("POST", "/v1/devices", json=body)
        )
        return invitation

    def remove_device(self, device_id: str) -> None:
        """Forget a device that is not connected, or was revoked. Raises NotFoundError,
        ConflictError."""
        self._call("DELETE", _path_of(device_id))

    def set_standing(
        self, device_id: str, verb: Literal["revoke", "drain", "pause", "resume"]
    ) -> DeviceStanding:
        """Change a device's standing: `revoke` rejects it, `drain` and `pause` send it no new
        batches, and `resume` sends it work again. Raises NotFoundError, ConflictError."""
        answer = self._repeated("POST", f"{_path_of(device_id)}/{verb}")
        standing: DeviceStanding = from_json(DeviceStanding, answer)
        return standing

    def tag_device(self, device_id: str, tags: Sequence[str]) -> DeviceStanding:
        """Replace all tags of a device. Raises NotFoundError, UsageError."""
        answer = self._repeated("PUT", f"{_path_of(device_id)}/tags", json={"tags": [*tags]})
        standing: DeviceStanding = from_json(DeviceStanding, answer)
        return standing

    def release(self, device_id: str) -> Device:
        """End a device's quarantine. Raises NotFoundError."""
        path = f"{_path_of(device_id)}/release"
        device: Device = from_json(Device, self._repeated("POST", path))
        return device

    def trust(self, device_id: str, *, trusted: bool = True) -> Device:
        """Mark a device as trusted, or as no longer trusted. Raises NotFoundError."""
        verb = "trust" if trusted else "untrust"
        path = f"{_path_of(device_id)}/{verb}"
        device: Device = from_json(Device, self._repeated("POST", path))
        return device

    # Explorations

    @property
    def explorations(self) -> FarmExplorations:
        """The interface to the explorations of the farm."""
        return FarmExplorations(self._call, self._repeated)

    # Users

    @property
    def users(self) -> FarmUsers:
        """The interface to the users of the farm."""
        return FarmUsers(self._call)

    # Transport

    def _repeated(self, method: str, path: str, **request: Any) -> Any:
        """Send a request that is safe to repeat, and send it a second time if its answer was
        lost."""
        try:
            return self._call(method, path, **request)
        except _LostAnswerError:
            return self._call(method, path, **request)

    def _call(
        self, method: str, path: str, *, timeout_s: float = REQUEST_TIMEOUT_S, **request: Any
    ) -> Any:
        """Send one request; return the JSON of its answer.

        If the request exceeds a limit of the user, it is sent again when the server asks for it,
        for at most `patience_s`; a rejected request has changed nothing.
        """
        patience = Patience(self._patience_s)
        patience.renew()
        while True:
            try:
                return self._called(method, path, timeout_s, request)
            except TooManyRequestsError as error:
                _wait_as_asked(patience, error)

    def _called(self, method: str, path: str, timeout_s: float, request: Mapping[str, Any]) -> Any:
        timeout = self._httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        with self._reaching():
            response = self._http.request(method, path, timeout=timeout, **request)
        if not response.is_success:
            raise self._error(response)
        if response.status_code == 204:  # The answer has no body.
            return None
        try:
            return response.json()
        except ValueError:
            raise self._nonsense(response) from None

    @contextlib.contextmanager
    def _stream(
        self, path: str, headers: Mapping[str, str], silence_s: float
    ) -> Iterator[httpx.Response]:
        """Send a GET request whose body is read piece by piece, with at most `silence_s` seconds
        between the pieces. A rejected request is repeated as in `_call`."""
        patience = Patience(self._patience_s)
        patience.renew()
        with contextlib.ExitStack() as until_read, self._reaching():
            while True:
                try:
                    response = self._opened(until_read, path, headers, silence_s)
                    break
                except TooManyRequestsError as error:
                    _wait_as_asked(patience, error)
            yield response

    def _opened(
        self,
        until_read: contextlib.ExitStack,
        path: str,
        headers: Mapping[str, str],
        silence_s: float,
    ) -> httpx.Response:
        timeout = self._httpx.Timeout(silence_s, connect=CONNECT_TIMEOUT_S)
        streamed = self._http.stream("GET", path, headers=dict(headers), timeout=timeout)
        response = until_read.enter_context(streamed)
        if not response.is_success and response.status_code != 416:
            response.read()
            raise self._error(response)
        return response

    def _events(self, path: str, last_id: str, patience: Patience) -> Iterator[tuple[str, Any]]:
        """Yield (id, data) for each of a stream's server-sent events after `last_id`."""
        headers = {"Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        with self._stream(path, headers, STREAM_TIMEOUT_S) as response:
            fields: dict[str, str] = {}
            for line in response.iter_lines():
                patience.renew()  # A comment is a sign of life, too.
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.removeprefix(" ")
                elif "id" in fields and "data" in fields:
                    yield fields["id"], json.loads(fields["data"])
                    fields = {}

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Convert connection failures within the `with` block to ServiceError."""
        try:
            yield
        except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
            raise ServiceError(
                f"no server answers at {self.url}: {error}",
                hint="start one with `farrier up`, or set FARRIER_SERVER to the URL of another",
            ) from error
        except self._httpx.RequestError as error:
            raise _LostAnswerError(
                f"the connection to {self.url} broke: {str(error) or type(error).__name__}"
            ) from error

    def _error(self, response: httpx.Response) -> FarrierError:
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or "code" not in problem:
            return self._nonsense(response)
        error = error_from_problem(problem)
        if isinstance(error, QueueFullError | TooManyRequestsError):
            asked = response.headers.get("Retry-After", "")
            error.retry_after_s = float(asked) if asked.isdecimal() else error.retry_after_s
        return error

    def _nonsense(self, response: httpx.Response) -> ServiceError:
        return ServiceError(
            f"{self.url} answered with status {response.status_code}, but not as a Farrier "
            "server does",
            hint="is FARRIER_SERVER the URL of a Farrier server?",
        )


class _LostAnswerError(ServiceError):
    """An error: the connection broke, so the request may or may not have been executed."""


def _defaults() -> tuple[str, str | None, str | None]:
    """Return (URL, token, certificate authority) from the environment variables that the SDK reads.

    Raises StorageError if the token file cannot be read.
    """
    environ = os.environ
    token = environ.get("FARRIER_TOKEN")
    if not token:
        home = pathlib.Path(environ.get("FARRIER_HOME") or "~/.farrier").expanduser()
        path = pathlib.Path(environ.get("FARRIER_TOKEN_FILE") or home / "user.token")
        try:
            token = path.expanduser().read_text().strip() or None
        except FileNotFoundError:
            token = None  # The server will report that it needs one.
        except OSError as error:
            raise StorageError(f"cannot read the token file {path}: {error.strerror}") from error
    return environ.get("FARRIER_SERVER") or DEFAULT_URL, token, environ.get("FARRIER_CA") or None


def _path_of(device_id: str) -> str:
    return f"/v1/devices/{urllib.parse.quote(device_id, safe='')}"


def _trust(authority: str | os.PathLike[str] | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise UsageError(
            f"cannot read the certificate authority {authority}: {error}",
            hint="set FARRIER_CA to a PEM file",
        ) from error


def _check_signature(job_id: str, part: pathlib.Path, trusted: Trust) -> None:
    """Remove a downloaded artifact whose signature is not that of a trusted key, and raise
    ArtifactError."""
    from farrier.runtime.artifact import check_whole  # This module imports numpy.

    try:
        check_whole(part, trusted, f"the artifact of job {job_id}")
    except ArtifactError:
        part.unlink()
        raise


def _given(model: GivenModel) -> Model:
    if isinstance(model, Model):
        return model
    return Model.of_bytes(model) if isinstance(model, bytes) else Model.of_path(model)


def _wait_as_asked(patience: Patience, error: QueueFullError | TooManyRequestsError) -> None:
    """Log and wait for the time that the server requests. Raises the error if that exceeds the
    remaining patience."""
    patience.sleep_or_raise(
        error, error.retry_after_s, lambda: _log.warning("waiting for the server: %s", error)
    )


def _ignore(_sending: Sending) -> None:
    """Ignore the progress of an upload."""


def _job_path(job_id: str) -> str:
    """Return the URL path of a job's resource; the id is quoted, so that it cannot refer to another
    resource."""
    return f"/v1/jobs/{urllib.parse.quote(job_id, safe='')}"


def _webhook_path(webhook_id: str) -> str:
    return f"/v1/webhooks/{urllib.parse.quote(webhook_id, safe='')}"


def _job(raw: Mapping[str, Any]) -> Job:
    job: Job = from_json(Job, raw)
    return job


def _update(data: Mapping[str, Any]) -> Update | None:
    """Return the update that a JSON object represents; None for a kind of event that only a newer
    SDK knows."""
    try:
        if data.get("kind") == "state":
            return codec.decode(StateChanged, data)
        return progress.from_dict(dict(data))
    except ValueError:
        return None


def _of_this_machine(target: str) -> str:
    """Return the target, with the description of this machine in place of `host`."""
    if target == "host" or target.startswith("host+"):
        return to_text(describe()) + target.removeprefix("host")
    return target


def _check_submission(priority: str, against: Sequence[str]) -> None:
    if priority not in ("low", "normal", "high"):
        raise UsageError(f"unknown priority {priority!r}", hint="use low, normal or high")
    if unknown := [engine for engine in against if engine not in NAMES]:
        raise UsageError(
            f"unknown engine {unknown[0]!r}", hint=f"the engines are {', '.join(NAMES)}"
        )


def _newer_fields(
    against: Sequence[str], now: bool, private: bool, priority: str
) -> dict[str, Any]:
    """Return the fields of a request that differ from their defaults, because an older server
    rejects a field that it does not know."""
    fields = {"against": list(against), "now": now, "private": private}
    chosen = {name: value for name, value in fields.items() if value}
    return chosen if priority == "normal" else {**chosen, "priority": priority}
