"""`bench.layers` and `bench.memory`: steps of engines that fuse differently, and a small model."""

from __future__ import annotations

import pytest

from bench import layers, memory, models
from bench.layers import Step, rows
from bench.workloads import Workload

TINY = Workload("tiny", lambda: models.build("mobilenet_v2", size=32, stages=3))


def step(kernel, nodes, microseconds, floor=0.0):
    return Step(kernel, frozenset(nodes.split()), microseconds * 1e-6, floor * 1e-6)


def figures(row):
    """Microseconds by engine."""
    return {engine: round(seconds * 1e6) for engine, seconds in row.seconds.items()}


def test_steps_that_share_a_node_stand_in_one_row():
    matched = rows(
        {
            "farrier": [step("conv_relu", "Conv_1 Relu_2", 5, 3), step("add", "Add_3", 2, 1)],
            "theirs": [step("Conv", "Conv_1", 4), step("AddRelu", "Relu_2 Add_3", 6)],
        }
    )
    (row,) = matched
    assert (row.label, row.count) == ("add, conv_relu", 1)
    assert figures(row) == {"farrier": 7, "theirs": 10}
    assert row.floor_s == pytest.approx(4e-6)


def test_what_names_no_node_counts_with_the_next_step_and_the_last_with_the_last():
    farrier = [step("conv", "Conv_1", 5), step("pool", "Pool_2", 1)]
    theirs = [
        step("Reorder", "", 10),
        step("Conv", "Conv_1", 4),
        step("Pool", "Pool_2", 2),
        step("Reorder", "", 30),
    ]
    matched = rows({"farrier": farrier, "theirs": theirs})
    assert [figures(row)["theirs"] for row in matched] == [14, 32]


def test_equal_kernels_are_summed_and_what_farrier_does_not_run_is_told():
    farrier = [step("conv", "Conv_1", 5, 1), step("conv", "Conv_2", 7, 1)]
    theirs = [step("Conv", "Conv_1", 4), step("Conv", "Conv_2", 4), step("Concat", "Concat_3", 9)]
    conv, concat = rows({"farrier": farrier, "theirs": theirs})
    assert (conv.count, figures(conv)) == (2, {"farrier": 12, "theirs": 8})
    assert (concat.label, figures(concat)) == ("no kernel: Concat", {"theirs": 9})


def test_names_with_what_peers_append_are_found():
    names = layers._Names(TINY.build())
    (conv, *_) = (name for name in names._nodes.values() if name.startswith("Conv"))
    assert names.nodes([conv]) == names.nodes([f"{conv}/WithoutBiases"]) == {conv}
    assert names.nodes([f"{conv}_output_0_nchwc"]) == names.nodes([f"{conv}/Fusion/"]) == {conv}
    assert names.nodes(["reorder_token_1", ""]) == frozenset()


def test_every_engine_is_profiled_and_most_of_its_time_matched():
    measured = layers.measure(TINY, threads=1, seconds=0.0)
    for engine in ("farrier", "onnxruntime", "openvino"):
        total = sum(row.seconds.get(engine, 0.0) for row in measured)
        matched = sum(row.seconds.get(engine, 0.0) for row in measured if "farrier" in row.seconds)
        assert 0.8 * total < matched <= total
    assert all(row.floor_s > 0 for row in measured if "farrier" in row.seconds)
    assert layers.table(measured, top=3).row_count == 5


def test_the_workspace_beside_its_lower_bound_and_the_arena_of_a_peer():
    workspace = memory.measure(TINY, threads=2)
    assert 0 < workspace.lower_bound <= workspace.ours
    assert workspace.over == workspace.ours / workspace.lower_bound
    assert 0 < workspace.requested <= workspace.held
    assert memory.table([workspace]).row_count == 1
