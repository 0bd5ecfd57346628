"""Jobs that somebody looks for: every order, page by page, against sorting all of them."""

from __future__ import annotations

import itertools
import random

import pytest

from farrier import progress
from farrier.errors import UsageError
from farrier.options import CompileOptions
from farrier_farm.farm import Farm
from farrier_farm.jobs import search
from farrier_farm.jobs.jobs import Job
from farrier_farm.jobs.search import JobOrder, JobQuery, Shown
from farrier_farm.leases.states import State
from tests.here import TARGET

MODEL = "5e" * 32
NAMES = ["resnet18", "ResNet50", "mobilenet", "", "<b>net</b>", "Ölnetz"]
KEYS = {
    JobOrder.CREATED: lambda job: job.id,
    JobOrder.FINISHED: lambda job: job.finished,
    JobOrder.NAME: lambda job: job.name.casefold(),
    JobOrder.BEST: lambda job: job.best_ms,
}


@pytest.fixture
def jobs(farm: Farm) -> list[Job]:
    """Some of every kind."""
    draw = random.Random(3)
    ids = []
    for number in range(26):
        ids.append(
            farm.jobs.submit(
                MODEL,
                CompileOptions(target=TARGET if number % 3 else "rpi4", verify=False, seed=number),
                name=NAMES[number % len(NAMES)],
                owner=("ann", "bob")[number % 2],
            ).id
        )
    for number in range(20):
        lease = farm.jobs.lease("w", 0)
        assert lease is not None
        if number % 4:
            best = draw.choice([3.5, 2.25, 17.0])
            event = progress.TrialsMeasured(16, None, best, None, "conv")
            farm.jobs.say(lease, 1, event)
        if number % 3:
            farm.jobs.succeed(lease, "a7" * 32, {})
        elif number % 2:
            farm.jobs.fail(lease, UsageError("no"))
    return [farm.jobs.get(job_id) for job_id in ids]


def _pages(farm: Farm, query: JobQuery, limit: int) -> list[Job]:
    collected: list[Job] = []
    after = ""
    while True:
        page = farm.jobs.search(query, limit=limit, after=after)
        assert len(page.jobs) <= limit
        collected += page.jobs
        after = page.next
        if not after:
            assert page.complete
            return collected


def _sorted(jobs: list[Job], order: JobOrder, descending: bool) -> list[Job]:
    key = KEYS[order]
    with_key = [job for job in jobs if key(job) is not None]
    rest = [job for job in jobs if key(job) is None]
    with_key.sort(key=lambda job: (key(job), job.id), reverse=descending)
    rest.sort(key=lambda job: job.id, reverse=descending)
    return with_key + rest


def test_pages_in_any_order_are_all_jobs_once_and_sorted(farm: Farm, jobs: list[Job]) -> None:
    for order, descending in itertools.product(JobOrder, (True, False)):
        for limit in (1, 4, 100):
            query = JobQuery(order=order, descending=descending)
            assert _pages(farm, query, limit) == _sorted(jobs, order, descending), (order, limit)


@pytest.mark.parametrize("order", JobOrder)
def test_what_is_found_matches_and_nothing_else_does(
    farm: Farm, jobs: list[Job], order: JobOrder
) -> None:
    expected = {
        JobQuery(text="resnet", order=order): lambda job: "resnet" in job.name.lower(),
        JobQuery(text="öl", order=order): lambda job: job.name == "Ölnetz",
        JobQuery(text=jobs[7].id[-12:].upper(), order=order): lambda job: job.id == jobs[7].id,
        JobQuery(text="rpi4", order=order): lambda job: job.target == "rpi4",
        JobQuery(target="RPI", order=order): lambda job: job.target == "rpi4",
        JobQuery(target="resnet", order=order): lambda job: False,
        JobQuery(text="cores", order=order): lambda job: job.target != "rpi4",
        JobQuery(text="l2_bytes", order=order): lambda job: False,
        JobQuery(state=State.QUEUED, order=order): lambda job: job.state is State.QUEUED,
        JobQuery(text="net", owner="ann", state=State.SUCCEEDED, order=order): lambda job: (
            "net" in job.name.lower() and job.owner == "ann" and job.state is State.SUCCEEDED
        ),
    }
    for query, matches in expected.items():
        due = _sorted([job for job in jobs if matches(job)], order, True)
        assert _pages(farm, query, 3) == due, query


