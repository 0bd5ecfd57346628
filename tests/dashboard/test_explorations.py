"""Explorations in the browser: the chart leads to jobs, results appear by themselves, files are
those of the shapes, and readers are offered what they may do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from playwright.sync_api import expect

from farrier.hardware.figures import Figures
from farrier.targets.dae.description import read
from farrier_farm.access.users import Users
from tests.dashboard.conftest import explore
from tests.dashboard.looks import settle
from tests.dashboard.test_login import log_in

pytestmark = pytest.mark.browser


def test_a_point_tells_its_figures_and_leads_to_its_job(page, up, explored, finished):
    page.goto("/explorations")
    page.get_by_role("link", name="sizes").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("sizes")
    chart = page.get_by_role("group", name="a.onnx: cycles against bytes a cycle of the port")
    points = chart.get_by_role("link")
    expect(points).to_have_count(2)
    expect(chart.locator(".pareto-front")).to_have_count(2)
    wide = chart.get_by_role("link", name="2 wide: 45")
    wide.hover()
    expect(page.locator(".pareto-said")).to_contain_text("2 wide: 45")
    row = page.get_by_role("region", name="Results of a.onnx").locator("tr.chosen")
    expect(row).to_contain_text("wide")
    wide.click()
    expect(page).to_have_url(f"{up.url}/jobs/{finished[1]}")


def test_a_result_appears_by_itself(page, up, explored):
    page.goto(f"/explorations/{explored}")
    table = page.get_by_role("region", name="Results of b.onnx")
    expect(table.get_by_text("not submitted")).to_have_count(2)
    figures = Figures(777, 0.00777, None, 0.0, 1, "")
    with up.client() as client:
        client.explorations.set_result(
            explored, "b.onnx", "wide", figures=dataclasses.asdict(figures)
        )
        client.explorations.set_area(
            explored, "wide", {"lut": 4321, "ff": 5, "dsp": 6, "ram": 7}, mhz=[61.5], part="ECP5-25"
        )
    expect(table.get_by_role("row", name="wide")).to_contain_text("777")
    expect(table.get_by_role("row", name="wide")).to_contain_text("61.5")
    chart = page.get_by_role("group", name="b.onnx: cycles against")
    expect(chart.locator(".pareto-front").first).to_be_visible()


def test_rows_are_sorted(page, explored):
    page.goto(f"/explorations/{explored}")
    table = page.get_by_role("region", name="Results of a.onnx")
    rows = table.locator("tbody tr")
    expect(rows.first).to_contain_text("wide")
    table.get_by_role("button", name="Shape").click()
    expect(rows.first).to_contain_text("small")


def test_files_are_downloaded(page, explored):
    page.goto(f"/explorations/{explored}")
    settle(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the description of shape 2").click()
    assert download.value.suggested_filename == "wide.toml"
    assert read(Path(download.value.path()).read_text()).name == "wide"
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the chart").click()
    assert download.value.suggested_filename == "pareto.svg"
    assert Path(download.value.path()).read_text().startswith("<svg")


def test_its_owner_deletes_it(page, up, finished):
    explore(up, "to be deleted", ("a", "b"), ("m",), finished)
    page.goto("/explorations")
    page.get_by_role("link", name="to be deleted").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete the exploration").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Explorations")
    expect(page.get_by_role("link", name="to be deleted")).to_have_count(0)


def test_a_stranger_learns_nothing(visit, up, explored):
    page = visit(up, logged_in=False)
    page.watch.expect("console: .*404")
    page.goto(f"/explorations/{explored}")
    log_in(page, Users(up.home).add("sam-of-the-page"))
    expect(page.get_by_role("heading", level=1)).to_have_text("No such exploration")
    page.goto("/explorations")
    expect(page.get_by_text("No explorations yet")).to_be_visible()
