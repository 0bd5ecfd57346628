"""The credentials of a caller of the broker: the value of the gRPC metadata `authorization`.

An enrolled device has a secret, which it receives once and never sends: it only sends a proof that
it knows the secret. An eavesdropper on such a proof can sign neither batches nor results.
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
    """A caller that claims to be a certain device, with a proof that it knows the device's
    secret."""

    device: str
    generation: str
    proof: str

    def __str__(self) -> str:
        return f"Device {self.device}:{self.generation}:{self.proof}"

    @classmethod
    def by(cls, device: str, generation: str, secret: str) -> Enrolled:
        """Return the credential of the device with this secret."""
        return cls(device, generation, _proof(secret))

    def proves(self, secret: str) -> bool:
        """Return whether the caller knows this secret; the comparison takes constant time."""
        return hmac.compare_digest(self.proof.encode(), _proof(secret).encode())


def parsed(authorization: str) -> Bearer | Invited | Enrolled | None:
    """Parse the metadata `authorization`; return None if the text is not a credential."""
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
