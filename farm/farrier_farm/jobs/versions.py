"""The versions of a job's artifact, which are stored in fields of the job.

    versions     the SHA-256 of each version, the oldest first, separated by blanks
    version:<n>  JSON of version n: its size in bytes, time of creation, and median times
    report:<n>   JSON of the report of version n
    kept         the number of the version that a user has selected

All fields except `kept` are written by the attempt that holds the lease, and a version that was
added never changes; only users write `kept`. Therefore an attempt and a user never overwrite each
other's data, in whatever order they write.
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
    """Return the two median times in an artifact's report, in ms. Raises ValueError, TypeError,
    KeyError or AttributeError for a malformed report."""
    median_ms, untuned_ms = medians(report)
    return _finite(median_ms), _finite(untuned_ms)


def next_version(
    before: Sequence[JobVersion], artifact: str, artifact_bytes: int, report: Mapping[str, Any]
) -> JobVersion:
    """Return the version that follows the versions `before`. Raises the errors of `times_of`."""
    median_ms, untuned_ms = times_of(report)
    number, created = len(before) + 1, round(time.time(), 3)
    return JobVersion(number, artifact, artifact_bytes, created, median_ms, untuned_ms)


def fields_with(
    before: Sequence[JobVersion], new: JobVersion, report: Mapping[str, Any]
) -> dict[str, str]:
    """Return the fields of a job that change when the version `new` with its `report` is added to
    the versions `before`. One of them is the total size of all versions."""
    bytes_of = {version.artifact: version.bytes for version in (*before, new)}
    details = {
        "bytes": new.bytes,
        "created": new.created,
        "median_ms": new.median_ms,
        "untuned_ms": new.untuned_ms,
    }
    return {
        VERSIONS: " ".join(version.artifact for version in (*before, new)),
        f"version:{new.number}": json.dumps(details),
        f"report:{new.number}": json.dumps(report),
        "artifact_bytes": str(sum(bytes_of.values())),
    }


def versions_of(fields: Mapping[str, str]) -> tuple[JobVersion, ...]:
    """Return the artifact versions of a job with these fields."""
    versions = []
    for number, artifact in enumerate(fields.get(VERSIONS, "").split(), 1):
        details = json.loads(fields[f"version:{number}"])
        times = details["created"], details["median_ms"], details["untuned_ms"]
        versions.append(JobVersion(number, artifact, details["bytes"], *times))
    return tuple(versions)


def current_of(fields: Mapping[str, str], versions: Sequence[JobVersion]) -> JobVersion | None:
    """Return the version in use: the version in the field `kept`, else the newest."""
    kept = fields.get(KEPT)
    return versions[-1 if kept is None else int(kept) - 1] if versions else None


def _finite(ms: Any) -> float | None:
    if ms is None or (isinstance(ms, int | float) and math.isfinite(ms)):
        return ms
    raise ValueError(f"{ms!r} is not a valid time")
