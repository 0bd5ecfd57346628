"""The signature of an artifact: the sha256 of each of its files, and the signature of these by a
key.

The signature is a separate member of the container and covers every other member, including the
manifest. The signed bytes are a text in the format of `sha256sum --check`, with lines in the order
of the names:

    # farrier artifact 1
    <sha256>  calls.json
    <sha256>  manifest.json
    …

They are signed with Ed25519 (RFC 8032). Only signing and checking need the package `cryptography`,
which is imported on use: the base installation can read signatures and run artifacts without it.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from farrier.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE = "signature.json"
# The format of the member; it rises if a reader of this version would check something else.
FORMAT = 1
MOST_FILES = 1024  # A container has eight, and more where each kernel is a code object.
# Distinguishes this use of a key from any other.
_FIRST_LINE = "# farrier artifact 1\n"
_NAME = re.compile(r"(code/)?[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PREFIX = "ed25519:"
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64  # RFC 8032, 5.1
_FINGERPRINT_DIGITS = 32  # 128 bits: nobody finds another key with the same
# The DER of a public key before its 32 bytes (RFC 8410, 4).
_PUBLIC_DER = bytes.fromhex("302a300506032b6570032100")
_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----\s([A-Za-z0-9+/=\s]*)-----END PUBLIC KEY-----")


class UnknownFormError(ArtifactError):
    """An error: a signature has a form that only a newer version of Farrier knows."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class PublicKey:
    """An Ed25519 public key."""

    raw: bytes

    def __str__(self) -> str:
        return _PREFIX + base64.b64encode(self.raw).decode()

    @property
    def fingerprint(self) -> str:
        """The first digits of the key's sha256 in hex, for people."""
        return hashlib.sha256(self.raw).hexdigest()[:_FINGERPRINT_DIGITS]

    @property
    def pem(self) -> str:
        """The key in PEM, the format that OpenSSL reads."""
        body = base64.b64encode(_PUBLIC_DER + self.raw).decode()
        return f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"

    @classmethod
    def of_text(cls, text: str) -> PublicKey:
        """Parse a key in the form that `str` returns. Raises ValueError."""
        raw = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        if not text.startswith(_PREFIX) or len(raw) != _KEY_BYTES:
            raise ValueError(f"{text[:100]!r} is not a key")
        return cls(raw)

    @classmethod
    def all_of_text(cls, text: str) -> list[PublicKey]:
        """Return the keys in a text: in PEM, or one at the start of each line. The rest of such a
        line, and lines that start with #, are comments. Raises ValueError."""
        keys = []
        for body in _PEM.findall(text):
            der = base64.b64decode("".join(body.split()), validate=True)
            if not der.startswith(_PUBLIC_DER) or len(der) != len(_PUBLIC_DER) + _KEY_BYTES:
                raise ValueError("a key in PEM is not of Ed25519")
            keys.append(cls(der[-_KEY_BYTES:]))
        for line in _PEM.sub("", text).splitlines():
            if line.strip() and not line.startswith("#"):
                keys.append(cls.of_text(line.split()[0]))
        return keys


def statement(files: Mapping[str, str]) -> bytes:
    """Return the bytes that are signed for these files, which maps names to sha256 digests. Raises
    ValueError for ambiguous names."""
    if len(files) > MOST_FILES:
        raise ValueError(f"{len(files)} files are more than {MOST_FILES}")
    for name, digest in files.items():
        if not _NAME.fullmatch(name) or name == SIGNATURE or not _DIGEST.fullmatch(digest):
            raise ValueError(f"{name!r} with the hash {digest!r} cannot be signed")
    lines = (f"{files[name]}  {name}\n" for name in sorted(files))
    return (_FIRST_LINE + "".join(lines)).encode()


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """The content of `signature.json`: the sha256 of each file, and the signature of these by
    `key`."""

    files: Mapping[str, str]
    key: PublicKey
    signature: bytes

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "key": str(self.key),
                "signature": base64.b64encode(self.signature).decode(),
                "files": dict(sorted(self.files.items())),
            },
            indent=1,
        )

    @classmethod
    def of_json(cls, data: bytes) -> Signature:
        """Parse the content of `signature.json`. Raises ArtifactError, UnknownFormError."""
        try:
            raw = json.loads(data)
            if raw["format"] != FORMAT:
                raise UnknownFormError(
                    f"its signature has format {raw['format']}, and this Farrier reads {FORMAT}",
                    hint="check it with the Farrier that signed it, or a newer one",
                )
            files = {str(name): str(digest) for name, digest in raw["files"].items()}
            signature = base64.b64decode(raw["signature"], validate=True)
            statement(files)
            return cls(files, PublicKey.of_text(raw["key"]), signature)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ArtifactError(f"its signature is damaged: {error}") from error

    def is_genuine(self) -> bool:
        """Check whether the owner of the key signed these files. Raises ModuleNotFoundError without
        the package `cryptography`."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            public = Ed25519PublicKey.from_public_bytes(self.key.raw)
            public.verify(self.signature, statement(self.files))
        except (InvalidSignature, ValueError):
            return False
        return True


class SigningKey:
    """An Ed25519 private key."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = PublicKey(private.public_key().public_bytes_raw())

    @classmethod
    def new(cls) -> SigningKey:
        """Generate a random key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def of_pem(cls, pem: bytes) -> SigningKey:
        """Parse an unencrypted PKCS #8 key, as `openssl genpkey -algorithm ed25519` writes it.
        Raises UsageError for anything else."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            private = load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise UsageError(
                "not a private key of Ed25519 in PEM without a password",
                hint="openssl genpkey -algorithm ed25519 -out signing.key makes one",
            )
        return cls(private)

    @property
    def pem(self) -> bytes:
        from cryptography.hazmat.primitives import serialization

        return self._private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def sign(self, files: Mapping[str, str]) -> Signature:
        """Return the signature of these files, a mapping from names to sha256 digests. Raises
        ValueError for files that cannot be signed, see `statement`."""
        return Signature(dict(files), self.public, self._private.sign(statement(files)))
