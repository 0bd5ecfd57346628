"""Names that a stranger chose, for a job and for all that a model has, are text: no markup, nothing
that cannot be seen, and no wider than the screen."""

from __future__ import annotations

import onnx
import pytest

from tests.dashboard.conftest import DESK, PHONE, UNSEEN, explore
from tests.dashboard.looks import faults, settle, wider
from tests.up import write_model

pytestmark = pytest.mark.browser

MARKUP = '"><img src=nowhere onerror="window.hostile = 1"><script>window.hostile = 2</script>'
TURNED = "\u202egpj.lausac\u202c\u200b\u2066"
CONTROLS = "bell\x07 escape\x1b[31m null-ish\x01 next\x85"
LONG = "W" * 10_000
JOB = f"{MARKUP}{TURNED}"
PAGES = [
    "/",
    "/jobs",
    "/jobs/{job}",
    "/jobs/{job}/model",
    "/compare?jobs={job},{other}",
    "/models/{model}",
    "/explorations",
    "/explorations/{exploration}",
]


def rename(path):
    """Give the small model's input, output, nodes, weights and graph hostile names."""
    model = onnx.load(path)
    graph = model.graph
    names = {
        "x": MARKUP,
        "y": f"y{MARKUP}{TURNED}",
        "w": f"w{LONG}",
        "b": f"b{TURNED}",
        "v": f"v{MARKUP}",
    }
    names |= {"h": f"h{LONG}", "r": f"r{TURNED}", "p": f"p{CONTROLS}"}
    for node in graph.node:
        node.name = f"{node.op_type}{MARKUP}{CONTROLS}{TURNED}"
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = f"n{MARKUP}{LONG[:200]}"
    graph.name = f"{MARKUP}{TURNED}{CONTROLS}{LONG}"
    model.producer_name = f"{MARKUP}{CONTROLS}"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="session")
def hostile(up, finished, tmp_path_factory):
    """The addresses of the pages of a job with such names."""
    path = rename(write_model(tmp_path_factory.mktemp("hostile") / "net.onnx"))
    with up.client() as client:
        job = client.submit(path, shapes={MARKUP: (1, 3, 13, 17)}, trials=8, name=JOB)
        client.wait(job.id).raise_for_state()
        ids = {"job": job.id, "other": finished[0], "model": client.upload(path)}
    names = f"{MARKUP}{TURNED}", f"shape{MARKUP}{TURNED}"
    ids["exploration"] = explore(up, JOB, names, names, (job.id, job.id))
    return [place.format(**ids) for place in PAGES]


@pytest.mark.parametrize("which", range(len(PAGES)), ids=PAGES)
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_they_are_text_and_break_no_layout(visit, up, hostile, which, size):
    page = visit(up, viewport=size)
    page.goto(hostile[which])
    settle(page)
    assert page.evaluate("window.hostile") is None
    assert page.locator("img[src=nowhere]").count() == 0
    text = page.evaluate("document.body.innerText + document.title")
    text = text.replace("\n", "").replace("\t", "")
    assert not UNSEEN.search(text), UNSEEN.findall(text)
    assert "<img src=nowhere" in text  # The name is shown as it is written.
    assert "U+202E" in text
    assert wider(page) == []
    assert page.locator("h1").bounding_box()["height"] < 300
    assert not faults(page)
