"""The removal of tuning records in steps, each of a limited number of records.

One script removes about a hundred records from all indexes. Therefore a process that is killed
between or within steps leaves consistent indexes, and at most stale archives, which the next step
or garbage collection rewrites.
"""

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

# The records that a step examines; records of a task with more schedules are examined together.
LOOKED_AT = 1000
_REMOVED_AT_ONCE = 100
_RENEWED = 100  # The archives that a step writes anew.

_REMOVE = """
local removed = 0
for i = 1, #KEYS do removed = removed + remove_record(KEYS[i], ARGV, 1 + (i - 1) * WORDS) end
return removed
"""


# Returns a user's private records, or for "" the shared ones.
Store: TypeAlias = Callable[[str], Records]


@dataclasses.dataclass(frozen=True, slots=True)
class Pruned:
    """The result of a step: the number of records that were removed, or in a dry run would be;
    `next` is the position of the next step, "" after the last."""

    records: int
    next: str


class RecordPruning:
    """The removal of records. Every method raises ServiceError if Redis is out of reach,
    StorageError if an archive does not fit on the disk."""

    def __init__(self, client: Client) -> None:
        shared = read_scripts("records")
        self._client = client
        self._remove = client.script(shared + _REMOVE)

    def step(
        self, records: Records, pruning: Pruning, *, after: str = "", is_dry: bool = False
    ) -> Pruned:
        """Examine the next `LOOKED_AT` records of a store, in the order of addition, and remove the
        records that `pruning` selects; in a dry run (`is_dry`), only count them. Records that this
        version cannot parse stay."""
        records.adopt()
        page, following = records.log(after, None, LOOKED_AT)
        doomed, removed = _to_remove(records, pruning, page), 0
        if is_dry:
            ids = {record.id for record in doomed}
            return Pruned(sum(record.id in ids for record in page), following)
        while some := list(itertools.islice(doomed, _REMOVED_AT_ONCE)):
            removed += self._removed(records, some)
        if records.archives.renew(_RENEWED) and not following:
            following = page[-1].id if page else after or "0-0"
        return Pruned(removed, following)

    def drop(self, store: Store, pruning: Pruning, *, after: str = "") -> Pruned:
        """Make one step of a removal from all stores of a farm: first the shared store, then each
        user's private store. `after` is the `next` of the previous step."""
        place, _, owner = after.partition(" ")
        done = self.step(store(owner), pruning, after=place)
        if done.next:
            return Pruned(done.records, f"{done.next} {owner}")
        owners = (name for name in self._owners() if name > owner)
        following = next(owners, None)
        return Pruned(done.records, "" if following is None else f" {following}")

    def _owners(self) -> list[str]:
        """Return the names of the users who have private records, sorted."""
        stores: list[str] = self._client.command("SMEMBERS", STORES)
        private = (name.removeprefix(PRIVATE) for name in stores if name.startswith(PRIVATE))
        return sorted(name.removesuffix(":") for name in private)

    def _removed(self, records: Records, entries: Sequence[StoredRecord]) -> int:
        words = [word for entry in entries for word in RecordEntry.of_line(entry.line).words]
        return int(self._remove([entry.id for entry in entries], [*words, records.store]))


def _to_remove(
    records: Records, pruning: Pruning, page: Sequence[StoredRecord]
) -> Iterator[StoredRecord]:
    """Yield the records of the page that `pruning` selects. If a number of records is to be kept of
    each task, all records of the tasks on the page are read."""
    if pruning.keep is None:
        yield from _chosen(pruning, page)
        return
    readable = [entry.record for entry in page if entry.record is not None]
    selected = [record for record in readable if pruning.selection.admits(record)]
    for task, target in dict.fromkeys((each.task, each.fingerprint) for each in selected):
        yield from _chosen(pruning, records.stored(task, target))


def _chosen(pruning: Pruning, stored: Iterable[StoredRecord]) -> Iterator[StoredRecord]:
    by_record = {entry.record: entry for entry in stored if entry.record is not None}
    return (by_record[record] for record in pruning.records_to_remove(by_record.keys()))
