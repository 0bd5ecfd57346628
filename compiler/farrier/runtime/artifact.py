"""A compiled model in memory or in a file, and its sessions."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

from farrier.artifact import calls, container, format_1, schedules, trust
from farrier.artifact.calls import CallRecord
from farrier.artifact.code import PROGRAM, CodeObject, ModelCode, program_of
from farrier.artifact.manifest import Manifest
from farrier.artifact.schedules import Schedules
from farrier.artifact.signature import SIGNATURE, Signature
from farrier.errors import ArtifactError, UsageError
from farrier.files.atomic import write_atomically
from farrier_device.memory import Buffer, aligned_buffer

if TYPE_CHECKING:
    import numpy.typing as npt

    from farrier.background import Tuning
    from farrier.runtime.session import Session
    from farrier.targets.exporting import Exported

MANIFEST = "manifest.json"
PARAMS = "params.bin"
GRAPH = "graph.ir"
RECORDS = "records.jsonl"
CALLS = "calls.json"
SCHEDULES = "schedules.json"
REPORT = "report.json"
_AGAIN = "the file is damaged: fetch it again, or compile the model again"


@dataclasses.dataclass(slots=True)
class Artifact:
    """A compiled model.

    `members` are the files of the container except the parameters, which are `params` in memory, or
    `mapped`, or else are read from `path` when the model first runs. `tuning` is the background
    search for better code, if there is one: the artifact and its sessions switch to each version
    that the search produces.
    """

    manifest: Manifest
    members: dict[str, bytes]
    params: memoryview | None = None
    path: pathlib.Path | None = None
    mapped: container.Mapped | None = None
    tuning: Tuning | None = dataclasses.field(default=None, repr=False, compare=False)
    _session: Session | None = dataclasses.field(default=None, repr=False, compare=False)
    _sessions: weakref.WeakSet[Session] = dataclasses.field(
        default_factory=weakref.WeakSet, repr=False, compare=False
    )
    _changing: threading.RLock = dataclasses.field(
        default_factory=threading.RLock, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[type[Artifact], tuple[Any, ...]]:
        """Pickle the model. A copy in another process has sessions of its own, and no background
        search."""
        return Artifact, (self.manifest, self.members, self.params, self.path, self.mapped)

    @property
    def report(self) -> dict[str, Any]:
        """Return the report of verification and timing, as JSON types."""
        report: dict[str, Any] = json.loads(self.members[REPORT])
        return report

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The kernel calls in the order of execution. Raises ArtifactError if the artifact contains
        no table of them."""
        if CALLS not in self.members:
            raise ArtifactError(
                f"the artifact of {self.manifest.name} does not list its kernels",
                hint="it was made by an older Farrier: compile the model again",
            )
        return calls.from_json(self.members[CALLS].decode(errors="replace"))

    @property
    def schedules(self) -> tuple[Schedules, ...]:
        """The schedules of the model for all sizes, then for hot sizes. Raises ArtifactError if the
        artifact contains no table of them."""
        if SCHEDULES not in self.members:
            raise ArtifactError(
                f"the artifact of {self.manifest.name} does not list its schedules",
                hint="it was made by an older Farrier: compile the model again",
            )
        return schedules.from_json(self.members[SCHEDULES].decode(errors="replace"))

    @property
    def code(self) -> ModelCode:
        """Return the code objects and the program. Raises ArtifactError for a damaged program."""
        objects = (
            CodeObject(file.path, file.kind, file.entries, self.members[file.path])
            for file in self.manifest.code
        )
        return ModelCode(tuple(objects), self.manifest.backend, program_of(self.members))

    @property
    def signature(self) -> Signature | None:
        """The signature, already checked by `load`; None if the artifact is unsigned, or signed in
        a form that only a newer Farrier reads."""
        if SIGNATURE not in self.members:
            return None
        try:
            return Signature.of_json(self.members[SIGNATURE])
        except ArtifactError:
            return None

    def sign(self, sign: Callable[[Mapping[str, str]], Signature]) -> None:
        """Sign an artifact in memory by calling `sign` with the sha256 of each file. Files written
        afterwards contain the signature."""
        if self.params is None:
            raise UsageError(
                f"{self.manifest.name} lies in a file already", hint="sign it as it is compiled"
            )
        files = _files(self.manifest.to_json().encode(), self.members, self.manifest)
        self.members[SIGNATURE] = sign(files).to_json().encode()

    def run(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Any]:
        """Run the model and return its outputs by name: new arrays of the manifest's shapes and
        dtypes, and lists of arrays for sequences.

        Raises InputMismatchError if a name, dtype or shape differs from the manifest's, UsageError
        for a model with states, which needs a `session` to keep them.
        """
        if self.manifest.state:
            raise UsageError(
                f"{self.manifest.name} keeps {self.manifest.state[0].input} from call to call",
                hint="session = artifact.session(); session.run(…)",
            )
        return self.session().run(inputs)

    def session(self, threads: int = 0, memory_bytes: int = 0) -> Session:
        """Return the loaded model, which is created at the first call.

        `threads` 0: the number for which the model was tuned, or the number of cores if this
        machine has fewer. `memory_bytes` limits the outputs and workspace if values decide their
        sizes; 0: the memory of the machine. For a model with states each call creates a session,
        with states of its own; all these sessions share the parameters.
        """
        session = self._session
        is_other = session is not None and (
            threads not in (0, session.threads) or memory_bytes not in (0, session.memory_bytes)
        )
        if session is None or session.closed or is_other or self.manifest.state:
            from farrier.runtime.session import Session

            with self._changing:
                params = self._shared_params()
                session = Session(self.manifest, self.code, params, threads, memory_bytes)
                self._sessions.add(session)
                self._session = None if self.manifest.state else session
        return session

    def _shared_params(self) -> Buffer | container.Mapped:
        """Return the parameters that an existing session with states has loaded, or load them."""
        if self.manifest.state:
            for session in self._sessions:
                if session.manifest == self.manifest:
                    return session.params
        return self._load_params()

    def version(self) -> Artifact:
        """Return a copy of the artifact in its current version, which later versions do not
        change."""
        with self._changing:
            return Artifact(
                self.manifest, self.members, self.params, self.path, self.mapped, self.tuning
            )

    def become(self, other: Artifact) -> None:
        """Switch to `other`, a version of the same model.

        Each session switches at its next call, which does not wait for the code to be loaded. If a
        session cannot load the code, raises ArtifactError, and nothing changes.
        """
        with self._changing:
            sessions = [session for session in self._sessions if not session.closed]
            loaded = [
                session.beside(other.manifest, other.code, other._load_params())
                for session in sessions
            ]
            self.manifest, self.members = other.manifest, other.members
            self.params, self.path, self.mapped = other.params, other.path, other.mapped
            for session, code in zip(sessions, loaded, strict=True):
                session.exchange(code)

    def _load_params(self) -> Buffer | container.Mapped:
        """Return the parameters in aligned memory; parameters that are read from the file are
        checked against their hash."""
        if self.mapped is not None:
            return self.mapped
        if self.params is not None:
            buffer = aligned_buffer(self.manifest.params_bytes)
            buffer.view[:] = self.params.cast("B")
            return buffer
        if self.path is None:
            raise ArtifactError("the artifact has lost its parameters")
        return _read_params(self.path, self.manifest)

    def write(self, file: IO[bytes]) -> None:
        """Write the container to `file`, in the form that `save` and the server store."""
        now = self.version()
        if now.params is not None:
            contents = {MANIFEST: now.manifest.to_json().encode(), **now.members}
            container.write(file, contents | {PARAMS: now.params})
        elif now.path is not None:
            with now.path.open("rb") as source:
                shutil.copyfileobj(source, file)
        else:
            raise ArtifactError("the artifact has lost its parameters")

    def export(self, form: str = "c", board: str = "", name: str = "") -> Exported:
        """Return files for programs in other languages: a C library, or a program for a board. The
        names of functions start with `name`, by default the model's. Raises UsageError for a
        machine without such a form, or for a board for which the model was not compiled."""
        from farrier.targets.exporting import Exportable
        from farrier.targets.registry import backend_for

        backend = backend_for(self.manifest.architecture)
        params = self._load_params()
        word = name or self.manifest.name
        model = Exportable(self.manifest, self.code, params.view, word)
        return backend.export(model, form, board)

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the artifact to a file atomically, and return the path. Raises StorageError."""
        target = pathlib.Path(path)
        write_atomically(target, self.write)
        return target


def is_artifact(path: pathlib.Path) -> bool:
    """Check whether a file is an artifact, by its content or, for a damaged one, by its name."""
    return path.suffix == ".farrier" or container.is_container(path, MANIFEST)


def load(path: str | pathlib.Path) -> Artifact:
    """Read an artifact; the parameters stay in the file.

    Raises ArtifactError if the file is missing, damaged, of another format, or changed after it was
    signed, or if its signer is not among the keys in FARRIER_TRUST (`farrier.artifact.trust`).

    The bytes that were checked are the bytes that are executed. Code and tables are read once and
    stay in memory. The parameters are checked against their hash when they are read.
    """
    file = pathlib.Path(path)
    return _load(file, trust.Trust.of_environment())


def _load(file: pathlib.Path, trusted: trust.Trust | None, name: str = "") -> Artifact:
    members = container.read(file)
    manifest_text = members.get(MANIFEST, b"")
    artifact = _artifact(file, members)
    if trusted is not None or SIGNATURE in members:
        files = _files(manifest_text, members, artifact.manifest)
        trust.check(name or str(file), files, members.get(SIGNATURE), trusted)
    return artifact


def _files(
    manifest_text: bytes, members: Mapping[str, bytes], manifest: Manifest
) -> dict[str, str]:
    """Return the sha256 of each file of an artifact except its signature."""
    files = {name: container.digest(data) for name, data in members.items() if name != SIGNATURE}
    return files | {
        MANIFEST: container.digest(manifest_text),
        PARAMS: str(manifest.hashes.get(PARAMS)),
    }


def check_whole(path: pathlib.Path, trusted: trust.Trust | None, name: str = "") -> Artifact:
    """Read an artifact and check all of it, including the parameters, against its hashes and its
    signature, and the signer against `trusted` (None: any signer). Messages refer to the artifact
    as `name`, if that is not empty. Raises as `load` does."""
    artifact = _load(path, trusted, name)
    _check_params(path, artifact.manifest)
    return artifact


def _artifact(file: pathlib.Path, members: dict[str, bytes]) -> Artifact:
    """Return the artifact with the members that were read from a file."""
    try:
        manifest = Manifest.from_json(members.pop(MANIFEST).decode())
    except (KeyError, UnicodeDecodeError):
        raise ArtifactError(f"{file} holds no {MANIFEST}", hint="is it a .farrier file?") from None
    held = format_1.renamed(members) if manifest.format == format_1.FORMAT else members
    hashes = {code.path: code.sha256 for code in manifest.code}
    if PROGRAM in {*manifest.hashes, *held}:
        hashes[PROGRAM] = manifest.hashes.get(PROGRAM, "")
    for name in (*hashes, REPORT):
        if name not in held:
            raise ArtifactError(f"{file} holds no {name}", hint=_AGAIN)
    for name, digest in hashes.items():
        if container.digest(held[name]) != digest:
            raise _unlike_its_hash(name, file)
    length = container.size(file, PARAMS)
    if length != manifest.params_bytes:
        raise ArtifactError(
            f"{PARAMS} in {file} has {length} bytes, the manifest says {manifest.params_bytes}",
            hint=_AGAIN,
        )
    return Artifact(manifest, held, path=file)


def load_mapped(path: pathlib.Path) -> Artifact:
    """Read an artifact whose parameters are mapped from the file, without checking their hash or
    the signer: for a complete file that this user's processes have written and that nobody
    modifies. Raises as `load` does.

    Raises ArtifactError also if another file replaced it in the meantime, as parts of both might be
    mixed.
    """
    before = _identity(path)
    artifact = _load(path, None)
    artifact.mapped = container.map_member(path, PARAMS)
    if artifact.mapped is None:  # It is deflated, so it is small.
        artifact.params = _read_params(path, artifact.manifest).view
    if _identity(path) != before:
        raise ArtifactError(f"{path} was replaced while it was read", hint="load it again")
    return artifact


def check_params(path: pathlib.Path) -> None:
    """Check the parameters in an artifact's file against their hash, whoever signed the artifact.
    Raises ArtifactError as `load` does."""
    _check_params(path, _load(path, None).manifest)


def _check_params(path: pathlib.Path, manifest: Manifest) -> None:
    mapped = container.map_member(path, PARAMS)
    if mapped is None:
        _read_params(path, manifest)
    else:
        _check_digest(path, mapped.digest(), manifest)


def _read_params(path: pathlib.Path, manifest: Manifest) -> Buffer:
    """Read the parameters, check them against their hash, and return them."""
    buffer = aligned_buffer(manifest.params_bytes)
    _check_digest(path, container.read_into(path, PARAMS, buffer.view), manifest)
    return buffer


def _check_digest(path: pathlib.Path, digest: str, manifest: Manifest) -> None:
    if digest != manifest.hashes.get(PARAMS):
        raise _unlike_its_hash(PARAMS, path)


def _unlike_its_hash(name: str, path: pathlib.Path) -> ArtifactError:
    return ArtifactError(f"{name} in {path} does not match its hash in the manifest", hint=_AGAIN)


def _identity(path: pathlib.Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}") from error
    return status.st_dev, status.st_ino