def test_a_page_goes_on_where_its_last_job_was_deleted(farm: Farm, jobs: list[Job]) -> None:
    for order in JobOrder:
        query = JobQuery(order=order)
        page = farm.jobs.search(query, limit=3)
        farm.delete(page.jobs[-1].id)
        rest = farm.jobs.search(query, limit=100, after=page.next).jobs
        jobs = [job for job in jobs if job.id != page.jobs[-1].id]
        assert [*page.jobs[:-1], *rest] == _sorted(jobs, order, True)


def test_no_more_than_the_newest_are_looked_at(farm: Farm, jobs: list[Job], monkeypatch) -> None:
    monkeypatch.setattr(search, "LOOKED_AT", 10)
    for order in (JobOrder.NAME, JobOrder.FINISHED, JobOrder.BEST):
        page = farm.jobs.search(JobQuery(order=order), limit=100)
        assert not page.complete
        assert list(page.jobs) == _sorted(jobs[-10:], order, True)
    # By creation the next page looks further.
    rare = JobQuery(text=jobs[3].id)
    page = farm.jobs.search(rare)
    assert (page.jobs, page.complete) == ([], False)
    page = farm.jobs.search(rare, after=page.next)
    page = farm.jobs.search(rare, after=page.next)
    assert ([job.id for job in page.jobs], page.next, page.complete) == ([jobs[3].id], "", True)


@pytest.mark.parametrize("after", ["x", "eyJhIjogMX0=", "WzEsIDJd", "WyJhIiwgImIiXQ==", "0" * 77])
def test_an_after_that_no_page_has_given_is_refused(
    farm: Farm, jobs: list[Job], after: str
) -> None:
    with pytest.raises(UsageError, match="after"):
        farm.jobs.search(JobQuery(order=JobOrder.FINISHED), after=after)


def test_jobs_that_are_gone_are_left_out(farm: Farm, jobs: list[Job]) -> None:
    farm.delete(jobs[4].id)
    existing = farm.jobs.many([jobs[5].id, jobs[4].id, jobs[3].id])
    assert existing == [jobs[5], jobs[3]]
    assert farm.jobs.many([jobs[4].id]) == farm.jobs.many([]) == []


@pytest.mark.parametrize("order", JobOrder)
@pytest.mark.parametrize("text", ["", "net"])
@pytest.mark.parametrize("owner", ["", "ann", "cid"])
@pytest.mark.parametrize("public", [False, True])
def test_who_sees_some_jobs_finds_these_alone(farm, order, text, owner, public) -> None:
    """Each of them once, in order, whatever lies between."""
    draw = random.Random(5)
    owners = ["ann", "bob", "cid", "dan"]
    jobs = [
        farm.jobs.submit(
            MODEL,
            CompileOptions(target="rpi4", verify=False, seed=number),
            name=draw.choice(NAMES),
            owner=draw.choice(owners),
            private=draw.random() < 0.5,
        )
        for number in range(40)
    ]
    shown = Shown(frozenset({"ann", "bob"}), public)
    query = JobQuery(text, owner=owner, order=order, shown=shown)
    wanted = {
        job.id
        for job in jobs
        if (job.owner in shown.owners or (public and not job.private))
        and owner in ("", job.owner)
        and text in job.name.casefold()
    }
    ids = [job.id for job in _pages(farm, query, 4)]
    assert len(ids) == len(set(ids))
    assert set(ids) == wanted
    if order is JobOrder.CREATED:
        assert ids == sorted(ids, reverse=True)
