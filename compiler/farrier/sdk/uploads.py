"""A model on its way to a server: the message and its data files, each hashed, then sent in pieces
where the server lacks it, and last the manifest that makes one model of them.

A file is read once to be hashed, and once more only where its bytes are sent. One that changes
meanwhile is named, and no model is made of it.
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

_MODELS = "/v1/models"  # which the answer of a server without this route names
_PIECE_BYTES = 8 << 20
_HASHED_PER_S = 50e6  # bytes that a slow server hashes where it must read an upload once more


@dataclasses.dataclass(frozen=True, slots=True)
class Sending:
    """How far a file is: `done` of its `size` bytes are hashed or, where it is `sent`, on the
    server."""

    file: str
    done: int
    size: int
    sent: bool


Listener = Callable[[Sending], None]


class Call(Protocol):
    """One request: the JSON of its answer. Raises FarrierError."""

    def __call__(self, method: str, path: str, **request: Any) -> Any: ...


class Uploads:
    """Sends models: by `call`, which asks once, and `repeat`, which asks again where the answer was
    lost."""

    def __init__(
        self, call: Call, repeat: Call, *, patience_s: float, timeout_s: float, listener: Listener
    ) -> None:
        self._call = call
        self._repeat = repeat
        self._patience_s = patience_s
        self._timeout_s = timeout_s
        self._listener = listener

    def send(self, model: Model) -> str:
        """The model's id, once all of it is on the server. Raises as `Client.upload`."""
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
        ):  # what the server had is gone meanwhile: it says so once more, or not
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
        """The id of the model that these files are; what was sent stays while a server restarts."""
        patience = Patience(self._patience_s)
        patience.renew()
        while True:
            try:
                return str(self._repeat("POST", _MODELS, json=manifest)["id"])
            except NotFoundError as error:
                if _MODELS not in error.message:  # it knows the route, and not an upload
                    raise
                raise UsageError(
                    f"the server takes no model of several files: {error.message}",
                    hint="update it, or put all weights in the .onnx file: it may have 2 GiB",
                ) from error
            except ServiceError as error:
                patience.sleep_or_raise(error)

    def _upload(self, source: _Source) -> None:
        """Send what the server lacks of a file, from where an upload stands that broke."""
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
        except InvalidModelError as error:  # other bytes than were hashed
            source.check()
            raise InvalidModelError(f"{source.name}: {error.message}", hint=error.hint) from error

    def _resume(self, source: _Source, upload: Any) -> Any:
        """Where the upload stands; as known where the server cannot be asked."""
        try:
            return self._call("GET", f"/v1/uploads/{upload['id']}")
        except NotFoundError:  # completed, but the answer was lost; or dropped
            return self._begin(source)
        except ServiceError:
            return upload


@dataclasses.dataclass
class _Source:
    """The bytes of a file: `read(at, count)`; `check()` raises where they have changed."""

    name: str
    size: int
    read: Callable[[int, int], bytes]
    check: Callable[[], None]
    sha256: str = ""  # once measured

    @classmethod
    def of(cls, file: MappedFile) -> _Source:
        return cls(str(file.path), file.size, file.read, file.check_unchanged)

    @classmethod
    def in_memory(cls, view: memoryview) -> _Source:
        def read(at: int, count: int) -> bytes:
            return bytes(view[at : at + count])

        return cls("the model", len(view), read, lambda: None)

    def check_not_empty(self) -> None:
        """Raises InvalidModelError for a file that no server takes."""
        if not self.size:
            raise InvalidModelError(
                f"{self.name}: the file is empty, and no server takes such",
                hint="save the model again with all data in one file: onnx.save(model, path, "
                "save_as_external_data=True, all_tensors_to_one_file=True)",
            )

    def measure(self, listener: Listener) -> None:
        """Find the digest, in one pass that holds a piece at a time."""
        state, at = hashlib.sha256(), 0
        while piece := self.read(at, _PIECE_BYTES):
            state.update(piece)
            at += len(piece)
            listener(Sending(self.name, at, self.size, sent=False))
        self.check()
        self.sha256 = state.hexdigest()
