"""Sketches compute what the interpreter does, and a search may choose them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.ir.evaluate import evaluate
from farrier.ir.loop import For, LoopKind
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.ir.verify_kernel import verify_function
from farrier.ir.work import statements_run
from farrier.lower.loops import to_loops
from farrier.ops.registry import lookup
from farrier.schedule.errors import ScheduleError
from farrier.targets.cpu.rules import for_program, sketch
from farrier.targets.cpu.sketch.derive import DERIVATIONS
from tests.ir.bind import bind
from tests.lowering import final_loops
from tests.targets.cpu.rules.random_programs import programs
from tests.targets.cpu.rules.space_programs import TARGET, Region, matmul, tensor

# Sums share a tile where no cache holds what both read.
WITHOUT_CACHE = dataclasses.replace(TARGET, l2_bytes=64)
EACH = 5  # The candidates that are run of each program, the default among them.


@settings(max_examples=25)
@given(programs(), st.integers(0, 2**32 - 1))
def test_sketches_of_random_programs_equal_the_interpreter(program, seed):
    check_program(program, seed)


def small_integers(program, seed):
    """Inputs whose sums are exact in any order, as nearly all are."""
    rng = np.random.default_rng(seed)
    return {
        buffer.name: rng.integers(0 if buffer.dtype.name == "U8" else -2, 3, buffer.shape).astype(
            buffer.dtype.numpy
        )
        for buffer in program.inputs
    }


def check_program(program, seed):
    inputs = small_integers(program, seed)
    expected = evaluate(program, inputs)
    space = sketch.space(program, WITHOUT_CACHE if seed % 2 else TARGET, 2)
    candidates = space.candidates()
    picked = np.random.default_rng(seed).permutation(len(candidates))[: EACH - 1]
    chosen = [space.default(), *map(space.decisions, candidates[picked])]
    for row, decisions in zip(candidates[picked], chosen[1:], strict=True):
        assert (space.row(decisions) == row).all()
    for decisions in chosen:
        function = final_loops(space, decisions)
        verify_function(function)
        for name, array in run_loops(function, inputs).items():
            np.testing.assert_allclose(
                array, expected[name], rtol=1e-5, atol=0, err_msg=f"{name} of {decisions}"
            )


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=1000, deadline=None)
@given(programs(most=6), st.integers(0, 2**32 - 1))
def test_sketches_of_a_thousand_random_programs_equal_the_interpreter(program, seed):
    check_program(program, seed)


def kinds_of(function):
    """The kinds of the loops of a function, and the most iterations of those of each kind."""
    loops = [stmt for stmt in walk_stmts(function.body) if isinstance(stmt, For)]
    return {loop.kind: max(o.extent for o in loops if o.kind is loop.kind) for loop in loops}


# Programs that were scalar before there were sketches: scalar results, bytes, several outputs.
FORMER_FALLBACKS = {
    "a sum of everything": """@program
def p(x: f32[400, 1000]):
    y: f32[()]
    y[()] = sum(x[i, j] for i, j in axes(400, 1000))
    return y
""",
    "maxima of bytes along rows": """@program
def p(x: u8[300, 1000]):
    y: u8[300]
    for i in axes(300):
        y[i] = max(x[i, k] for k in axes(1000))
    return y
""",
    "maxima of bytes along columns": """@program
def p(x: u8[300, 1000]):
    y: u8[1000]
    for j in axes(1000):
        y[j] = max(x[k, j] for k in axes(300))
    return y
""",
    "a sum and what it normalizes": """@program
def p(x: f32[300, 100]):
    s: f32[300]
    for i in axes(300):
        s[i] = sum(x[i, k] for k in axes(100))
    y: f32[300, 100]
    for i, j in axes(300, 100):
        y[i, j] = x[i, j] - s[i]
    return s, y
""",
    "an output that another reads": """@program
def p(x: f32[300, 100]):
    t: f32[300, 100]
    for i, j in axes(300, 100):
        t[i, j] = x[i, j] * 2.0
    y: f32[300, 100]
    for i, j in axes(300, 100):
        y[i, j] = t[i, j] + t[i, 99 - j]
    return t, y
""",
}


@pytest.mark.parametrize("name", FORMER_FALLBACKS)
def test_sketches_run_what_was_scalar_as_vectors_on_threads(name):
    program = parse_ir(FORMER_FALLBACKS[name])
    space = sketch.space(program, TARGET, 2)
    assert space.slow_reason is None
    naive = statements_run(to_loops(program).body, lanes=4)
    function = final_loops(space, space.default())
    # With four lanes, a quarter of the statements and what begins and ends tiles.
    assert statements_run(function.body, lanes=4) < naive / 2.5
    assert kinds_of(function)[LoopKind.VECTORIZED] == 4
    assert LoopKind.PARALLEL in kinds_of(function)


def test_thirty_stages_that_are_each_read_twice_stay_small():
    stages = "".join(
        f"""    t{n}: f32[6, 9] in workspace
    for i, j in axes(6, 9):
        t{n}[i, j] = {source}[i, j] * 0.5 + {source}[i, 8 - j]
"""
        for n, source in enumerate(["x", *(f"t{n}" for n in range(29))])
    )
    program = parse_ir(f"""@program
def p(x: f32[6, 9]):
{stages}    y: f32[6]
    for i in axes(6):
        y[i] = max(t29[i, k] for k in axes(9))
    return y
""")
    check_program(program, 0)
    space = sketch.space(program, TARGET, 2)
    assert len(print_ir(final_loops(space, space.default()))) < 100_000


OPEN = """@program(n=dim(0, 40, 12), m=dim(0, 30, 9))
def p(x: u8[n, m], w: u8[m, n]):
    s: u8[n]
    for i in axes(n):
        s[i] = sum(x[i, k] * w[k, i] for k in axes(m))
    y: u8[n, m]
    for i, j in axes(n, m):
        y[i, j] = x[i, j] + s[i]
    return s, y
