"""The audit log: the user, time and origin of each change of the farm.

farrier:audit                    stream of entries. Entries older than `audit_age_s` are removed. If
                                 there are more than `audit_kept`, the oldest entries of the user
                                 with most entries are removed
farrier:audit:counts             sorted set: role and user → the number of the user's entries
farrier:audit:of:<role and user> list of the ids of the user's entries, the oldest first
<home>/audit.pending             lines of JSON: entries of commands that ran on the farm's machine
                                 while Redis was unavailable; the next garbage collection imports
                                 them

Entries are never changed, and no request removes an entry: a user who causes too many entries
displaces only the user's own. Entries name objects and contain neither content nor secrets. Every
process that adds an entry also writes it to its own log, at the level INFO.
"""

from __future__ import annotations

import dataclasses
import fcntl
import getpass
import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farrier.errors import FarrierError, ServiceError
from farrier_device.storage import durable
from farrier_farm import disk
from farrier_farm.redis import embedded
from farrier_farm.redis.connection import Client, connect
from farrier_farm.redis.retry import PROBE
from farrier_farm.settings import Settings

AUDIT = "farrier:audit"
_COUNTS = "farrier:audit:counts"
PENDING = "audit.pending"
OK = "ok"
_LONGEST = 200  # The most characters of a field, because paths and names may be of any length.
_LOOKED_AT = 10_000  # The most entries that a search for one page examines.
_AT_ONCE = 1000
_FIELDS = ("user", "role", "action", "object", "address", "outcome")

# Lua functions that keep each user's entries in a list. KEYS: entries, counts.
_LISTS = """
local function list_of(whose) return KEYS[1] .. ':of:' .. whose end
local function add(whose, id)
  redis.call('RPUSH', list_of(whose), id)
  redis.call('ZINCRBY', KEYS[2], 1, whose)
end
local function oldest_of(whose) return redis.call('LINDEX', list_of(whose), 0) end
local function drop_oldest_of(whose)
  redis.call('LPOP', list_of(whose))
  if tonumber(redis.call('ZINCRBY', KEYS[2], -1, whose)) <= 0 then
    redis.call('ZREM', KEYS[2], whose)
  end
end
"""
# ARGV: the user, the most entries, then the fields of the entry. If the lists are missing, as after
# an older version, they are built from the entries first.
_NOTE = f"""{_LISTS}
local after = redis.call('EXISTS', KEYS[2]) == 0 and '-'
while after do
  local entries = redis.call('XRANGE', KEYS[1], after, '+', 'COUNT', {_AT_ONCE})
  for _, entry in ipairs(entries) do
    local fields = {{}}
    for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
    add((fields.role or '') .. ' ' .. (fields.user or ''), entry[1])
  end
  after = #entries > 0 and '(' .. entries[#entries][1]
end
add(ARGV[1], redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3)))
for _ = 1, {_AT_ONCE} do
  if redis.call('XLEN', KEYS[1]) <= tonumber(ARGV[2]) then return end
  local whose = redis.call('ZREVRANGE', KEYS[2], 0, 0)[1]
  redis.call('XDEL', KEYS[1], oldest_of(whose))
  drop_oldest_of(whose)
end
"""
# ARGV: the time in ms; older entries are removed.
_AGE = f"""{_LISTS}
redis.call('XTRIM', KEYS[1], 'MINID', ARGV[1])
for _, whose in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local oldest = oldest_of(whose)
  while oldest and tonumber(oldest:match('%d+')) < tonumber(ARGV[1]) do
    drop_oldest_of(whose)
    oldest = oldest_of(whose)
  end
end
"""

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A change, or an attempt at a change. `object` is the id of the changed object, or "" for a
    change without an object; `outcome` is `OK`, or the code of the error that was returned."""

    user: str
    role: str
    action: str  # job.cancel, tokens.add, device.enrol, …
    object: str = ""
    # The address of the peer, or of the terminal at which the command was entered.
    address: str = ""
    outcome: str = OK
    at: float = 0.0  # Unix seconds
    id: str = ""  # grows with time

    def __str__(self) -> str:
        return (
            f"{self.user} ({self.role}) from {self.address or 'here'}: {self.action} "
            f"{self.object} {self.outcome}"
        ).replace("  ", " ")

    def shortened(self) -> Entry:
        """Return the entry with each field truncated to the maximum length of a stored field.

        Unprintable characters are escaped, so that a path can neither split a line of the log nor
        control a terminal.
        """
        fields: dict[str, Any] = {
            name: _printable(getattr(self, name)[:_LONGEST]) for name in _FIELDS
        }
        return dataclasses.replace(self, **fields)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)[:_LONGEST]


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A filter for entries: an entry has to match every field that is set. `since` is a Unix
    time."""

    user: str = ""
    action: str = ""  # The whole action, or the part before the dot.
    object: str = ""
    outcome: str = ""
    since: float = 0.0

    def has(self, entry: Entry) -> bool:
        return (
            self.user in ("", entry.user)
            and self.action in ("", entry.action, entry.action.partition(".")[0])
            and self.object in ("", entry.object)
            and self.outcome in ("", entry.outcome)
        )


