"""Products of warpgroups, `wgmma`: interpreter, emulator of PTX and program agree, and each fence
and each wait is missed."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shutil
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import CompilerError
from farrier.intrinsics import lookup
from farrier.ir.evaluate import evaluate
from farrier.ir.expr import MemoryScope
from farrier.ir.loop import Barrier, Block
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_threads import run_threads
from farrier.ir.statements import map_children
from farrier.ir.types import DType
from farrier.lower.loops import to_loops
from farrier.lower.lower_threads import lower_threads
from farrier.schedule import Schedule, ScheduleError
from farrier.targets.cuda.assembler import assemble, find_ptxas
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.cuda.tensor_cores import require_features
from farrier.targets.cuda.wgmma import PRODUCTS
from farrier_device.cuda_library import PTX
from farrier_device.devices import libcuda as driver
from tests.targets.cuda.libcuda import Library
from tests.targets.cuda.products import inputs_of, product
from tests.targets.cuda.ptx import PtxError
from tests.targets.cuda.running import run_ptx
from tests.targets.cuda.test_fragments import WIDE, _halves
from tests.targets.cuda.test_mutants import BARRIER, FAULT, without_each

CPU = "sm_90a"
BY_NAME = {each.name: each for each in PRODUCTS}
# Warpgroups, fragments of each, rows of 128 bytes of terms, and stages.
_TILES = (((1, 1), (1, 1), 1, 1), ((2, 1), (1, 1), 1, 2), ((1, 2), (2, 1), 2, 3))
_MISSED = rf"{FAULT}|no wait for the product|no wgmma.fence|no fence.proxy.async"


def _meaning(name):
    return lookup(name).semantics


def lowered(program, declared, warpgroups, each, steps, stages, fetches=False):
    """Return the kernel of a program whose warpgroups multiply tiles."""
    schedule = Schedule(to_loops(program))
    depth = steps * 128 // declared.left.nbytes
    sizes = warpgroups, each, depth, stages, fetches
    schedule.warpgroup_product("t", "y", declared.name, *sizes)
    return lower_threads(schedule.function)


def _ptx(function):
    return ptx_of(render(function, CPU), CPU)


def _assert_right(shape, name, tile, is_transposed, fetches=False):
    declared = BY_NAME[name]
    program = product(*shape, declared, is_transposed=is_transposed)
    function, inputs = lowered(program, declared, *tile, fetches), inputs_of(program)
    assert print_ir(parse_ir(print_ir(function))) == print_ir(function)
    expected = evaluate(program, inputs)["y"]
    rounding = 2.0**-7 if declared.left is DType.BF16 else 2e-3
    near = {"rtol": rounding, "atol": 1e-2} if declared.total.is_float else {"rtol": 0, "atol": 0}
    text = _ptx(function)
    for result in (
        run_threads(function, inputs, meaning=_meaning),
        run_ptx(text, function, inputs),
    ):
        np.testing.assert_allclose(result["y"], expected, **near)
    return text.count("bulk.tensor")


@pytest.mark.parametrize(
    ("name", "is_transposed", "tile"),
    [
        ("wgmma_f16_64", False, _TILES[0]),
        ("wgmma_f16_32", True, _TILES[1]),
        ("wgmma_f16_128", False, _TILES[2]),
        ("wgmma_bf16_64", True, _TILES[2]),
        ("wgmma_i8_i8_32", True, _TILES[1]),
        ("wgmma_u8_i8_64", False, _TILES[0]),
    ],
)
def test_products_of_each_kind(name, is_transposed, tile):
    _assert_right((70, 41, 200), name, tile, is_transposed)
    _assert_right((64, 64, 128), name, tile, is_transposed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wgmma_f16_64", "wgmma_bf16_128", "wgmma_u8_u8_32"])
def test_products_of_many_shapes(name):
    for number, shape in enumerate(WIDE):
        _assert_right(shape, name, _TILES[number % len(_TILES)], number % 3 == 0)


@pytest.mark.parametrize(
    ("name", "is_transposed", "shape", "tile", "count"),
    [
        ("wgmma_f16_64", True, (128, 128, 320), ((2, 1), (1, 1), 1, 3), 6),
        ("wgmma_bf16_64", False, (64, 192, 256), ((1, 2), (1, 1), 2, 2), 4),
        # The tiles do not divide the rows evenly: threads copy these.
        ("wgmma_f16_64", True, (100, 64, 128), ((1, 1), (1, 1), 1, 2), 2),
        ("wgmma_u8_u8_32", True, (64, 96, 640), ((1, 1), (1, 1), 1, 4), 8),
        ("wgmma_u8_u8_32", False, (60, 96, 640), ((1, 1), (1, 1), 1, 4), 0),
    ],
)
def test_one_thread_copies_tiles_for_its_block(name, is_transposed, shape, tile, count):
    assert _assert_right(shape, name, tile, is_transposed, fetches=True) == count


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wgmma_f16_64", "wgmma_i8_i8_32"])
def test_copies_of_tiles_in_many_shapes(name):
    declared, fetched = BY_NAME[name], 0
    terms = 128 // declared.left.nbytes
    shapes = itertools.product((1, 37, 64, 128), (32, 64, 192), (1, 2, 5), (False, True))
    for number, (rows, columns, turns, is_transposed) in enumerate(shapes):
        tile = ((1, 1), (1, 1), 1, 2 + number % 3)
        shape = rows, columns, turns * terms
        fetched += bool(_assert_right(shape, name, tile, is_transposed, fetches=True))
    assert fetched >= 50 if declared.reads_across else fetched >= 36


def _kernel(stages):
    program = product(
        80, 64, 200 if stages > 1 else 130, BY_NAME["wgmma_f16_64"], is_transposed=True
    )
    function = lowered(program, BY_NAME["wgmma_f16_64"], (2, 1), (1, 1), 1, stages)
    return function, inputs_of(program)


@pytest.mark.parametrize("stages", [1, 3])
def test_the_emulator_misses_each_barrier_fence_and_wait(stages):
    function, inputs = _kernel(stages)
    text = _ptx(function)
    run_ptx(text, function, inputs)
    mutants = list(without_each(text, BARRIER))
    for pattern in (
        r"fence\.proxy\.async[^;]*;",
        r"wgmma\.fence[^;]*;",
        r"wgmma\.wait_group[^;]*;",
    ):
        assert re.search(pattern, text)
        mutants.append(re.sub(pattern, "", text))
    mutants.append(re.sub(r"(wgmma\.wait_group\S*) 0;", r"\1 1;", text))
    if stages > 1:
        mutants.append(re.sub(r"cp\.async\.wait_group\s+1;", "cp.async.wait_group 2;", text))
    for mutant in mutants:
        assert mutant != text
        with pytest.raises(PtxError, match=_MISSED):
            run_ptx(mutant, function, inputs)


def test_the_emulator_misses_each_wait_for_copies_of_tiles():
    declared = BY_NAME["wgmma_f16_64"]
    program = product(128, 64, 320, declared, is_transposed=True)
    function = lowered(program, declared, (2, 1), (1, 1), 1, 3, True)
    text, inputs = _ptx(function), inputs_of(program)
    run_ptx(text, function, inputs)
    missed = rf"{_MISSED}|no fence.mbarrier_init|mbarrier that n|which nothing completes"
    mutants = list(without_each(text, BARRIER))
    for pattern, other in (
        (r"fence\.mbarrier_init[^;]*;", ""),
        (r"mbarrier\.init\.[^;]*;", ""),
        (r"mbarrier\.arrive\.[^;]*;", ""),
        (r"mbarrier\.expect_tx\.[^;]*;", ""),
        (r"(mbarrier\.try_wait\.\S+) (\w+), (\S+), %r\d+;", r"\1 \2, \3, 1;"),
        (r"wgmma\.wait_group[^;]*;", ""),
    ):
        assert re.search(pattern, text)
        mutants.append(re.sub(pattern, other, text))
    for mutant in mutants:
        with pytest.raises(PtxError, match=missed):
            run_ptx(mutant, function, inputs)


def _without(function, is_gone, other=None):
    def visit(stmt):
        if isinstance(stmt, Barrier) and is_gone(stmt):
            return Block(()) if other is None else other(stmt)
        return map_children(stmt, visit)

    return dataclasses.replace(function, body=visit(function.body))


@pytest.mark.parametrize("stages", [1, 3])
def test_the_interpreter_misses_each_barrier_fence_and_wait(stages):
    function, inputs = _kernel(stages)
    run_threads(function, inputs, meaning=_meaning)

    def orders(barrier):
        return barrier.scope is MemoryScope.WARPGROUP and barrier.copies is None

    def waits(barrier):
        return barrier.scope is MemoryScope.WARPGROUP and barrier.copies is not None

    def later(barrier):
        return dataclasses.replace(barrier, copies=barrier.copies + 1)

    def silent(barrier):
        return dataclasses.replace(barrier, publishes=False)

    for mutant, why in (
        (_without(function, orders), "no barrier orders accesses to t_sums"),
        (_without(function, waits), "no barrier waits for the product that adds to t_sums|race"),
        (_without(function, waits, later), "waits for the product|nobody wrote|not published|race"),
        (_without(function, lambda each: each.publishes, silent), "that is not published"),
        (_without(function, lambda each: each.publishes), "race|nobody wrote|not published"),
    ):
        assert mutant != function
        with pytest.raises(CompilerError, match=why):
            run_threads(mutant, inputs, meaning=_meaning)


def test_factors_that_do_not_fill_rows_of_memory_are_refused():
    program = product(64, 64, 64, BY_NAME["wgmma_f16_32"])
    with pytest.raises(ScheduleError, match="a fragment of t has no whole rows of 64"):
        lowered(program, BY_NAME["wgmma_f16_32"], (1, 2), (1, 1), 1, 1)
    schedule = Schedule(to_loops(program))
    with pytest.raises(ScheduleError, match="t_rows has 32 elements, not rows of 64"):
        schedule.warpgroup_product("t", "y", "wgmma_f16_64", (1, 1), (1, 1), 32, 1)


def test_other_architectures_lack_the_instruction():
    function, _ = _kernel(1)
    with pytest.raises(CompilerError, match="wgmma_f16_64_zero, which sm_90 lacks") as error:
        require_features(function, "sm_90")
    assert error.value.hint == "these have it: sm_90a"
    require_features(function, CPU)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is missing: install nvidia-cuda-nvcc")
@pytest.mark.parametrize("name", BY_NAME)
def test_ptxas_accepts_products_and_spills_nothing(name):
    _, frames = _assembled(name)
    assert all(frame.is_in_registers for frame in frames)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is missing: install nvidia-cuda-nvcc")
@pytest.mark.skipif(shutil.which("nvdisasm") is None, reason="install nvidia-cuda-nvdisasm")
@pytest.mark.parametrize(
    ("name", "opcode"), [("wgmma_f16_64", "HGMMA"), ("wgmma_i8_u8_32", "IGMMA")]
)
def test_the_code_multiplies_by_warpgroups(name, opcode, tmp_path):
    (tmp_path / "kernel.cubin").write_bytes(_assembled(name)[0])
    command = ["nvdisasm", tmp_path / "kernel.cubin"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # Four for each turn of the loop, of which ptxas unrolls some.
    count = len(re.findall(rf"\b{opcode}\.64x", listing))
    assert count
    assert count % 4 == 0
    assert "UTMALDG.2D" in listing


def _assembled(name):
    declared = BY_NAME[name]
    program = product(200, 512, 256, declared, is_transposed=True)
    function = lowered(program, declared, (2, 1), (1, 1), 1, 3, True)
    return assemble(_ptx(function), CPU, find_ptxas())


def test_a_model_of_f16_runs_by_products_of_warpgroups(monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    library = Library(capability=(9, 0))
    monkeypatch.setattr(driver, "_loaded", lambda: library)
    data = _halves()
    artifact = farrier.compile(data, target="cuda:sm_90a", verify=False)
    texts = [code.content.decode() for code in artifact.code.objects if code.kind == PTX]
    assert sum("wgmma.mma_async" in text for text in texts) == 1
    x = np.random.default_rng(3).standard_normal((1, 16, 10, 14)).astype(np.float16)
    (expected,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
    for _ in range(2):  # The second run is that of a graph.
        (result,) = artifact.run({"x": x}).values()
        assert np.abs(result.astype(float) - expected).max() <= 1e-2 * np.ptp(
            expected.astype(float)
        )


@pytest.mark.long
def test_a_driver_encodes_the_maps_of_tiles(monkeypatch):
    library = Library(capability=(9, 0))
    monkeypatch.setattr(driver, "_loaded", lambda: library)
    rng = np.random.default_rng(4)
    w = (rng.standard_normal((1024, 256)) / 16).astype(np.float16)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"]),
            helper.make_node("MatMul", ["m", "v"], ["y"]),
        ],
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (256, 1024))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (256, 1024))],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(w.T.copy(), "v")],
    )
    opset = [helper.make_opsetid("", 17)]
    data = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    artifact = farrier.compile(data, target="cuda:h100", verify=False)
    texts = [code.content.decode() for code in artifact.code.objects if code.kind == PTX]
    assert any("bulk.tensor" in text for text in texts)
    for _ in range(3):  # The second run makes a graph, the third one updates it.
        x = rng.standard_normal((256, 1024)).astype(np.float16)
        (result,) = artifact.run({"x": x}).values()
        expected = x.astype(float) @ w @ w.T
        assert np.abs(result - expected).max() <= 1e-2 * np.ptp(expected)
    assert "cuGraphLaunch" in library.calls
