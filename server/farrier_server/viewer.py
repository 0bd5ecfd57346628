"""The rights of a user on jobs: the jobs whose state a user may see, whose results they may read,
and that they may cancel or change.

| | sees the standing | reads the results | cancels | changes, deletes |
|---|---|---|---|---|
| owner | yes | yes | yes | yes |
| member of the owner's group | yes | unless private | yes | no |
| user, with FARRIER_OPEN_RESULTS | unless private | unless private | no | no |
| operator | yes | as a user | yes | no |
| admin | yes | unless private | yes | yes |

An inspection of a model is private, because later jobs of that model may be private.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farrier_farm.access.owners import Claim
from farrier_farm.access.users import Role, Users
from farrier_farm.jobs.explorations import ExplorationReader
from farrier_farm.jobs.jobs import Job
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.jobs.search import Shown
from farrier_farm.settings import Settings
from farrier_server.authentication import Caller


@dataclasses.dataclass(frozen=True, slots=True)
class Viewer:
    """A user with their rights at one moment."""

    name: str
    role: Role
    mates: frozenset[str]  # The users of the same group, including the user.
    reads_public: bool  # The farm's setting.

    @classmethod
    def of(cls, caller: Caller, users: Users, settings: Settings) -> Viewer:
        """Return the viewer for an authenticated caller. Raises StorageError if the file of users
        cannot be read."""
        mates = users.members(caller.group) | {caller.owner}
        return cls(caller.owner, caller.role, mates, settings.open_results)

    @property
    def is_operator(self) -> bool:
        return self.role.includes(Role.OPERATOR)

    @property
    def is_admin(self) -> bool:
        return self.role.includes(Role.ADMIN)

    def shown(self, kind: JobKind) -> Shown | None:
        """Return the filter that selects the jobs of a kind that the user may see. Return None if
        the user may see all of them."""
        if self.is_operator:
            return None
        if kind is JobKind.INSPECT:
            return Shown(self.mates)
        return Shown(self.mates, self.reads_public)

    def sees(self, job: Job) -> bool:
        """Return whether the user may see that the job exists, and its state."""
        return self.sees_of(job.owner, is_private(job))

    def reads(self, job: Job) -> bool:
        """Return whether the user may read the results of the job."""
        return self.reads_of(job.owner, is_private(job))

    def stops(self, job: Job) -> bool:
        """Return whether the user may cancel the job."""
        return job.owner in self.mates or self.is_operator

    def changes(self, job: Job) -> bool:
        """Return whether the user may delete the job, or select the version of its artifact."""
        return self.changes_of(job.owner)

    def changes_of(self, owner: str) -> bool:
        """Return whether the user may change or delete an object, such as a job, of `owner`."""
        return owner == self.name or self.is_admin

    def explorations(self) -> ExplorationReader:
        """Return the filter that selects the explorations that the user may read, which are those
        for which `reads_of` is true."""
        return ExplorationReader(self.name, self.mates, self.is_admin or self.reads_public)

    def uses(self, claims: Sequence[Claim]) -> bool:
        """Return whether the user may use a file or model on which users have these `claims`. If
        `claims` is empty, because an older version stored the file, only admins may use it."""
        if not claims:
            return self.is_admin
        return any(self.reads_of(claim.owner, claim.private) for claim in claims)

    def owns(self, claims: Sequence[Claim]) -> bool:
        """Return whether a file or model is the user's own: one of the claims on it is the user's,
        or the list of claims is empty and the user is an admin."""
        return any(claim.owner == self.name for claim in claims) or (not claims and self.is_admin)

    def sees_of(self, owner: str, private: bool) -> bool:
        """Return whether the user may see an object, such as a job, of `owner`; `private` states
        whether the object is private."""
        return owner in self.mates or self.is_operator or (self.reads_public and not private)

    def reads_of(self, owner: str, private: bool) -> bool:
        """Return whether the user may read the results of an object, such as a job, of `owner`;
        `private` states whether the object is private."""
        if owner == self.name:
            return True
        return not private and (owner in self.mates or self.is_admin or self.reads_public)


def is_private(job: Job) -> bool:
    """Return whether only the owner of a job may read its results."""
    return job.private or job.kind is JobKind.INSPECT
