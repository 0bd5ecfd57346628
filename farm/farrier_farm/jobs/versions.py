"""The versions of a job's artifact, as fields of the job.

    versions     the sha256 of each, the oldest first, with blanks between them
    version:<n>  JSON of what else there is to know of version n: bytes, created, medians
    report:<n>   JSON of its report
    kept         the number of the one that a user went back to

All but `kept` are written under the lease of the attempt, and none of them is changed again but for
what is added; `kept` is the users' alone. So neither undoes the other, in whatever order they come.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.artifact.medians import medians
from farrier.sdk.job import JobVersion

VERSIONS = "versions"
KEPT = "kept"


def times_of(report: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """The medians that an artifact's report tells. Raises ValueError, TypeError, KeyError or
    AttributeError for what is no such report."""
    median_ms, untuned_ms = medians(report)
    return _finite(median_ms), _finite(untuned_ms)


def next_version(
    before: Sequence[JobVersion], artifact: str, artifact_bytes: int, report: Mapping[str, Any]
) -> JobVersion:
    """The version that comes after those. Raises as `times_of`."""
    median_ms, untuned_ms = times_of(report)
    number, created = len(before) + 1, round(time.time(), 3)
    return JobVersion(number, artifact, artifact_bytes, created, median_ms, untuned_ms)


def fields_with(
    before: Sequence[JobVersion], new: JobVersion, report: Mapping[str, Any]
) -> dict[str, str]:
    """The fields of a job that gets a new version, and then weighs what all of them do."""
    bytes_of = {one.artifact: one.bytes for one in (*before, new)}
    told = {
        "bytes": new.bytes,
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


def versions_of(fields: Mapping[str, str]) -> tuple[JobVersion, ...]:
    """Those of a job that has these fields."""
    found = []
    for number, artifact in enumerate(fields.get(VERSIONS, "").split(), 1):
        told = json.loads(fields[f"version:{number}"])
        times = told["created"], told["median_ms"], told["untuned_ms"]
        found.append(JobVersion(number, artifact, told["bytes"], *times))
    return tuple(found)


def current_of(fields: Mapping[str, str], versions: Sequence[JobVersion]) -> JobVersion | None:
    """The one in use: that which a user went back to, else the newest."""
    kept = fields.get(KEPT)
    return versions[-1 if kept is None else int(kept) - 1] if versions else None


def _finite(ms: Any) -> float | None:
    if ms is None or (isinstance(ms, int | float) and math.isfinite(ms)):
        return ms
    raise ValueError(f"{ms!r} is no time")
