"""The results that the broker has not acknowledged yet, stored on the disk so that they survive a
crash."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from pathlib import Path

from farrier_device import codec
from farrier_device.storage import durable

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class PendingResult:
    """A result to be reported: `result` is the JSON text of a MeasureResult."""

    lease: str
    fence: int
    result: str

    @property
    def file_name(self) -> str:
        """The name of the result's file: a digest of the lease id, because that text comes from the
        broker and must not become a path."""
        digest = hashlib.sha256(f"{self.fence}:{self.lease}".encode()).hexdigest()
        return f"{digest[:32]}.json"


class Outbox:
    """The pending results in the folder `root`, oldest first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        files = sorted(root.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        self._pending = [pending for pending in map(_read, files) if pending is not None]

    def add(self, pending: PendingResult) -> None:
        """Store a pending result. On a full disk it is kept in memory only, until this process
        ends; otherwise it is on the disk before it is listed."""
        try:
            with durable.replacing(self._root / pending.file_name) as file:
                file.write(json.dumps(dataclasses.asdict(pending)).encode())
        except OSError as error:
            log.warning("cannot write the result of %s to disk: %s", pending.lease, error.strerror)
        self._pending.append(pending)

    def waiting(self) -> tuple[PendingResult, ...]:
        return tuple(self._pending)

    def delivered(self, pending: PendingResult) -> None:
        self._pending.remove(pending)
        (self._root / pending.file_name).unlink(missing_ok=True)


def _read(path: Path) -> PendingResult | None:
    try:
        return codec.loads(PendingResult, path.read_text())
    except ValueError:
        log.warning("removed %s, which does not contain a result", path)
        path.unlink()
        return None
