"""Graphs on a canvas: of thousands of nodes, moved and searched by mouse and keyboard."""

from __future__ import annotations

import re

import onnx
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

SOON_MS = 120_000
NODES = 3000
HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b"


@pytest.fixture(scope="module")
def long_model(up, tmp_path_factory) -> str:
    """The id of a model of thousands of nodes, one of which has a hostile name."""
    names = [f"/layer{number // 10}/op{number}" for number in range(NODES)]
    names[5] = HOSTILE
    nodes = [
        helper.make_node("Add", [f"t{n}", f"t{max(0, n - 5)}"], [f"t{n + 1}"], name=name)
        for n, name in enumerate(names)
    ]
    x = helper.make_tensor_value_info("t0", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info(f"t{NODES}", TensorProto.FLOAT, [4])
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path = tmp_path_factory.mktemp("graphs") / "long.onnx"
    onnx.save(model, path)
    with up.client() as client:
        return client.upload(path)


@pytest.fixture
def graph(page, long_model):
    """The page of that model, with its graph drawn."""
    page.goto(f"/models/{long_model}?file=long.onnx")
    page.locator("canvas").wait_for(timeout=SOON_MS)
    return page


def pixels(page) -> str:
    """Return the drawn pixels as text; the canvas is redrawn by the next frame."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    return page.evaluate("document.querySelector('canvas').toDataURL()")


def test_thousands_of_nodes_are_laid_out_and_moved(graph):
    expect(
        graph.get_by_text("Laid out in simple layers, because the graph is large.")
    ).to_be_visible()
    canvas = graph.locator("canvas")
    views = [pixels(graph)]
    canvas.focus()
    for key in ("ArrowDown", "+", "0"):
        graph.keyboard.press(key)
        views.append(pixels(graph))
    box = canvas.bounding_box()
    graph.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    graph.mouse.wheel(0, -400)
    views.append(pixels(graph))
    graph.mouse.down()
    graph.mouse.move(box["x"] + 60, box["y"] + 60, steps=5)
    graph.mouse.up()
    views.append(pixels(graph))
    assert len(set(views)) == len(views), "something did not change what is in view"
    assert "node=" not in graph.url  # A drag selects nothing.


def test_a_node_is_found_and_chosen_by_the_keyboard(graph):
    graph.get_by_label("Search the graph").fill("/layer123/")
    expect(graph.get_by_text("10 found")).to_be_visible()
    graph.get_by_role("button", name="Next match").click()
    canvas = graph.locator("canvas")
    canvas.focus()
    graph.keyboard.press("Enter")
    panel = graph.locator(".graph .panel")
    expect(panel).to_contain_text("/layer123/op1230")
    graph.keyboard.press("Shift+ArrowDown")
    graph.keyboard.press("Enter")
    expect(panel).to_contain_text("/layer123/op1231")
    address = graph.url
    graph.reload()
    expect(panel).to_contain_text("/layer123/op1231", timeout=SOON_MS)
    assert graph.url == address


def test_a_click_chooses_a_node_whose_name_is_text(graph):
    graph.get_by_label("Search the graph").fill("onerror")
    graph.get_by_role("button", name="Next match").click()
    graph.locator("canvas").scroll_into_view_if_needed()
    box = graph.locator("canvas").bounding_box()
    graph.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    graph.wait_for_url(re.compile("node="))
    panel = graph.locator(".graph .panel")
    expect(panel).to_contain_text("<img src=x onerror=alert(1)>⟨U+202E⟩␛")
    assert graph.locator("main img").count() == 0
