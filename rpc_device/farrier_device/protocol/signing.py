"""Signatures of manifests: a device runs nothing that its broker did not sign.

HMAC-SHA256 (RFC 2104) under a key that is derived from the device's token and serves this alone.
"""

from __future__ import annotations

import hashlib
import hmac

_PURPOSE = b"farrier-manifest-v1"


def sign(token: str, manifest: bytes) -> bytes:
    """The signature, 32 bytes, of the bytes of a manifest."""
    return hmac.digest(_key(token), manifest, hashlib.sha256)


def verify(token: str, manifest: bytes, signature: bytes) -> bool:
    """Whether the signature is of this manifest under this token, compared in constant time."""
    return hmac.compare_digest(sign(token, manifest), signature)


def _key(token: str) -> bytes:
    return hmac.digest(token.encode(), _PURPOSE, hashlib.sha256)
