"""The credential of a caller of the broker: the value of the metadata `authorization`.

An enrolled device has a secret, which it receives once and never sends: it sends only a proof that
it has the secret. An eavesdropper can sign neither batches nor results with it.
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
    """A caller that claims to be a device, and proves it."""

    device: str
    generation: str
    proof: str

    def __str__(self) -> str:
        return f"Device {self.device}:{self.generation}:{self.proof}"

    @classmethod
    def by(cls, device: str, generation: str, secret: str) -> Enrolled:
        """Return the credential of a device with this secret."""
        return cls(device, generation, _proof(secret))

    def proves(self, secret: str) -> bool:
        """Return whether the caller has this secret, comparing in constant time."""
        return hmac.compare_digest(self.proof.encode(), _proof(secret).encode())


def parsed(authorization: str) -> Bearer | Invited | Enrolled | None:
    """Parse the metadata; return None if it is not a credential."""
    scheme, _, rest = authorization.partition(" ")
    rest = rest.strip()
    match scheme.lower():
        case "bearer":
            return Bearer(rest)
        case "enrol":
            return Invited(rest)
        case "device" if rest.count(":") >= 2:  # Names may contain colons.
            return Enrolled(*rest.rsplit(":", 2))
        case _:
            return None


def _proof(secret: str) -> str:
    return hmac.new(secret.encode(), _PROOF, hashlib.sha256).hexdigest()
