"""Tests of the pages about the farm: news, running jobs, and help."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import re
import threading

import pytest
from playwright.sync_api import expect

from bench.seeded.devices import Fleet, SeededDevice, machine_of
from farrier_farm.farm import Farm
from farrier_farm.settings import Settings
from tests.dashboard.conftest import SHAPES
from tests.dashboard.looks import settle

pytestmark = pytest.mark.browser

BEAT_S = 1.0


@pytest.fixture
def quarantined(up):
    """The name of a device in quarantine, which is kept connected."""
    is_over, is_there = threading.Event(), threading.Event()
    name = "board-9"

    async def live() -> None:
        settings = dataclasses.replace(Settings(), home=up.home)
        farm = Farm.open(settings)
        device = SeededDevice(name, machine_of("rpi4"), "quarantined")
        fleet = Fleet(farm, [device], random.Random(7))
        try:
            await fleet.connect()
            is_there.set()
            while not is_over.is_set():
                await fleet.beat()
                await asyncio.sleep(BEAT_S)
        finally:
            await fleet.close()
            farm.close()

    thread = threading.Thread(target=asyncio.run, args=(live(),))
    thread.start()
    assert is_there.wait(30)
    yield name
    is_over.set()
    thread.join()


def test_a_farm_without_jobs_shows_the_way_to_the_first(visit, own_up, network):
    page = visit(own_up)
    page.goto("/")
    settle(page)
    expect(page.get_by_role("heading", name="Three steps to a tuned model")).to_be_visible()
    page.get_by_text("Commands for another device").click()
    port = page.request.get("/v1/overview").json()["broker"]["port"]
    expect(page.get_by_role("region", name="Commands for a device")).to_contain_text(
        f"--broker 127.0.0.1:{port}"
    )
    expect(page.get_by_role("region", name="Commands for the command line")).to_contain_text(
        f"FARRIER_SERVER={own_up.url}"
    )
    with own_up.client() as client:
        job = client.submit(network, shapes=SHAPES, trials=8, name="the first").id
        expect(page.get_by_role("link", name="the first")).to_be_visible()
        expect(page.get_by_role("heading", name="Three steps to a tuned model")).to_have_count(0)
        client.wait(job).raise_for_state()
    ended = page.get_by_role("region", name="Jobs that ended last")
    row = ended.get_by_role("row", name="the first")
    expect(row).to_contain_text("succeeded")
    expect(row).to_contain_text(re.compile(r"\d (µs|ms)"))
    page.close()  # The page has to be closed before its service stops.


def test_a_search_of_jobs_is_an_address(page, finished):
    page.goto("/jobs")
    settle(page)
    page.get_by_label("Search by name, id or target").fill("tuned 16")
    expect(page).to_have_url(re.compile(r"q=tuned\+16"))
    expect(page.get_by_role("link", name="tuned 16")).to_be_visible()
    expect(page.get_by_role("link", name="tuned 8")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("link", name="tuned 16")).to_be_visible()
    expect(page.get_by_role("link", name="tuned 8")).to_have_count(0)
    page.goto("/jobs?q=no+such+job")
    expect(page.get_by_text("No job matches")).to_be_visible()
    page.get_by_role("button", name="Show all jobs").click()
    expect(page.get_by_role("link", name="tuned 8")).to_be_visible()


def test_two_jobs_that_are_picked_are_compared(page, finished):
    page.goto("/jobs?q=tuned")
    for name in ("tuned 8", "tuned 16"):
        page.get_by_role("checkbox", name=f"Compare {name}").check()
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page).to_have_url(re.compile("/compare"))
    assert all(job in page.url for job in finished)


def test_a_device_in_quarantine_says_why_and_is_released(page, quarantined, api):
    page.goto("/devices")
    row = page.get_by_role("row", name=quarantined)
    expect(row).to_contain_text("quarantined")
    expect(row).to_contain_text("drifted")
    row.get_by_role("link", name=quarantined).click()
    notice = page.get_by_role("status").filter(has_text="In quarantine")
    expect(notice).to_contain_text("the reference took 1.34 times")
    page.get_by_role("button", name="Release").click()
    page.get_by_role("button", name="Leave it").click()
    assert api.get(f"/v1/devices/{quarantined}").json()["state"] == "quarantined"
    page.get_by_role("button", name="Release").click()
    page.get_by_role("button", name="Release it").click()
    expect(page.get_by_text("In quarantine")).to_have_count(0)
    expect(page.get_by_role("row", name="released")).to_be_visible()
    assert api.get(f"/v1/devices/{quarantined}").json()["state"] != "quarantined"


def test_a_device_that_never_was_says_so(page):
    page.watch.expect("console: .*404")
    page.goto("/devices/nobody")
    expect(page.get_by_role("alert")).to_contain_text("nobody")
    page.get_by_role("link", name="All devices of this farm").click()
    expect(page.get_by_role("heading", name="Devices", level=1)).to_be_visible()
