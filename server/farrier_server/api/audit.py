"""The route that reads the audit log. No route changes the log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from farrier_farm.access.audit import Entry, Wanted
from farrier_server.api.trials import ENTRY_ID
from farrier_server.context import FarmDep
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/audit", tags=["audit"])


class EntryView(BaseModel):
    """An entry of the audit log: a change, or an attempt at a change."""

    id: str = Field(description="grows with time, and serves as `after`")
    at: float = Field(description="Unix seconds")
    user: str
    role: str = Field(description="of the user then; `host`: who has the farm's machine")
    action: str = Field(description="jobs.cancel, devices.release, tokens.add, …")
    object: str = Field(description="the id of what was changed; empty where there is none")
    address: str = Field(description="of the peer, which may be a proxy")
    outcome: str = Field(description="`ok`, or the code of the problem that was the answer")

    @classmethod
    def of(cls, entry: Entry) -> EntryView:
        return cls(
            id=entry.id,
            at=entry.at,
            user=entry.user,
            role=entry.role,
            action=entry.action,
            object=entry.object,
            address=entry.address,
            outcome=entry.outcome,
        )


class AuditPage(BaseModel):
    """A page of entries of the audit log, the newest first."""

    entries: list[EntryView]
    next: str = Field(description="`after` of the next page; empty on the last one")


@router.get("", responses=documented(400, 503))
def read_audit(
    farm: FarmDep,
    user: Annotated[str, Query(max_length=64, description="only of this user")] = "",
    action: Annotated[
        str, Query(max_length=200, description="only this: `jobs.cancel`, or `jobs` for all of it")
    ] = "",
    object: Annotated[str, Query(max_length=200, description="only about this id")] = "",
    outcome: Annotated[str, Query(max_length=64, description="only with this: `ok`")] = "",
    since: Annotated[
        float, Query(ge=0, le=4e9, description="only from this time on, in Unix seconds")
    ] = 0.0,
    after: Annotated[
        str, Query(max_length=40, pattern=ENTRY_ID, description="`next` of the page before")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> AuditPage:
    """Return a page of the audit log, the newest entry first. A page may be short or empty although
    more pages follow; the last page has an empty `next`."""
    wanted = Wanted(user=user, action=action, object=object, outcome=outcome, since=since)
    entries, following = farm.audit.read(wanted, limit=limit, after=after)
    return AuditPage(entries=[EntryView.of(entry) for entry in entries], next=following)
