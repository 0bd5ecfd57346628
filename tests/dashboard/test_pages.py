"""Every page: complete without any other host, free of faults for who cannot see or point, and no
wider than the screen, in light and dark, on a desk and on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import DESK, PHONE
from tests.dashboard.looks import faults, settle, wider

pytestmark = pytest.mark.browser

PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": "/jobs/{job}",
    "kernels": "/jobs/{job}/model",
    "compare": "/compare?jobs={job},{other}",
    "devices": "/devices",
    "device": "/devices/{device}",
    "explorations": "/explorations",
    "exploration": "/explorations/{exploration}",
    "records": "/records",
    "users": "/users",
    "submit": "/submit",
    "model": "/models/{model}",
    "nowhere": "/no/such/page",
    "login": "/login",
}


@pytest.fixture(scope="session")
def places(up, finished, network, explored):
    """The addresses of the pages, of things that there are."""
    with up.client() as client:
        device = client.devices()[0]
        ids = {
            "job": finished[0],
            "other": finished[1],
            "device": device.id,
            "exploration": explored,
            "model": client.upload(network),
        }
    return {name: place.format(**ids) for name, place in PAGES.items()}


def opened(visit, up, places, name, **options):
    """The page, with all that it has to say."""
    page = visit(up, logged_in=name != "login", **options)
    if name == "nowhere":
        page.watch.expect("console: .*404")
    page.goto(places[name])
    settle(page)
    return page


LOOKS = {
    "light, desk": {"color_scheme": "light", "viewport": DESK},
    "dark, phone": {"color_scheme": "dark", "viewport": PHONE},
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("look", LOOKS)
def test_it_keeps_nobody_out_and_is_no_wider_than_the_screen(visit, up, places, name, look):
    page = opened(visit, up, places, name, **LOOKS[look])
    assert wider(page) == []
    violations = faults(page)
    assert not violations, "\n".join(violations)


def test_the_page_of_the_api_loads_nothing_from_another_host(visit, up):
    page = visit(up, logged_in=False)
    page.goto("/docs")
    expect(page.get_by_text("/v1/jobs", exact=True).first).to_be_visible()


def test_a_look_is_kept(page):
    page.goto("/")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    switch = page.get_by_role("button", name="Colours")
    for _ in range(3):
        if "dark" in switch.get_attribute("aria-label"):
            break
        switch.click()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    settle(page)
    assert page.evaluate(background) == dark


def test_every_page_but_the_login_is_a_click_away(page):
    page.goto("/")
    for name in ("Jobs", "Submit", "Devices", "Explorations", "Records", "Overview"):
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        settle(page)
        link = page.get_by_role("navigation", name="Pages").get_by_role("link", name=name)
        expect(link).to_have_attribute("aria-current", "page")
