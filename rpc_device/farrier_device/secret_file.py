"""The file in which a device keeps its secret: `<state>/identity.json`, mode 0600."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from farrier_device import codec
from farrier_device.storage import durable

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
        with durable.replacing(path) as file:
            file.write(json.dumps(dataclasses.asdict(self)).encode())


def is_enrolled(state: Path) -> bool:
    """Return whether a state folder holds a secret; False if it cannot be read."""
    try:
        return SecretFile.read(state / FILE).secret != ""
    except (OSError, ValueError):
        return False
