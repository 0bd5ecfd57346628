"""The keys whose artifacts may be loaded, set by FARRIER_TRUST, which no other module reads.

An artifact is native code, and loading it runs that code with all privileges of the process.
FARRIER_TRUST holds, separated by commas, public keys (`ed25519:…`), files of keys, and folders of
such files. If it is set, an artifact that is unsigned, or signed by another key, is not loaded. If
it is not set, a signed artifact is refused only if it was changed after it was signed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from farrier.artifact.signature import PublicKey, Signature, UnknownFormError
from farrier.errors import ArtifactError, UsageError, not_installed

VARIABLE = "FARRIER_TRUST"
_MOST_BYTES = 1 << 20  # The limit for a file of keys, which take some 60 bytes each.
_MOST_SHOWN = 3  # The fingerprints in a message.


@dataclasses.dataclass(frozen=True, slots=True)
class Trust:
    """The keys whose signatures are accepted, and the name of their source for messages."""

    keys: frozenset[PublicKey]
    source: str = VARIABLE

    @classmethod
    def of_text(cls, text: str, source: str = VARIABLE) -> Trust:
        """Return the keys in a list of keys, files and folders, separated by commas. Raises
        UsageError for anything else, and if there is not a single key."""
        keys = {
            key for word in filter(None, map(str.strip, text.split(","))) for key in _keys(word)
        }
        if not keys:
            raise UsageError(
                f"{source} is {text!r}, which names no key",
                hint="`farrier keys show` on the farm prints its key: ed25519:…",
            )
        return cls(frozenset(keys), source)

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] | None = None) -> Trust | None:
        """Return the keys of FARRIER_TRUST, None if it is unset or empty. Raises UsageError."""
        text = (os.environ if environ is None else environ).get("FARRIER_TRUST", "")
        return cls.of_text(text) if text else None

    def __str__(self) -> str:
        shown = sorted(key.fingerprint for key in self.keys)
        more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
        return ", ".join(shown[:_MOST_SHOWN]) + more


def check(
    what: str, files: Mapping[str, str], signature: bytes | None, trust: Trust | None
) -> Signature | None:
    """Check the `files` of the artifact `what`, by sha256, against its signature, and the signer
    against `trust` (None: any key).

    Return the signature, or None for an unsigned artifact. Raises ArtifactError, and UsageError if
    a required check needs the package `cryptography`, which is missing.
    """
    if signature is None:
        if trust is not None:
            raise _refusal(
                f"{what} is not signed, and {trust.source} asks for a signature of {trust}",
                "fetch it from a farm that signs, or compile it with --sign KEY",
                trust,
            )
        return None
    try:
        signed = Signature.of_json(signature)
    except UnknownFormError as error:
        if trust is None:
            return None  # The same happens in an older Farrier, which has no signatures.
        raise ArtifactError(f"{what}: {error.message}", hint=error.hint) from None
    except ArtifactError as error:
        raise ArtifactError(f"{what}: {error.message}", hint="fetch it again") from None
    if trust is not None and signed.key not in trust.keys:
        raise _refusal(
            f"{what} is signed by {signed.key.fingerprint}, and {trust.source} names {trust}",
            f"if that key is to be trusted, add {signed.key}",
            trust,
        )
    _check_files(what, files, signed)
    _check_genuine(what, signed, trust)
    return signed


def _check_files(what: str, files: Mapping[str, str], signed: Signature) -> None:
    names = sorted({*files, *signed.files})
    changed = [name for name in names if files.get(name) != signed.files.get(name)]
    if changed:
        raise ArtifactError(
            f"{' and '.join(changed)} of {what} {'is' if len(changed) == 1 else 'are'} not what "
            f"{signed.key.fingerprint} signed",
            hint="somebody changed it, or the file is damaged: fetch it again from its source",
        )


def _check_genuine(what: str, signed: Signature, trust: Trust | None) -> None:
    try:
        genuine = signed.is_genuine()
    except ModuleNotFoundError as error:
        if trust is None:
            return
        missing = not_installed(error)
        raise UsageError(
            f"{trust.source} asks for a signature, and to check it {missing.message}",
            hint=missing.hint,
        ) from error
    if not genuine:
        raise ArtifactError(
            f"the signature of {what} is not one by {signed.key.fingerprint}, which it names, of "
            "these files",
            hint="somebody changed it, or the file is damaged: fetch it again from its source",
        )


def _refusal(message: str, way_out: str, trust: Trust) -> ArtifactError:
    without = f", or unset {VARIABLE} to load anything" if trust.source == VARIABLE else ""
    return ArtifactError(message, hint=f"{way_out}{without}")


@contextlib.contextmanager
def own_artifacts() -> Iterator[None]:
    """Let this process and its children load unsigned artifacts within the `with` block.

    This is for artifacts that the process itself has just compiled into its own folder.
    """
    before = os.environ.pop(VARIABLE, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[VARIABLE] = before


def _keys(word: str) -> list[PublicKey]:
    """Return the keys in one element of the comma-separated list: a key, a file or a folder."""
    try:
        if word.startswith("ed25519:"):
            return [PublicKey.of_text(word)]
        place = Path(word).expanduser()
        files = sorted(place.iterdir()) if place.is_dir() else [place]
        return [
            key
            for file in files
            if file == place or (file.is_file() and not file.name.startswith("."))
            for key in PublicKey.all_of_text(_read(file))
        ]
    except OSError as error:
        raise UsageError(
            f"{VARIABLE} names {word!r}, which is not a key, and cannot be read: {error.strerror}",
            hint="name a public key (ed25519:…), a file of them, or a folder of such files",
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{VARIABLE} names {word!r}, where {error}",
            hint="`farrier keys show` on the farm prints its key: ed25519:…",
        ) from error


def _read(file: Path) -> str:
    with file.open("rb") as opened:
        data = opened.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{file.name} is too large for a file of keys")
    return data.decode()
