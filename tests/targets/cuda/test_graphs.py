"""A run of a model is one launch of a CUDA graph, between the copies of its inputs and outputs."""

from __future__ import annotations

import pytest

import farrier
from tests.targets.cuda.test_models import IMAGES, LAYERS, _assert_as_onnxruntime, _random

SEND, LAUNCH, GRAPH, RECEIVE = (
    *("cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2"),
)
UPDATE = "cuGraphExecKernelNodeSetParams"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Return the artifact's file: each test loads it for a driver of its own."""
    artifact = farrier.compile(IMAGES, target="cuda:sm_80", verify=False)
    return artifact.save(tmp_path_factory.mktemp("images") / "images.farrier")


def _calls(library, artifact, data, feed):
    library.calls.clear()
    _assert_as_onnxruntime(artifact, data, feed)
    return list(library.calls)


def test_a_run_is_one_launch_of_a_graph_and_no_copy_is_within(library, images):
    artifact = farrier.load(images)
    runs = [_calls(library, artifact, IMAGES, {"x": _random(1, 3, 16, 15)}) for _ in range(3)]
    assert LAUNCH in runs[0]
    assert runs[1] == runs[2] == [SEND, GRAPH, RECEIVE]


def test_each_set_of_dims_has_a_graph_whose_pointers_are_exchanged(library):
    artifact = farrier.compile(LAYERS, target="cuda:sm_80", verify=False)
    rows = (5, 5, 199, 199, 5, 5)  # The first 199 ask for more memory, and 5 finds it there.
    calls = [_calls(library, artifact, LAYERS, {"x": _random(each, 20)}) for each in rows]
    for number in (1, 3, 5):
        assert calls[number] == [SEND, GRAPH, RECEIVE, RECEIVE]
    assert [each for each in calls[4] if each != UPDATE] == [SEND, GRAPH, RECEIVE, RECEIVE]
    assert UPDATE in calls[4]


def test_a_driver_without_graphs_launches_kernel_by_kernel(library, images, monkeypatch):
    monkeypatch.delattr(type(library), "cuGraphInstantiateWithFlags")
    artifact = farrier.load(images)
    for _ in range(3):
        calls = _calls(library, artifact, IMAGES, {"x": _random(1, 3, 16, 15)})
    assert calls[0] == SEND
    assert set(calls[1:-1]) == {LAUNCH}
