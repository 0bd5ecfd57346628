"""The signatures of batches and results: a device only runs batches that its broker has signed for
that device, and a broker only accepts results that the device has signed.

The signatures are HMAC-SHA256 (RFC 2104). The keys are derived from the device's secret, or from
the token that all devices of a farm share; each key has a single purpose.
"""

from __future__ import annotations

import hashlib
import hmac

_MANIFEST = b"farrier-manifest-v1"
_BATCH = b"farrier-batch-v1"
_REPORT = b"farrier-report-v1"


def sign(token: str, manifest: bytes) -> bytes:
    """Return the signature (32 bytes) of a manifest's bytes under the shared token."""
    return _mac(token, _MANIFEST, manifest)


def verify(token: str, manifest: bytes, signature: bytes) -> bool:
    """Return whether a signature is that of this manifest under this token; the comparison takes
    constant time."""
    return hmac.compare_digest(sign(token, manifest), signature)


def sign_batch(secret: str, lease: str, fence: int, manifest: bytes) -> bytes:
    """Return the signature (32 bytes) of a batch for the device with this secret."""
    return _mac(secret, _BATCH, _bound(lease, fence, manifest))


def verify_batch(secret: str, lease: str, fence: int, manifest: bytes, signature: bytes) -> bool:
    """Return whether a signature is that of this batch under this lease; the comparison takes
    constant time."""
    return hmac.compare_digest(sign_batch(secret, lease, fence, manifest), signature)


def sign_report(secret: str, lease: str, fence: int, result: bytes) -> bytes:
    """Return the signature (32 bytes) of a result that the device with this secret has measured
    under a lease."""
    return _mac(secret, _REPORT, _bound(lease, fence, result))


def verify_report(secret: str, lease: str, fence: int, result: bytes, signature: bytes) -> bool:
    """Return whether a signature is that of this result under this lease; the comparison takes
    constant time."""
    return hmac.compare_digest(sign_report(secret, lease, fence, result), signature)


def _bound(lease: str, fence: int, content: bytes) -> bytes:
    """Return bytes that are unique to this combination of lease, fence and content."""
    name = lease.encode()
    return b"%d:%s:%d:%s" % (len(name), name, fence, content)


def _mac(secret: str, purpose: bytes, content: bytes) -> bytes:
    key = hmac.digest(secret.encode(), purpose, hashlib.sha256)
    return hmac.digest(key, content, hashlib.sha256)