"""


def test_programs_whose_dims_are_all_open_run_at_every_size():
    program = parse_ir(OPEN)
    space = sketch.space(program, TARGET, 2)
    assert space.slow_reason is None
    functions = [final_loops(space, each) for each in space.defaults()]
    for sizes in ((0, 0), (0, 3), (5, 0), (1, 1), (7, 30), (40, 9), (12, 8)):
        numbers = dict(zip(program.dims, sizes, strict=True))
        inputs = small_integers(bind(program, numbers), 0)
        expected = evaluate(bind(program, numbers), inputs)
        for function in functions:
            for name, array in run_loops(bind(function, numbers), inputs).items():
                np.testing.assert_array_equal(array, expected[name], err_msg=f"{name} {sizes}")


def test_a_maximum_with_nan_is_nan():
    program = parse_ir(FORMER_FALLBACKS["a sum of everything"].replace("sum", "max"))
    x = np.zeros((400, 1000), np.float32)
    x[250, 333] = np.nan
    space = sketch.space(program, TARGET, 2)
    assert np.isnan(run_loops(final_loops(space, space.default()), {"x": x})["y"])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_every_sketch_finds_the_first_or_the_last_extreme_and_a_leading_nan(op, last):
    region = Region(tensor("x", 5, 36)).then(
        op, shape=(5,), axis=1, keepdims=0, select_last_index=last
    )
    x = np.random.default_rng(0).integers(-3, 4, (5, 36)).astype(np.float32)  # Many are equal.
    x[1, 0] = x[2, 7] = np.nan
    x[3] = np.nan
    x[4] = np.where(x[4] == 0, np.nan, x[4])
    attrs = {"axis": 1, "keepdims": 0, "select_last_index": last}
    (expected,) = lookup(op).reference((x,), attrs)
    names = set()
    for space in sketch.spaces(region.program, WITHOUT_CACHE, 1):
        names.add(space.rule.name)
        for row in space.candidates()[:EACH]:
            (result,) = run_loops(final_loops(space, space.decisions(row)), {"x": x}).values()
            np.testing.assert_array_equal(result, expected, err_msg=space.rule.name)
    assert {"sketch/split-lanes", "sketch/fuse-sums+tile-registers"} <= names


def test_threads_divide_the_extremes_of_a_long_row_and_their_positions():
    region = Region(tensor("x", 40_000)).then("ArgMax", shape=(), axis=0, keepdims=0)
    x = np.zeros(40_000, np.float32)
    x[[31_000, 39_999]] = 1.0
    x[20_000] = np.nan
    space = sketch.space(region.program, TARGET, 2)
    assert "split-threads" in space.rule.name
    function = final_loops(space, space.default())
    shared = [
        s for s in walk_stmts(function.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL
    ]
    assert len(shared) >= 2
    (result,) = run_loops(function, {"x": x}).values()
    assert result == 31_000


def test_a_program_that_no_schedule_applies_to_names_the_reason(monkeypatch):
    def refuse(derivation, schedule, decisions):
        raise ScheduleError("vectorize", "lanes conflict", schedule.function)

    for each in DERIVATIONS:
        monkeypatch.setattr(each, "schedule", refuse)
    space = sketch.space(parse_ir(OPEN), TARGET, 2)
    assert space.rule.name == "sketch/serial"
    assert "lanes conflict" in space.slow_reason


def test_defaults_derive_no_sketch_and_a_search_has_them(monkeypatch):
    program = matmul(6, 16, 33).program
    space = for_program(program, TARGET, 2)
    with monkeypatch.context() as patched:
        patched.setattr(sketch, "spaces", None)
        assert space.rule_of(space.default()).name == "register_tile"
        final_loops(space, space.default())
        assert space.seconds(space.default()) > 0
        assert space.derived_size == space.built_in.size
    defaults = space.defaults()
    assert [space.rule_of(each).name for each in defaults[:2]] == [
        "register_tile",
        "sketch/tile-registers",
    ]
    assert all(space.rule_of(each) in space.rules for each in defaults)
    assert space.size > space.built_in.size
    candidates = space.candidates()
    learned = space.is_learned(candidates)
    assert learned.any()
    assert not learned.all()
    # What ranks behind the default of the built-in rule in seconds stays there.
    assert space.costs()[~learned].min() >= space.costs()[learned].min()


CONTRACTIONS = {
    # Lanes read along a window, so no register tile takes it.
    "a[i + k] * b[j, k]": ("y[j, i] = sum(a[i + k] * b[j, k] for k in axes(9))", True),
    # No point reads an operand again.
    "c[j, i, k]²": ("y[j, i] = sum(c[j, i, k] * c[j, i, 8 - k] for k in axes(9))", False),
    "max": ("y[j, i] = max(a[i + k] * b[j, k] for k in axes(9))", False),
    "a[i + k]": ("y[j, i] = sum(a[i + k] for k in axes(9))", False),
}


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contractions_that_tiles_read_again_are_not_left_to_rows(name):
    text, is_tiled = CONTRACTIONS[name]
    program = parse_ir(f"""@program
def p(a: f32[40], b: f32[5, 9], c: f32[5, 32, 9]):
    y: f32[5, 32]
    for j, i in axes(5, 32):
        {text}
    return y
""")
    rule = for_program(program, TARGET, 1).rule.name
    assert (rule == "sketch/tile-registers") is is_tiled
    assert is_tiled or rule in ("rows", "register_tile")
