"""The digests of content: sha256, as 64 hexadecimal digits."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import IO

_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Return whether a text is a digest, and is therefore safe as a file name."""
    return _DIGEST.fullmatch(text) is not None


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest of bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_of_file(file: IO[bytes] | Path) -> str:
    """Return the digest of a file, or of the unread rest of an open file. Raises OSError."""
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return digest_of_file(opened)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
