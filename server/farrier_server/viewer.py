"""The rights of a user on jobs: which ones they see, read, stop and change.

| | sees the standing | reads the results | cancels | changes, deletes |
|---|---|---|---|---|
| owner | yes | yes | yes | yes |
| member of the owner's group | yes | unless private | yes | no |
| user, with FARRIER_OPEN_RESULTS | unless private | unless private | no | no |
| operator | yes | as a user | yes | no |
| admin | yes | unless private | yes | yes |

The inspection of a model is private, because the jobs of that model may be private later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farrier_farm.access.owners import Claim
from farrier_farm.access.users import Role, Users
from farrier_farm.jobs.jobs import Job
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.jobs.search import Shown
from farrier_farm.settings import Settings
from farrier_server.authentication import Caller


@dataclasses.dataclass(frozen=True, slots=True)
class Viewer:
    """A user with the rights that they have at one moment."""

    name: str
    role: Role
    mates: frozenset[str]  # The users of the same group, including the user.
    reads_public: bool  # The farm's setting.

    @classmethod
    def of(cls, caller: Caller, users: Users, settings: Settings) -> Viewer:
        """Create the viewer of a caller. Raises StorageError if the users cannot be read."""
        mates = users.members(caller.group) | {caller.owner}
        return cls(caller.owner, caller.role, mates, settings.open_results)

    @property
    def is_operator(self) -> bool:
        return self.role.includes(Role.OPERATOR)

    @property
    def is_admin(self) -> bool:
        return self.role.includes(Role.ADMIN)

    def shown(self, kind: JobKind) -> Shown | None:
        """Return the filter for the jobs of a kind that the user sees; None for all."""
        if self.is_operator:
            return None
        if kind is JobKind.INSPECT:
            return Shown(self.mates)
        return Shown(self.mates, self.reads_public)

    def sees(self, job: Job) -> bool:
        """Return whether the user may know of the job."""
        return self.sees_of(job.owner, is_private(job))

    def reads(self, job: Job) -> bool:
        """Return whether the user may have its results."""
        return self.reads_of(job.owner, is_private(job))

    def stops(self, job: Job) -> bool:
        """Return whether the user may cancel it."""
        return job.owner in self.mates or self.is_operator

    def changes(self, job: Job) -> bool:
        """Return whether the user may delete it and choose its version."""
        return job.owner == self.name or self.is_admin

    def uses(self, claims: Sequence[Claim]) -> bool:
        """Return whether the user may use a file or model that these users have claimed. A file
        without claims is older than the claims, and only admins may use it."""
        if not claims:
            return self.is_admin
        return any(self.reads_of(claim.owner, claim.private) for claim in claims)

    def owns(self, claims: Sequence[Claim]) -> bool:
        """Return whether the user may use a file or model in their own right: one of these claims
        is theirs, or there is none and they are an admin."""
        return any(claim.owner == self.name for claim in claims) or (not claims and self.is_admin)

    def sees_of(self, owner: str, private: bool) -> bool:
        """Return the same as `sees` for any object of an owner."""
        return owner in self.mates or self.is_operator or (self.reads_public and not private)

    def reads_of(self, owner: str, private: bool) -> bool:
        """Return the same as `reads` for any object of an owner."""
        if owner == self.name:
            return True
        return not private and (owner in self.mates or self.is_admin or self.reads_public)


def is_private(job: Job) -> bool:
    """Return whether only its owner may read a job's results."""
    return job.private or job.kind is JobKind.INSPECT
