"""Upload a model to a server: the main file and its data files are hashed, then sent in pieces if
the server lacks them; the manifest, sent last, combines them to one model.

A file is read once to be hashed, and a second time only if its bytes are sent. If a file changes in
the meantime, the error names the file, and no model is created.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from farrier.errors import ConflictError, InvalidModelError, NotFoundError, ServiceError, UsageError
from farrier.files.mapped import MappedFile
from farrier.frontends.onnx.model.file import Model
from farrier.sdk.retry import Patience

_MODELS = "/v1/models"  # The answer of a server without this route names it.
_PIECE_BYTES = 8 << 20
# The bytes a second that a slow server hashes if it must read an upload once more.
_HASHED_PER_S = 50e6


@dataclasses.dataclass(frozen=True, slots=True)
class Sending:
    """The progress of a file: `done` of its `size` bytes are hashed or, if `sent`, uploaded."""

    file: str
    done: int
    size: int
    sent: bool


Listener = Callable[[Sending], None]


class Call(Protocol):
    """A function that sends one request and returns the JSON of its answer. Raises FarrierError."""

    def __call__(self, method: str, path: str, **request: Any) -> Any: ...


class Uploads:
    """The upload of models. `call` sends a request once; `repeat` also repeats a request whose
    answer was lost."""

    def __init__(
        self, call: Call, repeat: Call, *, patience_s: float, timeout_s: float, listener: Listener
    ) -> None:
        self._call = call
        self._repeat = repeat
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        self._listener = listener

    def send(self, model: Model) -> str:
        """Upload a model and return its id when all of it is on the server. Raises the errors of
        `Client.upload`."""
        model.check_complete()
        own = _Source.in_memory(model.message) if model.file is None else _Source.of(model.file)
        data = {name: _Source.of(file) for name, file in model.external.items()}
        for source in (own, *data.values()):
            source.check_not_empty()
        for source in (own, *data.values()):
            source.measure(self._listener)
        try:
            return self._sent(own, data)
        except (
            ConflictError,
            NotFoundError,
        ):  # The server has lost a file meanwhile; a second attempt sends it, or fails for good.
            return self._sent(own, data)

    def _sent(self, own: _Source, data: Mapping[str, _Source]) -> str:
        for source in (own, *data.values()):
            self._upload(source)
        for source in (own, *data.values()):
            source.check()
        if not data:
            return own.sha256
        files = {name: {"sha256": s.sha256, "size": s.size} for name, s in data.items()}
        return self._create({"message": own.sha256, "files": files})

    def _create(self, manifest: Mapping[str, Any]) -> str:
        """Create a model from uploaded files, as the manifest describes, and return its id. While
        the server restarts, the request is repeated, since the server keeps the files."""
        patience = Patience(self._patience_s)
        patience.renew()
        while True:
            try:
                return str(self._repeat("POST", _MODELS, json=manifest)["id"])
            except NotFoundError as error:
                if _MODELS not in error.message:  # It knows the route, but not the upload.
                    raise
                raise UsageError(
                    f"the server does not accept a model of several files: {error.message}",
                    hint="update the server, or store all weights in the .onnx file, which "
                    "may be up to 2 GiB",
                ) from error
            except ServiceError as error:
                patience.sleep_or_raise(error)

    def _upload(self, source: _Source) -> None:
        """Send the bytes of a file that the server lacks, continuing an interrupted upload."""
        upload = self._begin(source)
        patience = Patience(self._patience_s)
        patience.renew()
        while not upload["complete"]:
            offset = upload["offset"]
            try:
                upload = self._append(source, upload)
            except (ServiceError, ConflictError, NotFoundError) as error:
                patience.sleep_or_raise(error)
                upload = self._resume(source, upload)
            if upload["offset"] > offset:
                patience.renew()
                self._listener(Sending(source.name, upload["offset"], source.size, sent=True))

    def _begin(self, source: _Source) -> Any:
        try:
            return self._repeat(
                "POST", "/v1/uploads", json={"size": source.size, "sha256": source.sha256}
            )
        except InvalidModelError as error:
            raise type(error)(f"{source.name}: {error.message}", hint=error.hint) from error

    def _append(self, source: _Source, upload: Any) -> Any:
        offset = upload["offset"]
        source.check()
        piece = source.read(offset, _PIECE_BYTES)
        is_last = offset + len(piece) == source.size
        try:
            return self._call(
                "PATCH",
                f"/v1/uploads/{upload['id']}",
                content=piece,
                headers={"Upload-Offset": str(offset)},
                timeout_s=self._timeout_s + is_last * source.size / _HASHED_PER_S,
            )
        except InvalidModelError as error:  # The bytes are not the hashed ones.
            source.check()
            raise InvalidModelError(f"{source.name}: {error.message}", hint=error.hint) from error

    def _resume(self, source: _Source, upload: Any) -> Any:
        """Return the state of the upload according to the server; the last known state if the
        server cannot be asked."""
        try:
            return self._call("GET", f"/v1/uploads/{upload['id']}")
        except NotFoundError:  # It was completed, but the answer was lost; or it was dropped.
            return self._begin(source)
        except ServiceError:
            return upload


@dataclasses.dataclass
class _Source:
    """The content of a file to upload: `read(at, count)` returns bytes, and `check()` raises an
    error if the file has changed."""

    name: str
    size: int
    read: Callable[[int, int], bytes]
    check: Callable[[], None]
    sha256: str = ""  # Set by `measure`.

    @classmethod
    def of(cls, file: MappedFile) -> _Source:
        return cls(str(file.path), file.size, file.read, file.check_unchanged)

    @classmethod
    def in_memory(cls, view: memoryview) -> _Source:
        def read(at: int, count: int) -> bytes:
            return bytes(view[at : at + count])

        return cls("the model", len(view), read, lambda: None)

    def check_not_empty(self) -> None:
        """Raise InvalidModelError for an empty file, which no server accepts."""
        if not self.size:
            raise InvalidModelError(
                f"{self.name}: the file is empty",
                hint="save the model again with all data in one file: onnx.save(model, path, "
                "save_as_external_data=True, all_tensors_to_one_file=True)",
            )

    def measure(self, listener: Listener) -> None:
        """Compute the size and digest of the content in one pass, holding one piece in memory at a
        time."""
        state, at = hashlib.sha256(), 0
        while piece := self.read(at, _PIECE_BYTES):
            state.update(piece)
            at += len(piece)
            listener(Sending(self.name, at, self.size, sent=False))
        self.check()
        self.sha256 = state.hexdigest()
