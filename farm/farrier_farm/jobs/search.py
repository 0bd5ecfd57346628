"""The search for jobs, sorted and in pages.

Jobs are indexed by time of creation, for each state, each owner, and each pair of both
(`items.lua`). A search by another criterion, such as a part of a name or another order, examines
the newest `LOOKED_AT` jobs of the index: one script reads only the fields that the criterion needs,
so a page costs the same in a farm of any size. Pages for a user who may see the jobs of only some
owners are as full as other pages.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.errors import UsageError
from farrier.targets import called
from farrier_farm.access.users import DEFAULT
from farrier_farm.leases.leases import Leases
from farrier_farm.leases.states import State

LOOKED_AT = 2000
_FIELDS = ("name", "target", "class", "device", "finished", "best_ms", "share", "private")
_LONGEST = 200  # The characters of a name that decide its position.


class JobOrder(enum.StrEnum):
    """The field by which jobs are sorted; jobs without a value of the field come last."""

    CREATED = "created"
    FINISHED = "finished"
    NAME = "name"
    BEST = "best"  # The estimated latency of the best code.


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """A filter for the jobs that a user may see: all jobs of some owners and, with `public`, all
    jobs that are not private."""

    owners: frozenset[str]
    public: bool = False

    def admits(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the user may see the job with these fields."""
        if (fields["share"] or DEFAULT) in self.owners:
            return True
        return self.public and fields["private"] != "1"


@dataclasses.dataclass(frozen=True, slots=True)
class JobQuery:
    """A search for jobs. `text` is a substring of the job's name, id or target; `target` is a
    substring of the target, or of the name of the class or device that measures the job. Case does
    not matter, and "" matches all jobs. `shown` is None for a user who may see all jobs."""

    text: str = ""
    target: str = ""
    state: State | None = None
    owner: str = ""
    order: JobOrder = JobOrder.CREATED
    descending: bool = True
    shown: Shown | None = None

    @property
    def shares(self) -> tuple[str, ...]:
        """The owners whose indexes are searched; "" is the index of all owners, and the tuple is
        empty if the user may see no jobs."""
        if self.shown is None or self.shown.public or self.owner in self.shown.owners:
            return (self.owner,)
        return () if self.owner else tuple(sorted(self.shown.owners))

    @property
    def is_indexed(self) -> bool:
        """Return whether the indexes alone determine the result, without reading fields of jobs."""
        is_filtered = self.shown is not None and self.owner not in self.shown.owners
        return not (self.text or self.target or (is_filtered and self.shown and self.shown.public))

    def matches(self, job_id: str, fields: Mapping[str, Any]) -> bool:
        if self.shown is not None and not self.shown.admits(fields):
            return False
        if not self.text and not self.target:
            return True
        targets = [_called(fields["target"] or ""), fields["class"] or "", fields["device"] or ""]
        texts = [job_id, fields["name"] or "", *targets]
        return _is_in(self.text, texts) and _is_in(self.target, targets)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The ids of a page of jobs, the `after` of the next page ("" on the last page), and whether
    the search examined all jobs that could belong on the page."""

    ids: Sequence[str]
    next: str
    complete: bool


def search(leases: Leases, query: JobQuery, limit: int, after: str = "") -> Found:
    """Return a page of the jobs that match the query. Raises UsageError for an `after` that no page
    has returned."""
    if query.order is JobOrder.CREATED:
        return _by_creation(leases, query, limit, after)
    ids = _members(leases, query, limit=LOOKED_AT + 1)
    rows = [
        (_value(query.order, fields), job_id)
        for job_id, fields in leases.look(ids[:LOOKED_AT], _FIELDS).items()
        if query.matches(job_id, fields)
    ]
    with_value = sorted((row for row in rows if row[0] is not None), reverse=query.descending)
    rows = with_value + sorted((row for row in rows if row[0] is None), reverse=query.descending)
    if after:
        place = _read_place(after, query.order)
        rows = [row for row in rows if _is_after(row, place, query.descending)]
    page = rows[:limit]
    following = _place(page[-1]) if len(rows) > limit else ""
    return Found([job_id for _, job_id in page], following, len(ids) <= LOOKED_AT)


def _by_creation(leases: Leases, query: JobQuery, limit: int, after: str) -> Found:
    """Return a page of the matching jobs in the order of creation. If the query needs fields of
    jobs, at most `LOOKED_AT` jobs are examined; the next page continues after the last examined
    job."""
    most = limit if query.is_indexed else LOOKED_AT
    ids = _members(leases, query, after=after, limit=most + 1, newest_first=query.descending)
    window, more = ids[:most], len(ids) > most
    if query.is_indexed:
        return Found(window, window[-1] if more else "", True)
    looked = leases.look(window, _FIELDS)
    matches = [job_id for job_id, fields in looked.items() if query.matches(job_id, fields)]
    if len(matches) > limit:
        return Found(matches[:limit], matches[limit - 1], True)
    return Found(matches, window[-1] if more else "", not more)


def _members(
    leases: Leases, query: JobQuery, *, limit: int, after: str = "", newest_first: bool = True
) -> list[str]:
    """Return the ids of at most `limit` jobs of all owners that the query selects, sorted by time
    of creation and following the id `after`. `Leases.members` does the same for one owner."""
    ids: list[str] = []
    for share in query.shares:
        ids += leases.members(
            share=share, state=query.state, after=after, limit=limit, newest_first=newest_first
        )
    return sorted(ids, reverse=newest_first)[:limit] if len(query.shares) > 1 else ids


def _value(order: JobOrder, fields: Mapping[str, Any]) -> Any:
    match order:
        case JobOrder.NAME:
            return (fields["name"] or "").casefold()[:_LONGEST]
        case JobOrder.FINISHED:
            return int(fields["finished"]) if fields["finished"] else None
        case _:
            return json.loads(fields["best_ms"]) if fields["best_ms"] else None


def _is_after(row: tuple[Any, str], place: tuple[Any, str], descending: bool) -> bool:
    if (row[0] is None) != (place[0] is None):
        return row[0] is None
    first, second = (row[1:], place[1:]) if row[0] is None else (row, place)
    return bool(first < second if descending else first > second)


def _place(row: tuple[Any, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(row).encode()).decode()


def _read_place(text: str, order: JobOrder) -> tuple[Any, str]:
    try:
        value, job_id = json.loads(base64.urlsafe_b64decode(text))
    except (binascii.Error, ValueError, TypeError):
        value, job_id = b"", ""
    kind = str if order is JobOrder.NAME else int | float
    if not isinstance(job_id, str) or not (value is None or isinstance(value, kind)):
        raise UsageError(
            f"`after` is {text[:50]!r}, which is not from a page in this order",
            hint="begin with the first page, without `after`",
        )
    return value, job_id


@functools.lru_cache(1000)
def _called(target: str) -> str:
    return called(target)


def _is_in(part: str, texts: Sequence[str]) -> bool:
    return not part or part.casefold() in "\n".join(texts).casefold()