class Audit:
    """The audit log. Safe to share between threads. Every method raises ServiceError if Redis is
    out of reach."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._home = settings.home
        self._kept = settings.audit_kept
        self._age_s = settings.audit_age_s
        self._note = client.script(_NOTE)
        self._age = client.script(_AGE)

    def note(self, entry: Entry) -> None:
        """Add an entry durably. The entry is also in this process's log, even if Redis fails."""
        entry = entry.shortened()
        _log.info("audit: %s", entry)
        self._add(entry)

    def _add(self, entry: Entry) -> None:
        at = entry.at or time.time()
        words: list[str | int] = [f"{entry.role} {entry.user}", self._kept, "at", f"{at:.3f}"]
        for name in _FIELDS:
            words += [name, getattr(entry, name)]
        self._note([AUDIT, _COUNTS], words)

    def read(self, wanted: Wanted, *, limit: int, after: str = "") -> tuple[list[Entry], str]:
        """Return a page of the entries that match `wanted`, the newest first, and the `after` to
        pass for the next page; "" on the last page. `after` is the id of an entry: the page
        contains only older entries. A call examines at most `_LOOKED_AT` entries, so a page may be
        short or empty although more entries match."""
        newest = f"({after}" if after else "+"
        oldest = str(int(wanted.since * 1000)) if wanted.since else "-"
        entries: list[Entry] = []
        looked = 0
        while looked < _LOOKED_AT:
            raw = self._client.command("XREVRANGE", AUDIT, newest, oldest, "COUNT", _AT_ONCE)
            for entry_id, fields in raw:
                looked += 1
                newest = f"({entry_id}"
                entry = _entry(entry_id, fields)
                if wanted.has(entry):
                    entries.append(entry)
                    if len(entries) == limit:
                        return entries, entry_id
            if len(raw) < _AT_ONCE:
                return entries, ""
        return entries, newest[1:]

    def keep(self) -> None:
        """Import the entries that commands wrote to a file while Redis was unavailable, and remove
        entries that are too old."""
        for entry in _pending_entries(self._home):
            self._add(entry)
        if self._age_s:
            oldest = int((time.time() - self._age_s) * 1000)
            self._age([AUDIT, _COUNTS], [oldest])


def note_command(settings: Settings, action: str, object_: str = "") -> None:
    """Add the action of a command to the audit log of the farm whose home is on this machine; if
    Redis is unavailable, to a file in the home. Raises StorageError if both fail."""
    entry = Entry(_login(), "host", action, object_, f"{socket.gethostname()} (command)")
    entry = dataclasses.replace(entry.shortened(), at=time.time())
    try:
        url = settings.redis_url
        path = embedded.socket_path(settings.home)
        if url is None and not path.exists():
            raise ServiceError("no farm is running")
        client = connect(url or f"unix://{path}", PROBE)
        try:
            Audit(client, settings)._add(entry)
        finally:
            client.close()
    except (FarrierError, OSError):
        _put_aside(settings.home, entry)


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # The user has no name.
        return str(os.getuid())


def _put_aside(home: Path, entry: Entry) -> None:
    path = home / PENDING
    line = json.dumps(dataclasses.asdict(entry)) + "\n"
    with disk.storage_errors(f"cannot write {path}"):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            durable.write_all(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _pending_entries(home: Path) -> list[Entry]:
    """Read the entries of the file `PENDING`, in which commands write while Redis is unavailable,
    and empty the file. Malformed lines are skipped."""
    path = home / PENDING
    if not path.exists():
        return []
    with disk.storage_errors(f"cannot read {path}"), path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        entries = [_read(line) for line in file]
        file.truncate(0)
    return [entry for entry in entries if entry is not None]


def _read(line: str) -> Entry | None:
    try:
        raw = json.loads(line)
        return Entry(at=float(raw["at"]), **{name: str(raw[name]) for name in _FIELDS})
    except (ValueError, KeyError, TypeError):
        _log.warning("a line of %s is damaged: %.200r", PENDING, line)
        return None


def _entry(entry_id: str, fields: Mapping[str, str]) -> Entry:
    texts = {name: fields.get(name, "") for name in _FIELDS}
    return Entry(at=float(fields.get("at") or 0), id=entry_id, **texts)
