"""Access a farm's tuning records through its server: read pages, send batches, and repeat steps
until all is done. An interrupted transfer continues if the server comes back in time.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from farrier.errors import ServiceError
from farrier.records import LONGEST_LINE, KnownSchedule, RuleSummary
from farrier.sdk.models import from_json
from farrier.sdk.retry import Patience
from farrier.sdk.uploads import Call

_RECORDS = "/v1/records"
_PART_BYTES = 512 << 10  # Lines are sent together up to this size; a longer line is sent alone.
_PART_LINES = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Imported:
    """The number of new records, and of records that were stored already."""

    added: int
    present: int

    @property
    def known(self) -> int:
        """The former name of `present`, kept for compatibility."""
        return self.present


class FarmRecords:
    """The records of a farm, accessed by `call`.

    A request is repeated for at most `patience_s` if a server that answered before cannot be
    reached. With `private` these are the caller's private records, else the records shared by all
    users.
    """

    def __init__(self, call: Call, *, patience_s: float, private: bool) -> None:
        self._call = call
        self._patience_s = patience_s
        self._store = {"private": True} if private else {}

    def show(self) -> list[RuleSummary]:
        """Return the number of records, by device class and rule."""
        answer = self._asker()("GET", _RECORDS)
        return [
            from_json(RuleSummary, {**rule, "device_class": device_class["device_class"]})
            for device_class in answer["classes"]
            for rule in device_class["rules"]
        ]

    def fastest(self, task: str, limit: int) -> list[KnownSchedule]:
        """Return the fastest schedules of a task, as `Client.fastest_schedules` documents."""
        params = {"task": task, "limit": limit}
        answer = self._asker()("GET", f"{_RECORDS}/fastest", params=params)
        return [from_json(KnownSchedule, raw) for raw in answer["schedules"]]

    def export(self, chosen: Mapping[str, Any]) -> Iterator[str]:
        """Iterate over the selected records as JSON lines, as `Client.export_records` documents."""
        params = {name: value for name, value in chosen.items() if value is not None}
        ask, after = self._asker(), ""
        while True:
            page = ask("GET", f"{_RECORDS}/export", params={**params, "after": after})
            for raw in page["records"]:
                yield json.dumps(raw, sort_keys=True, separators=(",", ":"))
            after = page["next"]
            if not after:
                return

    def load(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Imported]:
        """Send the lines of a file, each with its number, in batches. After each batch, yield the
        numbers of new and of known records so far."""
        ask, added, present = self._asker(), 0, 0
        for first, part in _parts(lines):
            done = ask("POST", f"{_RECORDS}/import", params={"first": first}, content=part)
            added, present = added + done["added"], present + done["known"]
            yield Imported(added, present)

    def prune(self, request: Mapping[str, Any]) -> Iterator[int]:
        """Remove records step by step, and yield the number of removed records after each step."""
        return self._in_steps("prune", request)

    def drop(self, device: str, since: float | None) -> Iterator[int]:
        """Remove a device's records step by step, and yield the number of removed records after
        each step."""
        return self._in_steps("drop", {"device": device, "since": since})

    def _in_steps(self, verb: str, request: Mapping[str, Any]) -> Iterator[int]:
        ask, total, after = self._asker(), 0, ""
        while True:
            done = ask("POST", f"{_RECORDS}/{verb}", json={**request, "after": after})
            total += done["pruned"]
            yield total
            after = done["next"]
            if not after:
                return

    def _asker(self) -> Call:
        """Return a function that sends requests. After its first request was answered, it repeats
        requests that fail because the server cannot be reached, for at most `patience_s`. All
        requests must be safe to repeat."""
        patience = Patience(self._patience_s)

        def ask(method: str, path: str, params: Mapping[str, Any] = {}, **request: Any) -> Any:
            while True:
                try:
                    answer = self._call(method, path, params={**params, **self._store}, **request)
                except ServiceError as error:
                    patience.sleep_or_raise(error)
                else:
                    patience.renew()
                    return answer

        return ask


def _parts(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield batches of lines, each with the number of its first line. A gap in the numbers becomes
    blank lines in the batch, so that the server counts lines correctly. A line that is too long is
    cut, but stays so long that the server rejects it."""
    first, part = 0, bytearray()
    following = 0
    for number, whole in lines:
        line = whole[: LONGEST_LINE + 1]
        gap = number - following
        is_full = len(part) + len(line) > _PART_BYTES or number - first >= _PART_LINES
        if part and is_full:
            yield first, bytes(part)
            part.clear()
        if not part:
            first, gap = number, 0
        part += b"\n" * gap + line + b"\n"
        following = number + 1
    if part:
        yield first, bytes(part)
