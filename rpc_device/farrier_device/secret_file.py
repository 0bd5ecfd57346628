"""The file in which a device stores its secret: `<state>/identity.json`, mode 0600."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from farrier_device import codec
from farrier_device.storage import durable

FILE = "identity.json"


@dataclasses.dataclass(frozen=True, slots=True)
class SecretFile:
    """The secret of an enrolled device, and the nonce of an enrolment in progress."""

    device: str = ""
    generation: str = ""
    secret: str = ""
    token: str = ""  # The sha256 of the enrolment token that it came from; "" for the shared one.
    nonce: str = ""  # hex
    nonce_token: str = ""  # The sha256 of the token of the nonce's enrolment.

    @classmethod
    def read(cls, path: Path) -> SecretFile:
        """Read the file and return its content; an empty SecretFile if the file does not exist.
        Raises OSError, and ValueError for a malformed file."""
        try:
            kept: SecretFile = codec.loads(cls, path.read_text())
        except FileNotFoundError:
            return cls()
        bytes.fromhex(kept.nonce)
        return kept

    def write(self, path: Path) -> None:
        """Replace the file, durably: the new content is on the disk when the call returns. Raises
        OSError."""
        with durable.replacing(path) as file:
            file.write(json.dumps(dataclasses.asdict(self)).encode())


def is_enrolled(state: Path) -> bool:
    """Return whether a state folder contains a device's secret; False if the folder cannot be
    read."""
    try:
        return SecretFile.read(state / FILE).secret != ""
    except (OSError, ValueError):
        return False
