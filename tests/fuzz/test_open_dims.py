"""Random models with open dims: imported, through every pass, and at numbers they mean what the
model with those numbers means."""

from __future__ import annotations

import random

import hypothesis
import numpy as np
import onnx
from hypothesis import strategies as st
from random_models import random_feeds, random_model

from farrier.errors import InvalidModelError, UnresolvedShapeError
from farrier.frontends.onnx.importer import import_model
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ops import run_graph
from farrier.ops.verify import verify
from farrier.partition import extract_tasks
from farrier.passes import Settings, run_passes
from farrier.passes.runner import arrays_of
from farrier.targets import parse_target
from farrier.targets.cpu.passes import ORDER
from tests.ir.bind import at_sizes

SETTINGS = Settings(parse_target("x86-64-v4"), threads=2)


def opened(model, rng):
    """The model with some dims open, first and last ones most often, the shapes that open them,
    and the size that each had: equal extents are one dim."""
    proto = onnx.load_from_string(model)
    texts, sizes = {}, {}
    dims_of_inputs = [info.type.tensor_type.shape.dim for info in proto.graph.input]
    ends = {dims[end].dim_value for dims in dims_of_inputs if dims for end in (0, -1)}
    for info in proto.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            extent = dim.dim_value
            if extent not in texts:
                texts[extent] = extent
                if extent > 1 and rng.random() < (0.9 if extent in ends else 0.4):
                    low, high = max(1, extent - rng.randint(0, 2)), extent + rng.randint(1, 40)
                    texts[extent] = f"n{extent}:{low}..{high}"
                    sizes[f"n{extent}"] = extent
            if isinstance(texts[extent], str):
                dim.dim_param = f"n{extent}"
    shapes = {
        info.name: tuple(
            texts[dim.dim_value or sizes[dim.dim_param]] for dim in info.type.tensor_type.shape.dim
        )
        for info in proto.graph.input
    }
    for info in proto.graph.output:
        info.type.tensor_type.ClearField("shape")
    return proto.SerializeToString(), shapes, sizes


def run(graph, feeds):
    names = (value.name for value in graph.inputs)
    with np.errstate(all="ignore"):
        arrays = run_graph(graph, dict(zip(names, feeds.values(), strict=True)))
    return [arrays[value.name] for value in graph.outputs]


@hypothesis.settings(max_examples=60)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
@hypothesis.example(seed=262143)  # An open line whose pads depend on its length.
def test_open_dims_mean_what_numbers_mean(seed):
    rng = random.Random(seed)
    fixed = random_model(rng, most=6)
    model, shapes, names = opened(fixed, rng)
    hypothesis.assume(names)
    wanted = import_model(fixed).graph
    try:
        imported = import_model(model, shapes, typical=names)
    except (InvalidModelError, UnresolvedShapeError) as error:
        hypothesis.event(f"{type(error).__name__}: {str(error)[:60]}")
        hypothesis.reject()
    graph = imported.graph
    verify(graph)
    assert parse_ir(print_ir(graph), arrays_of(graph)) == graph
    sizes = {dim.symbol: names[dim.name] // dim.step for dim in imported.dims}
    numbers = at_sizes(graph, sizes)
    verify(numbers)
    assert [v.type for v in numbers.outputs] == [v.type for v in wanted.outputs]
    feeds = random_feeds(fixed, np.random.default_rng(0))
    expected = run(wanted, feeds)
    for left, right in zip(run(graph, feeds), expected, strict=True):
        np.testing.assert_array_equal(left, right)
    for position in range(1, len(ORDER) + 1):
        graph = run_passes(graph, ORDER[position - 1 : position], SETTINGS)
        verify(graph)
    for left, right in zip(run(graph, feeds), expected, strict=True):
        scale = np.abs(right[np.isfinite(right)]).max(initial=1e-6)
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-4 * scale)
    tasks, program = extract_tasks(graph)
    for call in program.calls:
        region = tasks[call.task].region
        verify(region)
        assert len(call.dims) == len(region.dims)
