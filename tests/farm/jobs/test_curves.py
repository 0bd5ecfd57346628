"""Curves of the best time: bounded however long the job is, and what they must show is in them."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farrier import progress
from farrier.errors import NotFoundError
from farrier.options import CompileOptions
from farrier.records import Context, TuningRecord
from farrier_device.measurement import Status
from farrier_farm.farm import Farm
from farrier_farm.jobs.curves import Point, thinned
from farrier_farm.leases.leases import Lease
from farrier_farm.redis.scripts import read_scripts
from tests.here import TARGET

MODEL = "5e" * 32
_THINNED = """
local texts = {}
for _, text in ipairs(ARGV) do texts[#texts + 1] = text end
return thinned(texts)
"""

steps = st.lists(
    st.tuples(st.integers(0, 100), st.floats(0.001, 1e6), st.booleans()), min_size=3, max_size=120
)


def _curve(drawn: list[tuple[int, float, bool]], falls: bool) -> list[Point]:
    """Points at trials that do not go back, a second apart; each time is below the one before if it
    `falls`."""
    points, trial, time = [], 0, 1e6
    for second, (gap, value, rises) in enumerate(drawn):
        trial += gap
        time = value if rises and not falls else time * (1 - 0.5 / (1 + value))
        points.append(Point(trial, second, time))
    return points


@given(steps, st.integers(3, 40), st.booleans())
def test_a_thinned_curve_has_its_ends_its_lowest_point_and_no_other_points(drawn, most, falls):
    points = _curve(drawn, falls)
    kept = thinned(points, most)
    assert len(kept) == min(most, len(points))
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert min(point.time for point in kept) == min(point.time for point in points)
    places = [points.index(point) for point in kept]
    assert places == sorted(places)
    if falls:
        times = [point.time for point in kept]
        assert times == sorted(times, reverse=True)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.booleans())
def test_what_is_stored_is_thinned_to_half_by_the_same_rule(farm: Farm, drawn, falls):
    points = _curve(drawn, falls)
    script = read_scripts("curves") + _THINNED
    texts = [f"{point.trial} {point.seconds!r} {point.time!r}" for point in points]
    kept = farm.client.script(script)([], texts)
    assert (kept[0], kept[-1]) == (texts[0], texts[-1])
    assert texts[min(range(len(points)), key=lambda n: points[n].time)] in kept
    assert len(points) // 2 <= len(kept) <= len(points) // 2 + 3
    left_out = set(range(len(texts))) - {texts.index(text) for text in kept}
    assert not any({n + 1, n + 2} <= left_out for n in left_out)


def _begin(farm: Farm) -> Lease:
    farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    lease = farm.jobs.lease("w", 0)
    assert lease is not None
    return lease


def _measured(trials: int, best_ms: float) -> progress.TrialsMeasured:
    return progress.TrialsMeasured(trials, None, best_ms, None, "conv")


def _record(number: int, ns: int | None, context: Context = Context.ALONE) -> TuningRecord:
    return TuningRecord(
        task="k",
        fingerprint="f",
        threads=2,
        rule="tile",
        version=3,
        decisions=(("ti", number),),
        trace="",
        status=Status.TIMEOUT if ns is None else Status.OK,
        samples_ns=() if ns is None else (ns,),
        context=context,
    )


def test_a_curve_has_a_point_for_each_change_of_the_best_time(farm: Farm):
    lease = _begin(farm)
    said = [(16, float("inf")), (32, 9.0), (48, 11.0), (64, 11.0), (80, 4.5)]
    for number, (trials, best_ms) in enumerate(said, start=1):
        farm.jobs.say(lease, number, _measured(trials, best_ms))
    # The event is repeated, because its answer was lost.
    farm.jobs.say(lease, 5, _measured(999, 1.0))
    curve = farm.curves.read(lease.item, 500, 100)
    assert [(p.trial, p.time) for p in curve.points] == [(32, 9.0), (48, 11.0), (80, 4.5)]
    seconds = [p.seconds for p in curve.points]
    assert seconds == sorted(seconds)
    assert curve.trials == 80
    events = farm.events.read(lease.item)
    assert curve.event == events[-1].id
    assert [e.data["trial"] for e in events if "trial" in e.data] == [t for t, _ in said]
    assert [e.data["seconds"] for e in events if e.data.get("trial") in (32, 48, 80)] == seconds


def test_trials_are_counted_on_where_another_attempt_begins_anew(farm: Farm):
    lease = _begin(farm)
    farm.jobs.say(lease, 1, _measured(40, 5.0))
    farm.jobs.give_back(lease, crashed=False, reason="drained")
    again = farm.jobs.lease("w", 0)
    assert again is not None
    farm.jobs.say(again, 1, _measured(10, 4.0))
    farm.jobs.say(again, 2, _measured(20, 3.0))
    curve = farm.curves.read(lease.item, 500, 100)
    assert [p.trial for p in curve.points] == [40, 50, 60]
    assert curve.trials == 60


def test_the_curve_of_a_task_falls_and_leaves_out_other_contexts(farm: Farm):
    lease = _begin(farm)
    records = farm.records.of_job(lease.item)
    for number, ns in enumerate([5000, None, 7000, 4000, 4500]):
        records.add(_record(number, ns))
    records.add(_record(9, 10, Context.MODEL))
    farm.jobs.say(lease, 1, progress.TasksScheduled([_schedule()], {}))
    [curve] = farm.curves.read(lease.item, 500, 100).tasks
    assert (curve.name, curve.calls, curve.share) == ("conv", 2, 0.9)
    assert [p.trial for p in curve.points] == [1, 4]
    assert [p.time for p in curve.points] == pytest.approx([5000, 4000])


def _schedule() -> progress.TaskSchedule:
    return progress.TaskSchedule(
        "k", "conv", 2, 0.9, "tile", 3, 700, {"ti": 1}, 8.0, {"ti": 1}, "default", 8.0
    )


def test_a_long_job_has_a_short_curve_that_no_event_pushes_out(farm: Farm):
    lease = _begin(farm)
    draw = random.Random(7)
    best, said = 1000.0, []
    for number in range(1, 3001):
        best *= 1 - draw.random() ** 3 / 100
        said.append((16 * number, best))
        farm.jobs.say(lease, number, _measured(16 * number, best))
    length = farm.client.command("LLEN", f"farrier:job:curve:{lease.item}")
    assert 1024 <= length <= 2048
    full = farm.curves.read(lease.item, 2048, 100)
    assert len(full.points) == length
    shown = [(p.trial, p.time) for p in full.points]
    assert shown[0] == said[0]
    assert shown[-1] == said[-1]
    assert set(shown) <= set(said)
    assert len(farm.curves.read(lease.item, 300, 100).points) == 300


def test_a_job_of_an_older_version_has_the_curve_that_its_events_tell(farm: Farm):
    lease = _begin(farm)
    for number, trials in enumerate((16, 32, 8), start=1):
        event = f'{{"kind":"trials-measured","trials":{trials},"best_ms":{90 - 10 * number}}}'
        farm.jobs.leases.write(lease, number, event, {"trials": str(trials)})
    farm.jobs.leases.write(lease, 4, '{"kind":"trials-measured","trials":9,"best_ms":null}', {})
    farm.records.of_job(lease.item).add(_record(1, 70))
    farm.client.command("DEL", f"farrier:job:curves:{lease.item}")
    farm.jobs.say(lease, 5, progress.TasksScheduled([_schedule()], {}))
    curve = farm.curves.read(lease.item, 500, 100)
    assert [(p.trial, p.time) for p in curve.points] == [(16, 80), (32, 70), (40, 60)]
    [point] = curve.tasks[0].points
    assert (point.trial, point.time) == (1, pytest.approx(70))  # type: ignore[comparison-overlap]


def test_a_curve_goes_with_the_events_of_its_job(farm: Farm):
    lease = _begin(farm)
    farm.jobs.say(lease, 1, _measured(16, 2.0))
    farm.records.of_job(lease.item).add(_record(1, 70))
    farm.jobs.cancel(lease.item)
    names = [f"farrier:job:{name}:{lease.item}" for name in ("curve", "curves", "log")]
    assert all(farm.client.command("TTL", name) > 0 for name in names)
    farm.delete(lease.item)
    assert not any(farm.client.command("EXISTS", name) for name in names)
    with pytest.raises(NotFoundError):
        farm.curves.read(lease.item, 500, 100)
