"""Convert a profile to a trace for Chrome's about:tracing and Perfetto: the calls of a model one
after another, and within those of an accelerator its queues.

Copies and the host's own work between calls are left out, so each call starts where the previous
one ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from farrier.bench.profile import Profile
from farrier.runtime.artifact import Artifact
from farrier.targets.registry import backend_for

_HOST, _DEVICE = 1, 2  # Processes of the trace.
_CALLS = 0  # The host's lane; the device's is before those of its queues.


def timeline(artifact: Artifact, profile: Profile) -> dict[str, Any]:
    """Return the profile as the JSON object of a trace file."""
    backend = backend_for(artifact.manifest.architecture)
    traces, lanes = backend.traces(artifact.code)
    names = ("calls", *lanes)
    events = [*_names(_HOST, "host", ("calls",))]
    if traces:
        events += _names(_DEVICE, artifact.manifest.machine, names)
    now = 0.0
    for call in profile.ordered:
        trace = traces.get(call.function)
        process = _HOST if trace is None else _DEVICE
        events.append(_call(call.name, call.origin, process, now, call.seconds * 1e6))
        for event in trace or ():
            events.append(
                {**event, "ts": now + event["ts"], "pid": process, "tid": 1 + event["tid"]}
            )
        now += call.seconds * 1e6
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _call(name: str, origin: str, process: int, begin: float, duration: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": "call",
        "pid": process,
        "tid": _CALLS,
        "ts": begin,
        "dur": duration,
        "args": {"computes": origin},
    }


def _names(process: int, name: str, lanes: Iterable[str]) -> Iterable[dict[str, Any]]:
    """Yield the trace events that name a process and its lanes."""
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    for number, lane in enumerate(lanes):
        about = {"ph": "M", "pid": process, "tid": number}
        yield {**about, "name": "thread_name", "args": {"name": lane}}
        yield {**about, "name": "thread_sort_index", "args": {"sort_index": number}}
