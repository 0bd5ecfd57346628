"""Records are forgotten piece by piece: a step looks at so many of them, whoever asks for it.

A record leaves all indexes in one script, of which each takes some hundred. So what is killed
between two steps, or within one, leaves nothing half done but archives that are written anew by the
next step, or by a worker's next look for garbage."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from farrier.records import Pruning
from farrier_farm.records.entry import PRIVATE, STORES, RecordEntry
from farrier_farm.records.records import Records, StoredRecord
from farrier_farm.redis.connection import Client
from farrier_farm.redis.scripts import read_scripts

LOOKED_AT = 1000  # records, by a step; those of a task that has too many schedules together
_REMOVED_AT_ONCE = 100
_RENEWED = 100  # archives, by a step

_REMOVE = """
local removed = 0
for i = 1, #KEYS do removed = removed + remove_record(KEYS[i], ARGV, 1 + (i - 1) * WORDS) end
return removed
"""


Store: TypeAlias = Callable[[str], Records]  # of a user's private records; of "", the shared ones


@dataclasses.dataclass(frozen=True, slots=True)
class Pruned:
    """What a step did: how many records it removed, or would have; `next` is where the next one
    begins, "" where nothing is left to do."""

    records: int
    next: str


class RecordPruning:
    """Every method raises ServiceError where Redis is out of reach, StorageError where there is no
    room for an archive."""

    def __init__(self, client: Client) -> None:
        shared = read_scripts("records")
        self._client = client
        self._remove = client.script(shared + _REMOVE)

    def step(
        self, records: Records, pruning: Pruning, *, after: str = "", is_dry: bool = False
    ) -> Pruned:
        """Look at the next `LOOKED_AT` of a store's records, in the order of addition. What this
        version cannot read stays."""
        records.adopt()
        page, following = records.log(after, None, LOOKED_AT)
        doomed, removed = _to_remove(records, pruning, page), 0
        if is_dry:
            ids = {one.id for one in doomed}
            return Pruned(sum(one.id in ids for one in page), following)
        while some := list(itertools.islice(doomed, _REMOVED_AT_ONCE)):
            removed += self._removed(records, some)
        if records.archives.renew(_RENEWED) and not following:
            following = page[-1].id if page else after or "0-0"
        return Pruned(removed, following)

    def drop(self, store: Store, pruning: Pruning, *, after: str = "") -> Pruned:
        """A step through the records of all users, the shared ones first, and then those of each
        that are private. `after` is the `next` of the step before."""
        place, _, owner = after.partition(" ")
        done = self.step(store(owner), pruning, after=place)
        if done.next:
            return Pruned(done.records, f"{done.next} {owner}")
        owners = (one for one in self._owners() if one > owner)
        following = next(owners, None)
        return Pruned(done.records, "" if following is None else f" {following}")

    def _owners(self) -> list[str]:
        """Return the names of the users who have private records, sorted."""
        stores: list[str] = self._client.command("SMEMBERS", STORES)
        private = (one.removeprefix(PRIVATE) for one in stores if one.startswith(PRIVATE))
        return sorted(one.removesuffix(":") for one in private)

    def _removed(self, records: Records, entries: Sequence[StoredRecord]) -> int:
        words = [word for one in entries for word in RecordEntry.of_line(one.line).words]
        return int(self._remove([one.id for one in entries], [*words, records.store]))


def _to_remove(
    records: Records, pruning: Pruning, page: Sequence[StoredRecord]
) -> Iterator[StoredRecord]:
    """Those of the page; with a number to keep, all of each task of which there are some."""
    if pruning.keep is None:
        yield from _chosen(pruning, page)
        return
    known = [one.record for one in page if one.record is not None]
    selected = [record for record in known if pruning.selection.admits(record)]
    for task, target in dict.fromkeys((each.task, each.fingerprint) for each in selected):
        yield from _chosen(pruning, records.stored(task, target))


def _chosen(pruning: Pruning, stored: Iterable[StoredRecord]) -> Iterator[StoredRecord]:
    found = {one.record: one for one in stored if one.record is not None}
    return (found[record] for record in pruning.records_to_remove(found.keys()))
