"""The credential of a caller of the broker: the value of the metadata `authorization`.

A device that is enrolled has a secret, which it receives once and never sends: what it sends proves
that it has the secret, and is good for nothing else. Whoever reads it on the way can sign neither
batches nor results.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac

_PROOF = b"farrier-call-v1"


@dataclasses.dataclass(frozen=True, slots=True)
class Bearer:
    """A caller with the token that all devices of a farm share."""

    token: str

    def __str__(self) -> str:
        return f"Bearer {self.token}"


@dataclasses.dataclass(frozen=True, slots=True)
class Invited:
    """A caller with an enrolment token."""

    token: str

    def __str__(self) -> str:
        return f"Enrol {self.token}"


@dataclasses.dataclass(frozen=True, slots=True)
class Enrolled:
    """A caller who says that it is a device, and proves it."""

    device: str
    generation: str
    proof: str

    def __str__(self) -> str:
        return f"Device {self.device}:{self.generation}:{self.proof}"

    @classmethod
    def by(cls, device: str, generation: str, secret: str) -> Enrolled:
        """The device itself."""
        return cls(device, generation, _proof(secret))

    def proves(self, secret: str) -> bool:
        """Return whether the caller has this secret, comparing in constant time."""
        return hmac.compare_digest(self.proof.encode(), _proof(secret).encode())


def parsed(authorization: str) -> Bearer | Invited | Enrolled | None:
    """The caller that the metadata names; None for what no caller says."""
    scheme, _, rest = authorization.partition(" ")
    rest = rest.strip()
    match scheme.lower():
        case "bearer":
            return Bearer(rest)
        case "enrol":
            return Invited(rest)
        case "device" if rest.count(":") >= 2:  # names may have colons
            return Enrolled(*rest.rsplit(":", 2))
        case _:
            return None


def _proof(secret: str) -> str:
    return hmac.new(secret.encode(), _PROOF, hashlib.sha256).hexdigest()
