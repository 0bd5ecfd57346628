"""Return the artifact of a model from the cache, or compile it and add it to the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from farrier.cache.files import FileIndex, content_of
from farrier.cache.key import entry_key
from farrier.cache.settings import CacheSettings
from farrier.cache.store import Store
from farrier.errors import ArtifactError, StorageError
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.runtime.artifact import Artifact
from farrier.targets.registry import backend_for

# Makes the artifact of a model, and passes warnings for the user to the function.
Compile: TypeAlias = Callable[[Model, Callable[[str], None]], Artifact]


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A request for an artifact: a model by path or as bytes, the options of the compilation, and
    the fixed sizes of dims by name."""

    model: Path | bytes
    options: CompileOptions
    sizes: Mapping[str, int]

    def open(self) -> Model:
        """Open and return the model. Raises UsageError, InvalidModelError."""
        if isinstance(self.model, bytes):
            return Model.of_bytes(self.model)
        return Model.of_path(self.model)


class Cache:
    """A cache of artifacts on disk. A fault of the disk or of an entry only leads to a compilation
    and a warning."""

    def __init__(self, settings: CacheSettings, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._store: Store | None = None
        if settings.folder is not None:
            store = Store(settings.folder, settings.limit_bytes)
            try:
                store.open()
            except StorageError as error:
                warn(f"compiled models are not kept: {error}")
            else:
                self._store = store
                self._index = FileIndex(settings.folder / "files")

    def artifact(self, request: Request, compile: Compile) -> Artifact:
        """Return the artifact of the request's model, under the name of this model: from disk if it
        is cached, else from `compile`.

        Warnings of the original compilation are repeated. Raises the errors of `Request.open` and
        `compile`.
        """
        if self._store is None:
            return compile(request.open(), self._warn)
        content = None if isinstance(request.model, bytes) else self._index.known(request.model)
        if content is not None:
            key = entry_key(content, request.options, request.sizes)
            artifact = self._cached(self._store, key, request)
            if artifact is not None:
                return artifact
        model = request.open()
        key = entry_key(self._content(request, model), request.options, request.sizes)
        with self._store.making(key, self._warn):
            artifact = self._cached(self._store, key, request)
            return artifact or self._made(self._store, key, model, request, compile)

    def _content(self, request: Request, model: Model) -> str:
        if isinstance(request.model, bytes):
            return content_of(model)
        try:
            return self._index.learn(request.model, model)
        except StorageError as error:
            self._warn(f"the model is hashed again when it is loaded again: {error}")
            return content_of(model)

    def _cached(self, store: Store, key: str, request: Request) -> Artifact | None:
        """Return the cached entry under the name of this request's model, since the entry may come
        from a file of another name; None if the entry is missing or damaged."""
        artifact = self._get(store, key)
        if artifact is None:
            return None
        for message in store.warnings(key):
            self._warn(message)
        if isinstance(request.model, Path):
            artifact.manifest = dataclasses.replace(artifact.manifest, name=request.model.stem)
        return artifact

    def _get(self, store: Store, key: str) -> Artifact | None:
        try:
            return store.get(key)
        except ArtifactError as error:
            self._warn(f"a damaged entry of the cache is thrown away, the model compiled: {error}")
            store.discard(key)
            return None

    def _made(
        self,
        store: Store,
        key: str,
        model: Model,
        request: Request,
        compile: Compile,
    ) -> Artifact:
        warnings: list[str] = []

        def warn(message: str) -> None:
            warnings.append(message)
            self._warn(message)

        artifact = compile(model, warn)
        model.check_unchanged()  # If the file changed, the entry would not match its key.
        manifest = artifact.manifest
        threads, _ = backend_for(manifest.architecture).threads(manifest.backend)
        about = {
            "model": str(model.path or manifest.name),
            "target": f"{request.options.target} ({manifest.machine}, {threads} threads)",
        }
        try:
            store.put(key, artifact, about, warnings)
        except StorageError as error:
            self._warn(f"the compiled model is used, but not kept for the next time: {error}")
            return artifact
        return self._get(store, key) or artifact
