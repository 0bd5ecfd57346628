"""The kinds of jobs: compilations, and two kinds that prepare a document for viewing.

| kind | of | its artifact |
|---|---|---|
| compile | a model | the compiled model |
| inspect | a model | a JSON document: interface, operators, graph, what would not compile |
| list | a compiled job | an archive: its kernels, their texts, the graph of their calls |

Each kind has its own items, queues, fair shares and limits (`leases.py`). Therefore the short kinds
do not wait behind hours of tuning, lists of compilations need not skip other kinds, and processes
of a version that has only compilations do not see the other kinds. The id of a job contains its
kind.
"""

from __future__ import annotations

import enum

from farrier_farm.leases.leases import new_id


class JobKind(enum.StrEnum):
    """A kind of job. The value is also the name of its queue."""

    COMPILE = "compile"
    INSPECT = "inspect"
    LIST = "list"

    @property
    def items(self) -> str:
        """The name of jobs of this kind in Redis's keys and in messages."""
        return _ITEMS[self]

    @property
    def is_prepared(self) -> bool:
        """Return whether the kind prepares a document (an inspection or listing). A worker has a
        separate slot for such short jobs."""
        return self is not JobKind.COMPILE

    @property
    def most_bytes(self) -> int:
        """The largest size of an artifact of this kind, in bytes; 0 for no limit."""
        return _MOST_BYTES[self]

    def new_id(self) -> str:
        """Return a new id for a job of this kind; the ids of a kind sort by time of creation."""
        return f"{self}-{new_id()}" if self.is_prepared else new_id()

    @classmethod
    def of(cls, job_id: str) -> JobKind:
        """Return the kind of the job with this id."""
        head, dash, _ = job_id.partition("-")
        return next((kind for kind in PREPARED if dash and head == kind), cls.COMPILE)


PREPARED = tuple(kind for kind in JobKind if kind.is_prepared)
_ITEMS = {JobKind.COMPILE: "job", JobKind.INSPECT: "inspection", JobKind.LIST: "listing"}
_MOST_BYTES = {JobKind.COMPILE: 0, JobKind.INSPECT: 8 << 20, JobKind.LIST: 64 << 20}
