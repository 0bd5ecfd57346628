"""Models of several files. A manifest names the blobs of a model.

farrier:model:<id>   the manifest, canonical JSON (sorted keys, no blanks); the id is its sha256
farrier:models       sorted set of these ids; the score is the time of last use, in ms

A model of a single file needs no manifest: its id is the SHA-256 of that file. The locations of
data files are untrusted text: they are only compared with the locations in the model's ONNX
message, and are never used as paths.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from farrier.errors import ConflictError, InvalidModelError, NotFoundError
from farrier.frontends.onnx.model.file import check_location, quoted
from farrier_device import codec
from farrier_farm.redis.connection import Client
from farrier_farm.storage.blobs import BlobStore
from farrier_farm.storage.references import REFERENCES

MOST_FILES = 4000
LONGEST_LOCATION = 500  # characters
_PREFIX = "farrier:model:"
_NAMED = "farrier:models"
_SHOWN = 5  # The most missing files that an error names.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

# Writes the manifest and its references to blobs together.
_CREATE = """
redis.call('SET', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[3])
for i = 4, #ARGV do
  redis.call('SADD', KEYS[2] .. ARGV[i], KEYS[1])
end
"""

# Removes the manifest and its references, unless a request has named the model meanwhile.
_FORGET = """
local named = redis.call('ZSCORE', KEYS[3], ARGV[2])
if not named or tonumber(named) >= tonumber(ARGV[1]) then return end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[3], ARGV[2])
for i = 3, #ARGV do
  redis.call('SREM', KEYS[2] .. ARGV[i], KEYS[1])
end
"""


@dataclasses.dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a model: its blob, and its size in bytes."""

    sha256: str
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """A model: the blob of its ONNX message, and the data files by their locations in the
    message."""

    message: str
    files: Mapping[str, DataFile]

    @property
    def id(self) -> str:
        """The id of the model: the SHA-256 of its manifest or, for a model of a single file, of
        that file."""
        return hashlib.sha256(self.to_json().encode()).hexdigest() if self.files else self.message

    def blobs(self) -> dict[str, str]:
        """Return the blobs of the model, each with a description for error messages."""
        files = {file.sha256: f"the data file {name!r}" for name, file in self.files.items()}
        return {**files, self.message: "the model's message"}

    def to_json(self) -> str:
        """Return the manifest as canonical JSON: equal manifests have equal texts."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return the manifest in a JSON text. Raises ValueError for any other text."""
        return codec.loads(cls, text, name="model")


