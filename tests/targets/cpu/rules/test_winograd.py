"""The Winograd rule: every candidate computes the convolution, within its errors."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.run_loops import run_loops
from farrier.ops.filtering import Filtering
from farrier.ops.winograd import filtering_of, transformed
from farrier.targets.cpu.rules import for_program, winograd
from tests.lowering import final_loops
from tests.targets.cpu.rules.space_programs import (
    TARGET,
    Region,
    conv,
    matmul,
    nchwc,
    reference,
    tensor,
)

EACH = 6  # The candidates of a space that are run.


def winograd_conv(
    ic, oc, height, width, tile, *, n=1, pads=(1, 1, 1, 1), bias=True, out_pad=0, halo=1, stride=1
):
    """A Winograd convolution of a blocked image, whose halo may be smaller than the padding."""
    rooms = (height + pads[0] + pads[2] - 3, width + pads[1] + pads[3] - 3)
    out = tuple(room // stride + 1 for room in rooms)
    points = Filtering(stride, tile).points
    weights = [tensor("u", points, points, oc, ic)] + ([tensor("b", oc)] if bias else [])
    return Region(tensor("x", n, ic, height, width, layout=nchwc(halo))).then(
        "WinogradConv",
        *weights,
        shape=(n, oc, *out),
        layout=nchwc(out_pad),
        tile=tile,
        strides=(stride, stride),
        kernel_shape=(3, 3),
        pads=pads,
    )


def check_winograd(region, function, seed=0):
    """Run a kernel on windows drawn at random against the direct sum."""
    rng = np.random.default_rng(seed)
    inputs = {v.name: rng.standard_normal(v.type.static_shape) for v in region.graph.inputs}
    _, _, oc, ic = inputs["u"].shape
    filtering = filtering_of(dict(region.graph.nodes[0].attrs))
    inputs["u"] = transformed(rng.standard_normal((oc, ic, 3, 3)), filtering)
    (wanted,) = reference(region.graph, inputs).values()
    (got,) = run_loops(function, inputs).values()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 if filtering.tile == 6 else 1e-5)


def residual(region):
    kind = region.last.type
    return region.then("Add", tensor("r", *kind.shape, layout=nchwc()), constant=False)


CASES = {
    "tile 2": winograd_conv(8, 8, 6, 6, 2).then("Relu"),
    "tile 4": winograd_conv(8, 8, 8, 8, 4, out_pad=1),
    "no bias, residual, a halo": residual(winograd_conv(8, 8, 8, 4, 4, bias=False)).then(
        "Relu", layout=nchwc(1)
    ),
    "tile 6": winograd_conv(8, 8, 12, 7, 6, out_pad=1).then("Relu"),
    "a value read twice": winograd_conv(4, 4, 4, 4, 2).then("Sigmoid").then("HardSwish"),
    "an image that is no multiple of the tile": winograd_conv(4, 8, 7, 5, 4).then("Relu"),
    "primes, tile 2": winograd_conv(8, 4, 7, 13, 2),
    "one row": winograd_conv(4, 4, 1, 9, 4),
    "a batch": winograd_conv(4, 8, 4, 4, 2, n=2),
    "no padding": winograd_conv(4, 4, 6, 6, 4, pads=(0, 0, 0, 0), halo=0),
    "padding on two sides": winograd_conv(4, 4, 5, 5, 2, pads=(0, 1, 1, 0)),
    "padding without a halo": winograd_conv(4, 4, 4, 4, 4, halo=0),
    "points a power of two apart": winograd_conv(8, 8, 16, 32, 4).then("Relu"),
    "tile 3": winograd_conv(8, 8, 7, 9, 3).then("Relu"),
    "stride 2": winograd_conv(8, 8, 8, 12, 2, stride=2).then("Relu"),
    "stride 2, odd, tile 3": winograd_conv(8, 4, 7, 11, 3, stride=2, halo=0),
    "stride 2, tile 4": winograd_conv(4, 8, 14, 5, 4, stride=2, pads=(0, 0, 1, 1)).then("Relu"),
    "partial blocks": winograd_conv(6, 10, 4, 4, 2).then("Relu", layout=nchwc(1)),
}


@pytest.mark.parametrize("name", CASES)
def test_candidates_compute_the_convolution(name):
    region = CASES[name]
    space = for_program(region.program, TARGET, 2)
    assert space.rule.name == "winograd"
    candidates = space.candidates()
    picked = np.random.default_rng(0).permutation(len(candidates))[:EACH]
    chosen = [space.decisions(row) for row in candidates[picked]]
    for decisions in (*chosen, space.default()):
        check_winograd(region, final_loops(space, decisions))


def test_both_forms_are_candidates():
    space = winograd.space(CASES["tile 4"].program, TARGET, 2)
    assert space is not None
    assert set(space.columns(space.candidates())["fused"]) == {0, 1}


def test_points_a_power_of_two_apart_are_spread():
    space = winograd.space(CASES["points a power of two apart"].program, TARGET, 2)
    assert space is not None
    decisions = {**space.default(), "chunks": 2, "fused": 0}
    assert space.contains(decisions)
    assert "pad_axis" in str(space.schedule(decisions).trace)
    small = winograd.space(CASES["tile 2"].program, TARGET, 2)
    assert small is not None
    assert "pad_axis" not in str(small.schedule(small.default()).trace)


def test_tiles_of_a_large_image_stay_in_the_last_level_cache():
    space = winograd.space(winograd_conv(64, 128, 900, 161, 4, n=2).program, TARGET, 2)
    assert space is not None
    decisions = space.default()
    tiles = -(-(225 * 41) // decisions["chunks"])
    channels = min(128, 4 * decisions["vectors"] * decisions["panels"])
    # The bytes of a thread's transformed tiles and products.
    each = 4 * 36 * tiles * (64 + channels)
    assert decisions["fused"]
    assert 2 * each <= TARGET.l3_bytes


def test_other_programs_are_declined():
    assert winograd.space(conv(8, 6, 8, 3, pad=1).program, TARGET, 2) is None
    assert winograd.space(matmul(5, 6, 11).program, TARGET, 2) is None
