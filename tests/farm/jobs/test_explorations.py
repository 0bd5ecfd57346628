"""Explorations in the farm: pages, changes, and removal without a trace."""

from __future__ import annotations

import dataclasses
import time

import pytest

from farrier.errors import NotFoundError, QueueFullError
from farrier.options import CompileOptions
from farrier_farm.farm import Farm
from farrier_farm.jobs import explorations
from farrier_farm.jobs.explorations import ExplorationReader, JobStanding, ShapeArea
from tests.here import TARGET

SHAPES = {"a": {"name": "a"}, "b": {"name": "b"}}
AREAS = {"a": {"lanes": 1}, "b": {"lanes": 2}}
FIGURES = {"cycles": 3}


def _added(farm: Farm, name: str = "e", **options: object) -> str:
    return farm.explorations.add(name, SHAPES, AREAS, ["m"], **options).about.id


def _names(farm: Farm, *reader: object) -> list[str]:
    """The names of all explorations that a reader reads, page by page."""
    names, after = [], ""
    while True:
        page, after = farm.explorations.page(ExplorationReader(*reader), limit=2, after=after)
        names += [each.name for each in page]
        if not after:
            return names


def test_results_are_added(farm: Farm) -> None:
    added = _added(farm, owner="ann")
    before = farm.explorations.get(added)
    assert before.about.result_count == 0
    assert before.areas == {"a": ShapeArea({"lanes": 1}), "b": ShapeArea({"lanes": 2})}
    area = ShapeArea({"lut": 5}, [50.0, 60.0], "ECP5-45")
    farm.explorations.set_area(added, "b", area)
    farm.explorations.set_job(added, ("m", "a"), "j")
    for _ in range(2):
        farm.explorations.set_figures(added, ("m", "a"), FIGURES)
    after = farm.explorations.get(added)
    assert after.areas["b"] == dataclasses.replace(area, area={"lanes": 2, "lut": 5})
    assert (after.jobs, after.figures) == ({("m", "a"): "j"}, {("m", "a"): FIGURES})
    assert (after.about.owner, after.about.result_count) == ("ann", 1)
    assert after.about.changed >= before.about.changed == after.about.created
    assert farm.explorations.owner(added) == ("ann", False)


def test_pages_have_what_a_reader_may_read(farm: Farm) -> None:
    for number, (owner, private) in enumerate(
        [("ann", False), ("ann", True), ("ben", False), ("ben", True), ("eve", False)]
    ):
        _added(farm, f"{owner}{number}", owner=owner, private=private)
        time.sleep(0.002)  # Ids sort by milliseconds.
    assert _names(farm, "ann", {"ann"}, False) == ["ann1", "ann0"]
    assert _names(farm, "ann", {"ann", "ben"}, False) == ["ben2", "ann1", "ann0"]
    assert _names(farm, "ann", {"ann"}, True) == ["eve4", "ben2", "ann1", "ann0"]
    assert _names(farm, "zoe", {"zoe"}, False) == []


def test_nothing_is_left_of_a_removed_one(farm: Farm) -> None:
    keys = set(farm.client.command("KEYS", "*"))
    added = _added(farm, owner="ann")
    farm.explorations.set_area(added, "a", ShapeArea({"lut": 5}))
    farm.explorations.set_job(added, ("m", "a"), "j")
    farm.explorations.set_figures(added, ("m", "a"), FIGURES)
    farm.explorations.remove(added)
    changes = (
        lambda: farm.explorations.set_area(added, "a", ShapeArea({})),
        lambda: farm.explorations.set_job(added, ("m", "a"), "j"),
        lambda: farm.explorations.set_figures(added, ("m", "a"), FIGURES),
        lambda: farm.explorations.get(added),
        lambda: farm.explorations.owner(added),
        lambda: farm.explorations.remove(added),
    )
    for change in changes:
        with pytest.raises(NotFoundError, match=f"no exploration '{added}'"):
            change()
    assert set(farm.client.command("KEYS", "*")) == keys


def test_a_user_has_a_bounded_number(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorations, "MOST_EXPLORATIONS", 2)
    first = _added(farm, owner="ann")
    _added(farm, owner="ann", private=True)
    with pytest.raises(QueueFullError, match="ann already has 2 explorations"):
        _added(farm, owner="ann")
    _added(farm, owner="ben")
    farm.explorations.remove(first)
    _added(farm, owner="ann")


def test_the_oldest_are_removed_as_jobs_are(farm: Farm) -> None:
    old, new = _added(farm, "old"), _added(farm, "new")
    then = int((time.time() - farm.settings.job_age_s - 60) * 1000)
    farm.client.command("ZADD", "farrier:explorations:changed", then, old)
    farm.retention.apply()
    assert _names(farm, "default", {"default"}, False) == ["new"]
    farm.client.command("ZADD", "farrier:explorations:changed", then, new)
    farm.explorations.set_figures(new, ("m", "a"), FIGURES)  # It is in use.
    farm.retention.apply()
    assert _names(farm, "default", {"default"}, False) == ["new"]


def test_the_standings_of_jobs_are_read_together(farm: Farm) -> None:
    job = farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET), owner="ann", private=True)
    assert farm.explorations.job_standings([job.id, "0" * 20]) == {
        job.id: JobStanding("queued", "ann", True)
    }
    assert farm.explorations.job_standings([]) == {}