class Models:
    """The models of a farm. Every method raises ServiceError if Redis is out of reach."""

    def __init__(self, client: Client, blobs: BlobStore) -> None:
        self._client = client
        self._blobs = blobs
        self._create = client.script(_CREATE)
        self._forget = client.script(_FORGET)

    def create(self, manifest: Manifest, may_use: Callable[[str], bool] = lambda _: True) -> str:
        """Create a model from stored blobs durably, and return its id; a repeated call returns the
        same id. A blob that the user may not use (`may_use`) counts as missing.

        Raises InvalidModelError for invalid locations and for a file whose size differs from the
        manifest; ConflictError, which names some of the files, if blobs are missing; StorageError
        if the disk fails.
        """
        check_files(manifest)
        self._hold(manifest, may_use)
        for location, file in manifest.files.items():
            try:
                size = self._blobs.size(file.sha256)
            except NotFoundError:  # The blob was removed meanwhile.
                raise _missing([f"the data file {location!r} ({file.sha256})"]) from None
            if size != file.size:
                raise InvalidModelError(
                    f"the data file {location!r} has {size} bytes, but the manifest states "
                    f"{file.size}",
                    hint="compute the manifest again: was the file written to in the meantime?",
                )
        if manifest.files:
            words: list[str | int] = [manifest.to_json(), _now_ms(), manifest.id]
            self._create(_keys(manifest.id), [*words, *manifest.blobs()])
        return manifest.id

    def get(self, model: str) -> Manifest:
        """Return the manifest of a model; for a model of one file, a manifest without data files.
        Raises NotFoundError."""
        text = self._client.command("GET", f"{_PREFIX}{model}")
        if text is not None:
            return Manifest.from_json(text)
        if self._blobs.has(model):
            return Manifest(model, {})
        raise unknown(model)

    def hold(self, model: str) -> Manifest:
        """Protect a model and its blobs from removal for a while, so that a job that refers to the
        model can be queued. Return the manifest. Raises NotFoundError if the model or one of its
        blobs is not stored."""
        self._client.command("ZADD", _NAMED, "XX", _now_ms(), model)
        manifest = self.get(model)
        try:
            self._hold(manifest)
        except ConflictError as error:
            raise NotFoundError(f"model {model}: {error.message}", hint=error.hint) from error
        return manifest

    def verified(self, model: str) -> tuple[Path, dict[str, Path]]:
        """Check the SHA-256 of each file of a model, and return the paths of the files: of the ONNX
        message, and of each data file by its location. Raises NotFoundError, StorageError for
        damaged bytes."""
        manifest = self.get(model)
        paths = {sha256: self._blobs.verified(sha256) for sha256 in manifest.blobs()}
        data = {location: paths[file.sha256] for location, file in manifest.files.items()}
        return paths[manifest.message], data

    def forget_unused(
        self, is_needed: Callable[[str], bool], older_than_s: float, most: int
    ) -> None:
        """Remove manifests for which `is_needed` is false and that no request has named for
        `older_than_s` seconds. A call examines at most `most` manifests; a manifest that is needed
        is examined again only after another `older_than_s`."""
        before = _now_ms() - int(older_than_s * 1000)
        old = ["-inf", f"({before}", "BYSCORE"]
        for model in self._client.command("ZRANGE", _NAMED, *old, "LIMIT", 0, most):
            if is_needed(model):
                self._client.command("ZADD", _NAMED, "XX", _now_ms(), model)
                continue
            text = self._client.command("GET", f"{_PREFIX}{model}")
            blobs = () if text is None else Manifest.from_json(text).blobs()
            self._forget(_keys(model), [before, model, *blobs])

    def adopt(self) -> None:
        """Set the time of last use to now for manifests of older versions, which did not store such
        a time."""
        cursor: str | int = 0
        while True:
            cursor, keys = self._client.command(
                "SCAN", cursor, "MATCH", f"{_PREFIX}*", "COUNT", 1000
            )
            for key in keys:
                self._client.command("ZADD", _NAMED, "NX", _now_ms(), key.removeprefix(_PREFIX))
            if int(cursor) == 0:
                return

    def _hold(self, manifest: Manifest, may_use: Callable[[str], bool] = lambda _: True) -> None:
        missing = [
            f"{what} ({sha256})"
            for sha256, what in manifest.blobs().items()
            if not (may_use(sha256) and self._blobs.renew(sha256))
        ]
        if missing:
            raise _missing(missing)


def _keys(model: str) -> list[str]:
    """Return the Redis keys for the scripts that create and remove a manifest."""
    return [f"{_PREFIX}{model}", REFERENCES, _NAMED]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def check_files(manifest: Manifest) -> None:
    """Raise InvalidModelError if the manifest has too many data files, or an invalid location of a
    data file."""
    if len(manifest.files) > MOST_FILES:
        raise InvalidModelError(
            f"the model has {len(manifest.files)} data files; at most {MOST_FILES} are allowed",
            hint="onnx.save(model, path, save_as_external_data=True) writes a single one",
        )
    for location in manifest.files:
        of = f"the model refers to the data file {quoted(location)}"
        if len(location) > LONGEST_LOCATION or _CONTROL.search(location):
            raise InvalidModelError(
                f"{of}, which is longer than {LONGEST_LOCATION} characters or contains a "
                "control character",
                hint="use short plain names for the data files",
            )
        check_location(location, of)


def _missing(blobs: Sequence[str]) -> ConflictError:
    more = f" and {len(blobs) - _SHOWN} more" if len(blobs) > _SHOWN else ""
    return ConflictError(
        f"the server does not have {', '.join(blobs[:_SHOWN])}{more}",
        hint="upload each of them with POST /v1/uploads",
    )


def unknown(model: str) -> NotFoundError:
    """Return the error for a model that does not exist."""
    return NotFoundError(
        f"there is no model {model}",
        hint="upload it with POST /v1/uploads; for a model of several files, then POST /v1/models",
    )
