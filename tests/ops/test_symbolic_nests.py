"""Loop nests whose sizes are known when they run: compiled once, right for every size in range."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.parser import parse_ir
from farrier.ir.verify_kernel import verify_function
from farrier.lower.region import lower_region
from farrier.ops import run_graph
from farrier.targets import host
from farrier.targets.cpu.rules import for_program
from tests.ir.bind import at_sizes, bind
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import Compiled

GRAPHS = {
    "top_k": """@graph(n=dim(1, 9, 9), m=dim(5, 300, 300))
def g(x: f32[n, m, 2]):
    k: i64[1] = constant([5])
    v: f32[n, 5, 2]
    i: i64[n, 5, 2]
    v, i = TopK(x, k, axis=1)
    return v, i
""",
    "top_k of rows": """@graph(n=dim(1, 9, 9), m=dim(5, 300, 300))
def g(x: f32[n, m]):
    k: i64[1] = constant([5])
    v: f32[n, 5]
    i: i64[n, 5]
    v, i = TopK(x, k, largest=0)
    return v, i
""",
    "running sums of rows": """@graph(n=dim(0, 50, 50), m=dim(0, 100, 100))
def g(x: f32[n, m]):
    a: i64[1] = constant([1])
    y: f32[n, m] = CumSum(x, a, reverse=1)
    return y
""",
    "running sums of columns": """@graph(n=dim(0, 50, 50), m=dim(1, 100, 100))
def g(x: f32[n, m]):
    a: i64[1] = constant([0])
    y: f32[n, m] = CumSum(x, a, exclusive=1)
    return y
""",
    "lines": """@graph(n=dim(1, 50, 50), e=dim(1, 50, 50), f=dim(1, 70, 70))
def g(x: f32[n, f], i: i64[e, f], u: f32[e, f]):
    y: f32[n, f] = ScatterElements(x, i, u, axis=0, reduction='add')
    return y
""",
    "rows": """@graph(n=dim(1, 50, 50), e=dim(1, 5000, 3000), f=dim(1, 70, 70))
def g(x: f32[n, f], i: i64[e, 1], u: f32[e, f]):
    y: f32[n, f] = ScatterND(x, i, u, reduction='add')
    return y
""",
    "rows of 64": """@graph(n=dim(1, 50, 50), e=dim(1, 5000, 3000))
def g(x: f32[n, 64], i: i64[e, 1], u: f32[e, 64]):
    y: f32[n, 64] = ScatterND(x, i, u, reduction='max')
    return y
""",
    "lstm": """@graph(t=dim(1, 9, 9), b=dim(1, 7, 7))
def g(x: f32[t, b, 160], w: f32[2, 2, 20, 4, 16], h: f32[2, b, 20], c: f32[2, b, 20]):
    y: f32[t, 2, b, 20]
    h1: f32[2, b, 20]
    c1: f32[2, b, 20]
    y, h1, c1 = Recurrence(x, w, None, h, c, cell='lstm', hidden=20, reversed=(0, 1),
        activations=('sigmoid', 'tanh', 'tanh', 'sigmoid', 'tanh', 'tanh'),
        alphas=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0), betas=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    return y, h1, c1
""",
    "gru of one sequence": """@graph(t=dim(1, 9, 9))
def g(x: f32[t, 1, 96], w: f32[1, 2, 32, 3, 16]):
    y: f32[t, 1, 1, 32]
    h1: f32[1, 1, 32]
    y, h1 = Recurrence(x, w, cell='gru', hidden=32, reversed=(0,),
        activations=('sigmoid', 'tanh'), alphas=(0.0, 0.0), betas=(0.0, 0.0))
    return y, h1
""",
    "determinants": """@graph(b=dim(1, 30, 30))
def g(x: f32[b, 3, 3]):
    y: f32[b] = Det(x)
    return y
""",
}  # fmt: skip


def arrays(graph, rng):
    """Inputs that fit; indices point at the first axis of the first one."""
    rows = graph.inputs[0].type.shape[0]
    return {
        value.name: rng.integers(-rows, rows, value.type.shape)
        if value.type.dtype.numpy.kind == "i"
        else rng.standard_normal(value.type.shape).astype(np.float32) / 4
        for value in graph.inputs
    }


@pytest.mark.parametrize("name", GRAPHS)
def test_every_size_in_range(rng, name):
    graph = parse_ir(GRAPHS[name])
    function = lower_region(graph, "kernel", ())
    verify_function(function)
    space = for_program(function, host(), 2)
    for row in space.candidates():
        built = final_loops(space, space.decisions(row))
        verify_function(built)
        with Compiled(built, threads=2) as kernel:
            for case in range(7):
                ends = [{s: s.low for s in graph.dims}, {s: s.high for s in graph.dims}]
                drawn = {s: int(rng.integers(s.low, s.high + 1)) for s in graph.dims}
                sizes = ends[case] if case < 2 else drawn
                bound = at_sizes(graph, {symbol.name: size for symbol, size in sizes.items()})
                inputs = arrays(bound, rng)
                params = dict(zip((v.name for v in graph.inputs), built.params, strict=False))
                feeds = {
                    params[n].name: a.reshape(bind(params[n], sizes).shape)
                    for n, a in inputs.items()
                }
                actual = kernel(feeds, sizes).values()
                for ours, theirs in zip(actual, run_graph(bound, inputs).values(), strict=True):
                    np.testing.assert_allclose(
                        ours.reshape(theirs.shape), theirs, rtol=1e-4, atol=1e-4, err_msg=str(sizes)
                    )
