"""Each rule on real operators: it takes what it knows, and its candidates compute it right."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

from farrier.ir.loop import For, LoopKind
from farrier.ir.walk import walk
from farrier.schedule import Trace, replay
from farrier.targets.cpu import rules
from farrier.targets.cpu.rules import for_program, register_tile, rows, sketch
from tests.lowering import final_loops
from tests.targets.cpu.rules.space_programs import (
    TARGET,
    Region,
    check,
    conv,
    matmul,
    nchwc,
    permuted,
    tensor,
)

EACH = 8  # The candidates of a large space that are run.


def residual(channels, size, **options):
    return conv(channels, size, channels, 3, pad=1, **options).then(
        "Add", tensor("r", 1, channels, size, size, layout=nchwc()), constant=False
    )


def halo_conv(ic, size, oc):
    """A 3x3 convolution whose input has its padding in memory."""
    padded = tensor("x", 1, ic, size, size, layout=nchwc(1))
    return Region(padded).then(
        "Conv",
        tensor("w", oc, ic, 3, 3),
        shape=(1, oc, size, size),
        layout=nchwc(),
        kernel_shape=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        pads=(1,) * 4,
        group=1,
    )


def transposed(ic, size, oc, stride, **options):
    """A transposed convolution whose taps do not overlap."""
    x = tensor("x", 1, ic, size, size, layout=nchwc())
    weights = (tensor("w", ic, oc, stride, stride), tensor("b", oc))
    square = (stride, stride)
    return Region(x).then(
        "ConvTranspose",
        *weights,
        shape=(1, oc, size * stride, size * stride),
        kernel_shape=square,
        strides=square,
        dilations=(1, 1),
        pads=(0,) * 4,
        output_padding=(0, 0),
        group=1,
        **options,
    )


CONTRACTIONS = {
    "conv 3x3, bias, relu": conv(8, 7, 12, 3, pad=1).then("Relu"),
    "conv that is the output, with a halo": conv(8, 7, 12, 3, pad=1, bias=False, out_pad=1),
    "conv 1x1": conv(12, 5, 8, 1),
    "conv of partial blocks, stride 2": conv(10, 6, 10, 3, pad=1, stride=2).then("Relu"),
    "stem on a plain input": conv(3, 9, 8, 3, pad=1, stride=2, blocked=False).then("Relu"),
    "stem 7x7": conv(3, 11, 8, 7, pad=3, stride=2, blocked=False),
    "depthwise": conv(8, 6, 8, 3, pad=1, group=8).then("Relu"),
    "depthwise, partial block, stride 2": conv(6, 7, 6, 3, pad=1, stride=2, group=6),
    "depthwise 5x5": conv(4, 7, 4, 5, pad=2, group=4),
    "grouped": conv(16, 5, 16, 3, pad=1, group=2),
    "conv with a residual": residual(8, 5).then("Relu"),
    "conv of a batch": conv(8, 4, 8, 3, pad=1, n=2),
    "conv of one point": conv(8, 3, 8, 3),
    "transposed conv of taps apart": transposed(6, 5, 10, 2).then("Relu"),
    "transposed conv by threes, with a halo": transposed(8, 3, 4, 3, layout=nchwc(1)),
    "conv to a single channel": conv(8, 5, 1, 1),
    "matmul": matmul(5, 6, 11),
    "matmul of primes": matmul(13, 7, 17).then("Add", tensor("b", 17)),
    "matmul with gelu": matmul(7, 8, 13).then("Add", tensor("b", 13)).then("Gelu"),
    "matmul with a long epilogue": matmul(3, 4, 8).then("HardSwish").then("Erf").then("HardSwish"),
    "batched matmul": matmul(5, 6, 9, batch=(2, 3), constant=False),
    "matmul of a batch with weights": matmul(5, 6, 9, batch=(2,)),
    "matrix times vector": matmul(1, 12, 20),
    "k of 1": matmul(4, 1, 8),
    "scores of heads side by side": Region(
        tensor("q", 2, 3, 5, 6, layout=permuted(0, 2, 1, 3))
    ).then(
        "MatMul",
        tensor("k", 2, 3, 6, 9, layout=permuted(0, 3, 1, 2)),
        shape=(2, 3, 5, 9),
        layout=None,
        constant=False,
    ),
    "context of heads side by side": Region(tensor("p", 2, 3, 5, 7)).then(
        "MatMul",
        tensor("v", 2, 3, 7, 6, layout=permuted(0, 2, 1, 3)),
        shape=(2, 3, 5, 6),
        layout=permuted(0, 2, 1, 3),
        constant=False,
    ),
    "gemm, transposed weights": Region(tensor("x", 6, 8)).then(
        "Gemm", tensor("w", 12, 8), tensor("b", 12), shape=(6, 12), transB=1
    ),
    "gemm, both transposed, not constant": Region(tensor("x", 8, 6)).then(
        "Gemm", tensor("w", 12, 8), shape=(6, 12), transA=1, transB=1, constant=False
    ),
}


def attention(queries, keys, depth, width, *, batch=(2, 3), heads_apart=False, masked=False):
    """softmax(q k / 2 + mask) v, its heads lying side by side as projections leave them."""
    side_by_side = (0, 2, 1, 3) if heads_apart else range(len(batch) + 2)
    turned = (0, 3, 1, 2) if heads_apart else (*range(len(batch)), len(batch) + 1, len(batch))
    beside = permuted(*side_by_side)
    scores = (
        Region(tensor("q", *batch, queries, depth, layout=beside))
        .then(
            "MatMul",
            tensor("k", *batch, depth, keys, layout=permuted(*turned)),
            shape=(*batch, queries, keys),
            layout=None,
            constant=False,
        )
        .then("Softplus")
    )
    if masked:
        scores = scores.then("Add", tensor("mask", queries, keys), constant=False)
    return scores.then("Softmax", axis=-1).then(
        "MatMul",
        tensor("v", *batch, keys, width, layout=beside),
        shape=(*batch, queries, width),
        layout=beside,
        constant=False,
    )


ATTENTIONS = {
    "attention of heads side by side": attention(9, 11, 6, 10, heads_apart=True, masked=True),
    "attention of one query": attention(1, 7, 5, 4),
    "attention to one key": attention(5, 1, 4, 3),
    "attention of one number": attention(3, 5, 1, 1),
    "attention without a batch": attention(27, 13, 8, 8, batch=()),
    "attention of whole vectors": attention(24, 16, 8, 8, batch=(3,), masked=True),
    "attention on keys that lie along the lanes": Region(tensor("q", 2, 13, 6))
    .then("MatMul", tensor("k", 2, 6, 9), shape=(2, 13, 9), constant=False)
    .then("Softmax", axis=-1)
    .then("MatMul", tensor("v", 2, 9, 7), shape=(2, 13, 7), constant=False)
    .then("Relu")
    .then("Add", tensor("r", 2, 13, 7), constant=False),
}

REDUCTIONS = {
    "softmax": Region(tensor("x", 2, 3, 19)).then("Softmax", axis=-1),
    "softmax of whole vectors": Region(tensor("x", 3, 8)).then("Softmax", axis=-1),
    "softmax shorter than a vector": Region(tensor("x", 3, 3)).then("Softmax", axis=-1),
    "softmax in the middle": Region(tensor("x", 2, 5, 3, 9)).then("Softmax", axis=1),
    "one row": Region(tensor("x", 21)).then("Softmax", axis=0),
    "log softmax": Region(tensor("x", 4, 10)).then("LogSoftmax", axis=-1),
    "layer normalization": Region(tensor("x", 2, 3, 18)).then(
        "LayerNormalization", tensor("g", 18), tensor("b", 18), axis=-1, epsilon=1e-5
    ),
    "layer normalization of two axes": Region(tensor("x", 2, 3, 6)).then(
        "LayerNormalization", tensor("g", 3, 6), tensor("b", 3, 6), axis=1, epsilon=1e-5
    ),
    "residual, then layer normalization": Region(tensor("x", 4, 17))
    .then("Add", tensor("r", 4, 17), constant=False)
    .then("LayerNormalization", tensor("g", 17), tensor("b", 17), axis=-1, epsilon=1e-5),
    "max pool of blocks": Region(tensor("x", 1, 6, 7, 7, layout=nchwc())).then(
        "MaxPool",
        shape=(1, 6, 4, 4),
        layout=nchwc(1),
        kernel_shape=(3, 3),
        strides=(2, 2),
        pads=(1, 1, 1, 1),
        dilations=(1, 1),
    ),
    "max pool, plain": Region(tensor("x", 1, 3, 7, 9)).then(
        "MaxPool",
        kernel_shape=(3, 3),
        strides=(1, 1),
        pads=(1, 1, 1, 1),
        dilations=(1, 1),
    ),
    "average pool": Region(tensor("x", 1, 8, 6, 6, layout=nchwc(1))).then(
        "AveragePool", kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1)
    ),
    "global pool of blocks": Region(tensor("x", 1, 8, 5, 5, layout=nchwc())).then(
        "GlobalAveragePool", shape=(1, 8, 1, 1)
    ),
    "global pool, plain": Region(tensor("x", 2, 6, 5, 5)).then(
        "GlobalAveragePool", shape=(2, 6, 1, 1)
    ),
}

# Contractions that no register tile takes: their lanes read along a window.
TILED_SKETCHES = {
    "plain convolution": Region(tensor("x", 1, 3, 6, 9)).then(
        "Conv",
        tensor("w", 5, 3, 3, 3),
        tensor("b", 5),
        shape=(1, 5, 6, 9),
        kernel_shape=(3, 3),
        strides=(1, 1),
        pads=(1, 1, 1, 1),
        dilations=(1, 1),
        group=1,
    ),
}

NARROW = {"a matmul too narrow for a vector": matmul(5, 13, 1)}

ELEMENTWISE = {
    "relu of blocks, with a halo": Region(tensor("x", 1, 6, 5, 7, layout=nchwc())).then(
        "Relu", layout=nchwc(1)
    ),
    "axes walked as one": Region(tensor("x", 3, 5, 7)).then("Relu").then("Sigmoid"),
    "a value read twice": Region(tensor("x", 3, 5, 7)).then("Add", tensor("b", 7)).then("Gelu"),
    "broadcast in the middle": Region(tensor("x", 3, 5, 7)).then("Add", tensor("b", 5, 1)),
    "transpose": Region(tensor("x", 3, 5, 7)).then("Transpose", shape=(7, 3, 5), perm=(2, 0, 1)),
    "to blocks": Region(tensor("x", 1, 6, 5, 5)).then("Relayout", layout=nchwc(1)),
    "from blocks": Region(tensor("x", 1, 6, 5, 5, layout=nchwc())).then("Relayout", layout=None),
    "a last axis of one": Region(tensor("x", 37, 1)).then("Tanh"),
    "one element": Region(tensor("x", 1)).then("Exp"),
}

CASES = [
    *((region, "register_tile") for region in CONTRACTIONS.items()),
    *((region, "attention") for region in ATTENTIONS.items()),
    *((region, "inner_product") for region in NARROW.items()),
    *((region, "rows") for region in REDUCTIONS.items()),
    *((region, "elementwise") for region in ELEMENTWISE.items()),
    *((region, "sketch/stage-operands+tile-registers") for region in TILED_SKETCHES.items()),
]


@pytest.mark.parametrize(("case", "rule"), CASES, ids=[name for (name, _), _ in CASES])
def test_candidates_compute_the_reference(case, rule):
    _, region = case
    space = for_program(region.program, TARGET, 2)
    assert space.rule.name == rule
    candidates = space.candidates()
    picked = np.random.default_rng(0).permutation(len(candidates))[:EACH]
    for row in candidates[picked]:
        check(region, space, space.decisions(row))
    check(region, space, space.default())


LONG_SUMS = {
    "matmul": matmul(5, 1024, 11).then("Add", tensor("b", 11)).then("Relu"),
    "matmul of a batch": matmul(3, 1024, 8, batch=(2,), constant=False),
    "conv 1x1 to partial blocks": conv(1024, 3, 10, 1).then("Relu"),
    "conv 3x3, its image with a halo": halo_conv(128, 3, 12),
    "grouped": conv(2048, 2, 8, 1, group=2),
}


@pytest.mark.parametrize("name", LONG_SUMS)
def test_slices_of_a_long_sum_add_up(name):
    region = LONG_SUMS[name]
    space = register_tile.space(region.program, TARGET, 2)
    assert space is not None
    candidates = space.candidates()
    slices = space.columns(candidates)["slices"]
    assert len(set(slices)) > 1
    rng = np.random.default_rng(0)
    for count in sorted(set(slices) - {1}):
        for row in rng.choice(candidates[slices == count], 2):
            check(region, space, space.decisions(row))


def test_short_sums_and_those_of_unknown_size_are_not_sliced():
    for region in (CONTRACTIONS["matmul"], CONTRACTIONS["depthwise"]):
        space = register_tile.space(region.program, TARGET, 2)
        assert set(space.columns(space.candidates())["slices"]) == {1}


@pytest.mark.parametrize("case", [*CONTRACTIONS.values()][::3])
def test_register_tiles_fit_the_registers(case):
    space = register_tile.space(case.program, TARGET, 2)
    assert space is not None
    columns = space.columns(space.candidates())
    live = columns["vectors"] * (columns["rows"] * columns["columns"] + 1) + 1
    assert (live <= TARGET.registers - 1).all()


def test_a_trace_replays_to_the_same_function():
    region = CONTRACTIONS["conv 3x3, bias, relu"]
    space = register_tile.space(region.program, TARGET, 2)
    assert space is not None
    schedule = space.schedule(space.default())
    from farrier.lower.loops import to_loops

    again = replay(Trace.parse(str(schedule.trace)), to_loops(region.program))
    assert again == schedule.function


def test_a_scalar_has_no_loops_to_schedule():
    scalar = Region(tensor("x")).then("Relu")
    space = for_program(scalar.program, TARGET, 2)
    assert space.rule.name == "sketch/serial"
    assert space.slow_reason is None
    check(scalar, space, space.default())


@pytest.mark.parametrize("name", ["matmul", "softmax", "transpose", "grouped", "one element"])
def test_sketches_compute_what_other_rules_do(name):
    region = {**CONTRACTIONS, **REDUCTIONS, **ELEMENTWISE}[name]
    space = sketch.space(region.program, TARGET, 2)
    candidates = space.candidates()
    picked = np.random.default_rng(0).permutation(len(candidates))[:EACH]
    for row in candidates[picked]:
        check(region, space, space.decisions(row))


def test_rules_decline_what_they_do_not_know():
    assert register_tile.space(REDUCTIONS["softmax"].program, TARGET, 1) is None
    assert register_tile.space(matmul(5, 13, 1).program, TARGET, 1) is None
    assert rows.space(ELEMENTWISE["transpose"].program, TARGET, 1) is None


def test_every_rule_states_its_name_and_version():
    names = [f"{rules.__name__}.{module.name}" for module in pkgutil.iter_modules(rules.__path__)]
    for name in names:
        if name == sketch.__name__:  # Its versions are those of derivations.
            continue
        rule = importlib.import_module(name).RULE
        assert rule.name == name.rpartition(".")[2]
        assert rule.version > 0


def test_one_thread_gets_no_parallel_knob():
    space = for_program(REDUCTIONS["softmax"].program, TARGET, 1).built_in
    assert {knob.name: knob.values for knob in space.knobs}["parallel"] == (0,)


@pytest.mark.parametrize("channels", [8, 10])
def test_a_global_pool_of_blocks_runs_along_channels(channels):
    x = tensor("x", 1, channels, 5, 3, layout=nchwc())
    pool = Region(x).then("GlobalAveragePool", shape=(1, channels, 1, 1), layout=None)
    space = rows.space(pool.program, TARGET, 2)
    check(pool, space, space.default())
    kinds = {
        loop.kind for loop in walk(final_loops(space, space.default())) if isinstance(loop, For)
    }
    assert LoopKind.VECTORIZED in kinds


def test_a_global_pool_of_plain_rows_runs_along_the_row():
    pool = Region(tensor("x", 1, 5, 3, 19)).then("GlobalAveragePool", shape=(1, 5, 1, 1))
    space = rows.space(pool.program, TARGET, 2)
    for row in space.candidates():
        check(pool, space, space.decisions(row))
        assert vectors_of(final_loops(space, space.decisions(row)))


def vectors_of(function):
    """The loops that are lanes of vectors."""
    loops = (loop for loop in walk(function) if isinstance(loop, For))
    return [loop for loop in loops if loop.kind is LoopKind.VECTORIZED]
