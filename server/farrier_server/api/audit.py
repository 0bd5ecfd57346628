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

    id: str = Field(description="The id of the entry. Ids grow with time; `after` takes one.")
    at: float = Field(description="The time of the entry in Unix seconds.")
    user: str
    role: str = Field(
        description="The role that the user had at that time; `host` for a command on the farm's "
        "machine."
    )
    action: str = Field(
        description="The name of the operation, such as `jobs.cancel`, `devices.release` or "
        "`tokens.add`."
    )
    object: str = Field(
        description="The id of the changed object; empty for a change without an object."
    )
    address: str = Field(
        description="The network address of the client, or of a proxy in front of it."
    )
    outcome: str = Field(
        description="`ok`, or the code of the problem with which the request was answered."
    )

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
    next: str = Field(description="The value of `after` for the next page; empty on the last page.")


@router.get("", responses=documented(400, 503))
def read_audit(
    farm: FarmDep,
    user: Annotated[
        str, Query(max_length=64, description="Return only the entries of this user.")
    ] = "",
    action: Annotated[
        str,
        Query(
            max_length=200,
            description="Return only the entries of this action: `jobs.cancel`, or `jobs` for all "
            "actions on jobs.",
        ),
    ] = "",
    object: Annotated[
        str,
        Query(max_length=200, description="Return only the entries about the object with this id."),
    ] = "",
    outcome: Annotated[
        str,
        Query(
            max_length=64, description="Return only the entries with this outcome, such as `ok`."
        ),
    ] = "",
    since: Annotated[
        float,
        Query(
            ge=0, le=4e9, description="Return only the entries since this time, in Unix seconds."
        ),
    ] = 0.0,
    after: Annotated[
        str, Query(max_length=40, pattern=ENTRY_ID, description="The `next` of the previous page.")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> AuditPage:
    """Return a page of the audit log, the newest entry first. A page may be short or empty although
    more pages follow; the last page has an empty `next`."""
    wanted = Wanted(user=user, action=action, object=object, outcome=outcome, since=since)
    entries, following = farm.audit.read(wanted, limit=limit, after=after)
    return AuditPage(entries=[EntryView.of(entry) for entry in entries], next=following)
