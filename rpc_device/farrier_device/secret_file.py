"""The file in which a device keeps its secret: `<state>/identity.json`, mode 0600."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
from pathlib import Path

from farrier_device import codec

FILE = "identity.json"


@dataclasses.dataclass(frozen=True, slots=True)
class SecretFile:
    """The secret of a device that is enrolled, and the nonce of an enrolment that is under way."""

    device: str = ""
    generation: str = ""
    secret: str = ""
    token: str = ""  # sha256 of the enrolment token that it came by; "" for the shared one
    nonce: str = ""  # hex
    nonce_token: str = ""  # sha256 of the token that the nonce goes with

    @classmethod
    def read(cls, path: Path) -> SecretFile:
        """An empty one where there is no file. Raises OSError, and ValueError for what is none."""
        try:
            kept: SecretFile = codec.loads(cls, path.read_text())
        except FileNotFoundError:
            return cls()
        bytes.fromhex(kept.nonce)
        return kept

    def write(self, path: Path) -> None:
        """Replace the file, which is on the disk at the end. Raises OSError."""
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(draft, flags, 0o600), "w") as file:
                json.dump(dataclasses.asdict(self), file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise


def is_enrolled(state: Path) -> bool:
    """Return whether a state folder holds a secret; False if it cannot be read."""
    try:
        return SecretFile.read(state / FILE).secret != ""
    except (OSError, ValueError):
        return False
