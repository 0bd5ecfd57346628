"""Event streams: resumable by id, waiting, bounded."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest

from farrier import progress
from farrier.errors import UsageError
from farrier.options import CompileOptions
from farrier_farm.farm import Farm
from farrier_farm.jobs.events import Events
from farrier_farm.jobs.jobs import Jobs
from tests.here import TARGET

MODEL = "5e" * 32


def test_reading_on_from_any_id_loses_and_repeats_nothing(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    lease = farm.jobs.lease("w", 0)
    for number in range(1, 14):
        farm.jobs.say(lease, number, progress.Warned(f"warning {number}"))
    everything = farm.events.read(job.id)
    assert [e.data.get("message") for e in everything[2:]] == [f"warning {n}" for n in range(1, 14)]
    for position, event in enumerate(everything):
        assert farm.events.read(job.id, after=event.id) == everything[position + 1 :]
    assert farm.events.read(job.id, limit=4) == everything[:4]


def test_a_reader_waits_for_the_next_event(farm: Farm) -> None:
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    newest = farm.events.read(job.id)[-1].id
    timer = threading.Timer(0.2, farm.jobs.cancel, [job.id])
    timer.start()
    begin = time.monotonic()
    events = farm.events.read(job.id, after=newest, wait_s=10)
    assert time.monotonic() - begin < 2
    assert [e.last for e in events] == [True]
    timer.join()
    assert farm.events.read(job.id, after=events[-1].id, wait_s=0.05) == []


@pytest.mark.parametrize("text", ["-", "1", "1-", "x-1", "1-1\n", "1" * 30 + "-1", "$"])
def test_a_malformed_id_is_refused(farm: Farm, text: str) -> None:
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    with pytest.raises(UsageError, match="id of an event"):
        farm.events.read(job.id, after=text)


def test_streams_are_bounded(farm: Farm) -> None:
    settings = dataclasses.replace(farm.settings, events_kept=100)
    jobs = Jobs(farm.client, settings, farm.admission)
    job = jobs.submit(MODEL, CompileOptions(target=TARGET))
    lease = jobs.lease("w", 0)
    for number in range(1, 1001):
        jobs.say(lease, number, progress.Warned(f"warning {number}"))
    kept = Events(farm.client, jobs).read(job.id, limit=10_000)
    assert 100 <= len(kept) <= 300  # The stream drops whole nodes.
    assert kept[-1].data["message"] == "warning 1000"
