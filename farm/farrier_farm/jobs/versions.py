"""The versions of a job's artifact, as fields of the job.

    versions     the sha256 of each, the oldest first, with blanks between them
    version:<n>  JSON of what else there is to know of version n: bytes, created, medians
    report:<n>   JSON of its report
    kept         the number of the one that a user went back to

All but `kept` are written under the lease of the attempt, and none of them is changed again but for
what is added; `kept` is the users' alone. So neither undoes the other, in whatever order they come.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.artifact.medians import medians

VERSIONS = "versions"
KEPT = "kept"


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """Numbered from 1. `median_ms` is what a run took in the race by which the version came, and
    `untuned_ms` what the untuned model took in it; without a race, both are of the verification.
    None: not measured. `created` is in Unix seconds."""

    number: int
    artifact: str  # sha256
    artifact_bytes: int
    created: float
    median_ms: float | None
    untuned_ms: float | None


def times_of(report: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """The medians that an artifact's report tells. Raises ValueError, TypeError, KeyError or
    AttributeError for what is no such report."""
    median_ms, untuned_ms = medians(report)
    return _finite(median_ms), _finite(untuned_ms)


def next_version(
    before: Sequence[Version], artifact: str, artifact_bytes: int, report: Mapping[str, Any]
) -> Version:
    """The version that comes after those. Raises as `times_of`."""
    median_ms, untuned_ms = times_of(report)
    number, created = len(before) + 1, round(time.time(), 3)
    return Version(number, artifact, artifact_bytes, created, median_ms, untuned_ms)


def fields_with(
    before: Sequence[Version], new: Version, report: Mapping[str, Any]
) -> dict[str, str]:
    """The fields of a job that gets a new version, and then weighs what all of them do."""
    bytes_of = {one.artifact: one.artifact_bytes for one in (*before, new)}
    told = {
        "bytes": new.artifact_bytes,
        "created": new.created,
        "median_ms": new.median_ms,
        "untuned_ms": new.untuned_ms,
    }
    return {
        VERSIONS: " ".join(one.artifact for one in (*before, new)),
        f"version:{new.number}": json.dumps(told),
        f"report:{new.number}": json.dumps(report),
        "artifact_bytes": str(sum(bytes_of.values())),
    }


def versions_of(fields: Mapping[str, str]) -> tuple[Version, ...]:
    """Those of a job that has these fields."""
    found = []
    for number, artifact in enumerate(fields.get(VERSIONS, "").split(), 1):
        told = json.loads(fields[f"version:{number}"])
        times = told["created"], told["median_ms"], told["untuned_ms"]
        found.append(Version(number, artifact, told["bytes"], *times))
    return tuple(found)


def current_of(fields: Mapping[str, str], versions: Sequence[Version]) -> Version | None:
    """The one in use: that which a user went back to, else the newest."""
    kept = fields.get(KEPT)
    return versions[-1 if kept is None else int(kept) - 1] if versions else None


def _finite(ms: Any) -> float | None:
    if ms is None or (isinstance(ms, int | float) and math.isfinite(ms)):
        return ms
    raise ValueError(f"{ms!r} is no time")
