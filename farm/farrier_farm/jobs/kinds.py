"""What jobs there are: compilations, and what is prepared in a worker to be looked at.

| kind | of | its artifact |
|---|---|---|
| compile | a model | the compiled model |
| inspect | a model | a JSON document: interface, operators, graph, what would not compile |
| list | a compiled job | an archive: its kernels, their texts, the graph of their calls |

Each kind has items, queues, shares and bounds of its own (`leases.py`), so the short ones do not
wait behind hours of tuning, no list of compilations goes through others, and roles of a version
that knows compilations alone see nothing of the rest. The id of a job tells its kind.
"""

from __future__ import annotations

import enum

from farrier_farm.leases.leases import new_id


class JobKind(enum.StrEnum):
    """The value is also the name of the queue."""

    COMPILE = "compile"
    INSPECT = "inspect"
    LIST = "list"

    @property
    def items(self) -> str:
        """What its items are called in Redis's keys and in messages."""
        return _ITEMS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether it is one of the short ones, which have a slot of their own in a worker."""
        return self is not JobKind.COMPILE

    @property
    def most_bytes(self) -> int:
        """Of its artifact; 0: any number."""
        return _MOST_BYTES[self]

    def new_id(self) -> str:
        """Sort by time of creation within the kind."""
        return f"{self}-{new_id()}" if self.is_prepared else new_id()

    @classmethod
    def of(cls, job_id: str) -> JobKind:
        """The kind of the job with this id."""
        head, dash, _ = job_id.partition("-")
        return next((kind for kind in PREPARED if dash and head == kind), cls.COMPILE)


PREPARED = tuple(kind for kind in JobKind if kind.is_prepared)
_ITEMS = {JobKind.COMPILE: "job", JobKind.INSPECT: "inspection", JobKind.LIST: "listing"}
_MOST_BYTES = {JobKind.COMPILE: 0, JobKind.INSPECT: 8 << 20, JobKind.LIST: 64 << 20}
