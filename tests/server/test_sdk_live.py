"""The SDK's calls for who watches a farm."""

from __future__ import annotations

import pytest

from farrier.errors import NotFoundError
from farrier.progress import TrialsMeasured, Warned
from tests.server.test_trials import lease, record

__all__ = ["lease"]


def test_curve_log_choices_and_overview(service, lease):
    say, records = service.farm.jobs.say, service.farm.records.of_job(lease.item)
    say(lease, 1, Warned("hot"))
    say(lease, 2, TrialsMeasured(16, None, 9.0, None, "conv"))
    for number, ns in enumerate([5000, 3000, None]):
        records.add(record("a", number, ns))
    with service.client() as client:
        curve = client.curve(lease.item)
        assert [(point.trial, point.ms) for point in curve.points] == [(16, 9.0)]
        assert [point.trial for point in curve.tasks[0].points] == [1, 2]
        lines = list(client.log(lease.item))
        assert [line.text for line in lines] == ["queued", "running, attempt 1", "hot"]
        assert list(client.log(lease.item, after=lines[1].id)) == lines[2:]
        choices = client.choices(lease.item, "a")
        assert (choices.trials, [knob.knob for knob in choices.knobs]) == (3, ["ti"])
        assert choices.best_us == pytest.approx(3.0)
        fastest = client.trials(lease.item, order="fastest", status="ok")
        assert [trial.decisions["ti"] for trial in fastest] == [1, 0]
        overview = client.overview()
        assert (overview.jobs["running"], overview.running[0].id) == (1, lease.item)
        assert sum(minute.trials for minute in overview.throughput) == 3
        assert overview.records["count"] == 3
        for call in (client.curve, client.log):
            with pytest.raises(NotFoundError):
                list(call("nothing"))
