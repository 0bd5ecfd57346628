"""A farm's tuning records from afar: pages that are read on, parts that are sent on, and steps that
are asked for until all is done. Whatever breaks goes on where it stood, for as long as the server
is waited for."""

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
_PART_BYTES = 512 << 10  # of lines that are sent together: one that is too long goes alone
_PART_LINES = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Imported:
    """How many records were new, and how many were there already."""

    added: int
    known: int


class FarmRecords:
    """Asks by `call`, again where a server that answered went away, for `patience_s`. They are the
    `private` ones of the caller, or those of all users."""

    def __init__(self, call: Call, *, patience_s: float, private: bool) -> None:
        self._call = call
        self._patience_s = patience_s
        self._store = {"private": True} if private else {}

    def show(self) -> list[RuleSummary]:
        """As `Client.show_records`."""
        found = self._asker()("GET", _RECORDS)
        return [
            from_json(RuleSummary, {**rule, "device_class": one["device_class"]})
            for one in found["classes"]
            for rule in one["rules"]
        ]

    def fastest(self, task: str, limit: int) -> list[KnownSchedule]:
        """As `Client.fastest_schedules`."""
        params = {"task": task, "limit": limit}
        found = self._asker()("GET", f"{_RECORDS}/fastest", params=params)
        return [from_json(KnownSchedule, raw) for raw in found["schedules"]]

    def export(self, chosen: Mapping[str, Any]) -> Iterator[str]:
        """As `Client.export_records`."""
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
        """Send numbered lines, and yield what is there after each part."""
        ask, added, known = self._asker(), 0, 0
        for first, part in _parts(lines):
            done = ask("POST", f"{_RECORDS}/import", params={"first": first}, content=part)
            added, known = added + done["added"], known + done["known"]
            yield Imported(added, known)

    def prune(self, request: Mapping[str, Any]) -> Iterator[int]:
        """Yield how many have gone after each step."""
        return self._in_steps("prune", request)

    def drop(self, device: str, since: float | None) -> Iterator[int]:
        """Yield how many of a device have gone after each step."""
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
        """Ask again what is safe to repeat, once something has been answered."""
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
    """Lines to be sent together, and the number of the first; blank ones stand for those that were
    left out between them. Of one that is too long, as much as shows the server that."""
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
