"""The bottleneck rule: every candidate computes its two or three convolutions, padding included."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.schedule import Trace
from farrier.targets.cpu.rules import bottleneck, for_program
from tests.targets.cpu.rules.space_programs import (
    TARGET,
    Region,
    check,
    conv,
    matmul,
    nchwc,
    tensor,
)

EACH = 8  # The candidates of a space that are run.


def block(
    channels, height, width, expanded, kernel, *, stride=1, pads=None, projected=0, n=1, bias=True
):
    """Expand, filter and, where `projected` is not 0, project; the image comes as a plain halo."""
    before, after = pads or (kernel // 2, kernel // 2)
    region = Region(tensor("x", n, channels, height, width, layout=nchwc(1)))

    def convolve(name, *weights, shape, taps=1, step=1, sides=(0, 0), group=1):
        others = [tensor(f"w{name}", *weights)] + ([tensor(f"b{name}", shape[1])] if bias else [])
        return region.then(
            "Conv",
            *others,
            shape=shape,
            layout=nchwc(),
            kernel_shape=(taps, taps),
            strides=(step, step),
            dilations=(1, 1),
            pads=(sides[0], sides[0], sides[1], sides[1]),
            group=group,
        )

    convolve("e", expanded, channels, 1, 1, shape=(n, expanded, height, width))
    region.then("Sigmoid")  # Sigmoid is not zero at zero: padding lies outside the expanded image.
    out = [(extent + before + after - kernel) // stride + 1 for extent in (height, width)]
    convolve(
        "f",
        *(expanded, 1, kernel, kernel),
        shape=(n, expanded, *out),
        taps=kernel,
        step=stride,
        sides=(before, after),
        group=expanded,
    )
    if projected:
        region.then("Relu") if bias else None
        convolve("p", projected, expanded, 1, 1, shape=(n, projected, *out))
    return region


def residual(region):
    kind = region.last.type
    return region.then("Add", tensor("r", *kind.shape, layout=nchwc()), constant=False)


CASES = {
    "3x3": block(8, 6, 6, 12, 3).then("Relu"),
    "stride 2": block(4, 8, 8, 8, 3, stride=2).then("Relu", layout=nchwc(1)),
    "stride 2 of odd extents": block(4, 7, 9, 8, 3, stride=2),
    "5x5": block(4, 6, 5, 8, 5),
    "no padding": block(4, 6, 6, 8, 3, pads=(0, 0)),
    "padding at one end": block(4, 6, 6, 8, 3, pads=(0, 1), stride=2),
    "a value read twice": block(4, 4, 4, 8, 3).then("HardSwish"),
    "partial blocks": block(6, 4, 7, 10, 3).then("Relu"),
    "one point": block(4, 1, 1, 8, 3),
    "one line": block(4, 1, 9, 8, 3),
    "a batch": block(4, 4, 4, 8, 3, n=2),
    "no biases": block(4, 4, 6, 8, 3, bias=False),
    "projected": block(8, 6, 6, 12, 3, projected=8),
    "projected, stride 2": block(4, 8, 8, 16, 3, stride=2, projected=4).then("Relu"),
    "projected, residual, halo": residual(block(8, 4, 6, 8, 3, projected=8)).then(
        "Relu", layout=nchwc(1)
    ),
    "projected, 5x5, primes": block(5, 7, 5, 11, 5, projected=7),
    "projected, a batch, no biases": block(4, 4, 4, 8, 3, n=2, projected=6, bias=False),
    "projected, one point": block(4, 1, 1, 8, 3, projected=4),
}


@pytest.mark.parametrize("name", CASES)
def test_candidates_compute_the_convolutions(name):
    region = CASES[name]
    space = for_program(region.program, TARGET, 2)
    assert space.rule.name == "bottleneck"
    candidates = space.candidates()
    picked = np.random.default_rng(0).permutation(len(candidates))[:EACH]
    chosen = [space.decisions(row) for row in candidates[picked]]
    for decisions in (*chosen, space.default()):
        check(region, space, decisions)


@pytest.mark.parametrize("name", ["3x3", "projected"])
def test_strips_of_all_sizes_are_candidates(name):
    space = bottleneck.space(CASES[name].program, TARGET, 2)
    assert space is not None
    assert set(space.columns(space.candidates())["lines"]) == {1, 2, 3, 6}


def test_a_trace_replays():
    space = bottleneck.space(CASES["projected"].program, TARGET, 2)
    assert space is not None
    schedule = space.schedule(space.default())
    trace = Trace.parse(str(schedule.trace))
    assert trace == schedule.trace


def test_other_programs_are_declined():
    assert bottleneck.space(conv(8, 6, 8, 3, pad=1, group=8).program, TARGET, 2) is None
    assert bottleneck.space(conv(8, 6, 8, 1).program, TARGET, 2) is None
    assert bottleneck.space(matmul(5, 6, 11).program, TARGET, 2) is None
