"""Tests of summaries of records."""

from __future__ import annotations

from farrier.records import Context, RuleSummary, fastest, summarize
from farrier_device.measurement import Status
from tests.records.record_store_contract import a_record


def test_counts_by_device_class_and_rule():
    records = [
        a_record(created=5.0),
        a_record(created=2.0, task="b2"),
        a_record(created=3.0, status=Status.CRASHED, samples_ns=()),
        a_record(rule="rows", device_class="a76"),
    ]
    assert summarize(iter(records)) == [
        RuleSummary("", "register_tile", 3, 2, 1, 2.0, 5.0),
        RuleSummary("a76", "rows", 1, 1, 0, 1.5, 1.5),
    ]
    assert summarize([]) == []


def test_the_fastest_schedules_by_their_latest_record():
    def timed(ns, value, **fields):
        return a_record(samples_ns=(ns,), decisions=(("nb", value),), **fields)

    records = [
        timed(100, 1),
        timed(900, 1, created=9.0),
        timed(500, 2),
        timed(700, 3),
        timed(800, 4, context=Context.MODEL),
        timed(1, 5, context=Context.SCREENED),
        timed(3, 6, device_class="a76"),
        a_record(samples_ns=(), status=Status.TIMEOUT),
    ]
    summary = [
        (schedule.device_class, schedule.context, round(schedule.us, 6))
        for schedule in fastest(records, 2)
    ]
    assert summary == [
        ("", "model", 0.8),
        ("", "alone", 0.5),
        ("", "alone", 0.7),
        ("a76", "alone", 0.003),
    ]
