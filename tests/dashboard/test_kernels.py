"""The kernels of a job: prepared on demand, chosen in a table or in the graph, shown as code."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.targets.dae import models

pytestmark = pytest.mark.browser

SOON_MS = 120_000


@pytest.fixture
def kernels(page, finished):
    """The page of a job's kernels, once a worker has listed them."""
    page.goto(f"/jobs/{finished[0]}/model")
    prepare = page.get_by_role("button", name="Prepare")
    expect(prepare.or_(page.locator("canvas")).first).to_be_visible(timeout=SOON_MS)
    if prepare.count():
        prepare.click()
    expect(page.locator("canvas").first).to_be_visible(timeout=SOON_MS)
    return page


@pytest.fixture
def listing(kernels, finished, api):
    """The listing of the API."""
    return api.get(f"/v1/jobs/{finished[0]}/listing").json()["listing"]


def test_a_kernel_opens_its_schedule_and_code(kernels, finished, listing, api):
    slowest = max(listing["kernels"], key=lambda kernel: kernel["share"])
    kernels.get_by_role("button", name=slowest["name"], exact=True).first.click()
    expect(kernels).to_have_url(re.compile(rf"kernel={slowest['id']}\b"))
    texts = api.get(f"/v1/jobs/{finished[0]}/listing/kernels/{slowest['id']}").json()
    for tab, part in (
        ("Schedule", "schedule"),
        ("Loop IR", "loops"),
        ("LLVM", "llvm"),
        ("Assembly", "assembly"),
    ):
        kernels.get_by_role("tab", name=tab).click()
        code = kernels.get_by_role("region", name=f"{tab} of the kernel").inner_text()
        assert len(code) > 20
        assert texts[part].startswith(code[:2000])
    address = kernels.url
    kernels.reload()
    expect(kernels.get_by_role("tab", name="Assembly")).to_have_attribute("aria-selected", "true")
    assert kernels.url == address


def test_a_kernel_s_place_on_the_roofline_is_said(kernels, listing):
    placed = max(listing["kernels"], key=lambda kernel: kernel["flops"])
    kernels.get_by_role("button", name=placed["name"], exact=True).first.click()
    kernels.get_by_role("tab", name="Roofline").click()
    said = kernels.locator(".kernel-parts p").first
    expect(said).to_contain_text("FLOP for each byte")
    expect(kernels.get_by_role("img", name=re.compile("of the roof there"))).to_be_visible()


def test_it_leads_to_the_kernel_s_trials(kernels, finished, listing):
    tuned = max(listing["kernels"], key=lambda kernel: kernel["share"])
    kernels.get_by_role("button", name=tuned["name"], exact=True).first.click()
    kernels.get_by_role("link", name="Its trials").click()
    expect(kernels).to_have_url(re.compile(rf"/jobs/{finished[0]}\?.*kernel={tuned['task']}"))
    expect(kernels.get_by_role("tab", name="Trials")).to_have_attribute("aria-selected", "true")


def test_the_graph_and_the_table_choose_the_same(kernels, listing):
    node = next(entry for entry in listing["graph"]["nodes"] if entry["kernel"] is not None)
    kernel = next(entry for entry in listing["kernels"] if entry["id"] == node["kernel"])
    kernels.get_by_label("Search the graph").fill(kernel["name"])
    kernels.get_by_role("button", name="Next match").click()
    kernels.locator("canvas").first.focus()
    kernels.keyboard.press("Enter")
    expect(kernels.locator("tr.chosen")).to_contain_text(kernel["name"])


def test_a_job_under_way_says_when_they_are_there(page, running):
    page.goto(f"/jobs/{running}/model")
    expect(page.get_by_text("They are shown once the job has succeeded")).to_be_visible()


def test_the_queues_of_an_accelerator_are_drawn_over_time(page, up, tmp_path):
    model = tmp_path / "layer.onnx"
    model.write_bytes(models.convolution(32, 32, (12, 12)))
    with up.client() as client:
        job = client.submit(model, target="dae:vta", verify=False)
        client.wait(job.id).raise_for_state()
    page.goto(f"/jobs/{job.id}/model")
    page.get_by_role("button", name="Prepare").click()
    page.get_by_role("button", name=re.compile("^conv3x3")).first.click(timeout=SOON_MS)
    page.get_by_role("tab", name="Timeline").click()
    drawing = page.get_by_role("img", name=re.compile(r"cycles, .*gemm .* busy"))
    expect(drawing).to_be_visible()
    whole = drawing.locator("rect").count()
    assert {"lane-0", "lane-1", "lane-2", "lane-3", "lane-stall"} == set(
        drawing.locator("rect").evaluate_all("all => all.map(one => one.getAttribute('class'))")
    )
    zoom = page.get_by_role("group", name="What is in view").get_by_role("button", name="Zoom in")
    for _ in range(4):
        zoom.click()
    assert drawing.locator("rect").count() < whole
    page.get_by_role("button", name="Whole").click()
    assert drawing.locator("rect").count() == whole
