"""Which workers are alive: each says so now and then, and is forgotten when it does not."""

from __future__ import annotations

import dataclasses
import json

from farrier_farm.connection import Client
from farrier_farm.settings import Settings

_PREFIX = "farrier:worker:"


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    """`jobs` are the ids of those that it runs, of at most `slots` at once."""

    name: str
    jobs: tuple[str, ...]
    slots: int
    draining: bool


class Workers:
    """Raises ServiceError where Redis is out of reach."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._expiry_ms = int(settings.lease_s * 1000)

    def beat(self, worker: Worker) -> None:
        """A sign of life, good for `lease_s`."""
        text = json.dumps(dataclasses.asdict(worker))
        self._client.command("SET", _PREFIX + worker.name, text, "PX", self._expiry_ms)
        self._client.command("SADD", "farrier:worker", worker.name)

    def leave(self, name: str) -> None:
        """Says goodbye."""
        self._client.command("DEL", _PREFIX + name)
        self._client.command("SREM", "farrier:worker", name)

    def list(self) -> list[Worker]:
        """Those alive, by name."""
        alive = []
        for name in sorted(self._client.command("SMEMBERS", "farrier:worker")):
            text = self._client.command("GET", _PREFIX + name)
            if text is None:
                self._client.command("SREM", "farrier:worker", name)
                continue
            fields = json.loads(text)
            alive.append(Worker(**{**fields, "jobs": tuple(fields["jobs"])}))
        return alive
