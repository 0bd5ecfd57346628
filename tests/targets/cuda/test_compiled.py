"""Kernels as C, which whole models run by: their results are the emulator's, and so are faults."""

from __future__ import annotations

import re

import numpy as np
import pytest

import farrier
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.expressible import LIMITS
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.gpu import rows
from farrier.targets.gpu.device import USUAL
from farrier_device.cuda_library import tensor_maps
from farrier_device.devices import libcuda as driver
from tests.ir.kernels import KERNELS
from tests.ir.kernels import inputs_of as inputs_of_phases
from tests.schedule.programs import inputs_of as softmax_inputs
from tests.schedule.programs import softmax
from tests.targets.cuda import emulator
from tests.targets.cuda.compiled import Machine
from tests.targets.cuda.libcuda import Library
from tests.targets.cuda.memory import Memory
from tests.targets.cuda.products import inputs_of, lowered, product
from tests.targets.cuda.ptx import PtxError, kernels_of
from tests.targets.cuda.running import run_kernels, run_ptx
from tests.targets.cuda.test_fragments import BY_NAME
from tests.targets.cuda.test_models import IMAGES
from tests.targets.cuda.test_warpgroups import BY_NAME as OF_WARPGROUPS
from tests.targets.cuda.test_warpgroups import lowered as of_warpgroups
from tests.targets.cuda.whole import run


def _cases():
    """Yield kernels with their inputs and architectures: phases, products of fragments, and
    products of warpgroups, of which the last one copies both factors by tensor maps."""
    function, _ = KERNELS["attention"]
    yield lower_threads(function), inputs_of_phases(function), "sm_80"
    program = softmax(3, 300)
    space = rows.space(program, LIMITS, USUAL)
    shared = space.schedule({"row_threads": 64, "rows_each": 1}).function
    yield lower_threads(shared), softmax_inputs(program), "sm_75"
    for name, cpu, stages in (
        ("mma_f16_k8", "sm_75", 1),
        ("mma_f16", "sm_80", 3),
        ("mma_bf16", "sm_80", 1),
        ("mma_i8_u8", "sm_80", 3),
    ):
        program = product(19, 24, 48, BY_NAME[name], is_transposed=stages > 1)
        tile = (1, 2), (1, 1), 1
        yield lowered(program, BY_NAME[name], *tile, stages), inputs_of(program), cpu
    narrow, wide = ((1, 1), (1, 1), 1, 2), ((2, 1), (1, 1), 1, 3)
    for name, shape, tile, is_transposed, fetches in (
        ("wgmma_f16_64", (70, 41, 200), narrow, False, False),
        ("wgmma_bf16_128", (70, 41, 200), wide, True, False),
        ("wgmma_u8_i8_32", (70, 41, 200), narrow, True, False),
        ("wgmma_f16_64", (128, 64, 320), wide, False, True),
        ("wgmma_f16_64", (128, 128, 320), wide, True, True),
    ):
        declared = OF_WARPGROUPS[name]
        program = product(*shape, declared, is_transposed=is_transposed)
        yield of_warpgroups(program, declared, *tile, fetches), inputs_of(program), "sm_90a"


def test_results_are_those_of_the_emulator(tmp_path):
    machine, runs = Machine(tmp_path), []
    for function, inputs, cpu in _cases():
        text = ptx_of(render(function, cpu), cpu)
        runs.append((text, function, inputs, kernels_of(text)))
        machine.add(runs[-1][-1].values())
    for text, function, inputs, kernels in runs:
        expected = run_ptx(text, function, inputs)
        results = run_kernels(kernels, function, inputs, machine.launch, tensor_maps(text))
        for name, result in results.items():
            # The products of a fragment may be added in another order.
            np.testing.assert_allclose(result, expected[name], 2e-3, 1e-3)
    assert len(tensor_maps(text)["f_0"]) == 2


BLOCKS = """
.visible .entry halves(.param .u64 .ptr .global .align 4 from, .param .u64 .ptr .global .align 4 to)
.maxntid 1
{
\t.reg .b16 \t%rs<3>;
\t.reg .b32 \t%r<4>;
\t.reg .b64 \t%rd<4>;
\tld.param.b64 %rd1, [from];
\tld.param.b64 %rd2, [to];
\tld.global.b32 %r1, [%rd1];
\t{ .reg .b16 tmp; mov.b32 {%rs1, tmp}, %r1; }
\t{ .reg .b16 tmp; mov.b32 {tmp, %rs2}, %r1;
\t{ .reg .b32 tmp; mov.b32 tmp, {%rs2, %rs1}; mov.b32 %r2, tmp; } }
\t{ .reg .b32 tmp; mov.b64 {tmp, %r3}, %rd1; }
\tst.global.b32 [%rd2], %r2;
\tret;
}
"""


def test_registers_of_a_block_are_its_own(tmp_path):
    (kernel,) = kernels_of(BLOCKS).values()
    machine = Machine(tmp_path)
    machine.add([kernel])
    for launch in emulator.launch, machine.launch:
        memory = Memory()
        source, result = memory.allocate(4), memory.allocate(4)
        memory.write(source, np.array([0x12345678], np.uint32).view(np.uint8))
        launch(kernel, 1, 1, [source, result], memory)
        assert memory.read(result, 4).view(np.uint32) == [0x56781234]


def test_a_store_outside_of_its_array_is_named(tmp_path):
    function, _ = KERNELS["reverse"]
    text = ptx_of(render(lower_threads(function), "sm_80"), "sm_80")
    mutant = re.sub(r"(st\.global[.\w]*\s+\[%rd\d+)", r"\1+4096", text, count=1)
    machine, kernels = Machine(tmp_path), kernels_of(mutant)
    machine.add(kernels.values())
    with pytest.raises(PtxError, match=r"outside of its array, or misaligned: st\.global"):
        run_kernels(kernels, lower_threads(function), inputs_of_phases(function), machine.launch)


def test_a_model_runs_whole(tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    library = Library(machine=Machine(tmp_path))
    monkeypatch.setattr(driver, "_loaded", lambda: library)
    x = np.random.default_rng(0).standard_normal((1, 3, 16, 15)).astype(np.float32)
    artifact = farrier.compile(IMAGES, target="cuda:sm_80", verify=False)
    (result,) = artifact.run({"x": x}).values()
    (expected,) = onnxruntime.InferenceSession(IMAGES).run(None, {"x": x})
    np.testing.assert_allclose(result, expected, 1e-4, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision", "cpu"),
    [
        ("rapidocr_cls", "f32", "sm_80"),
        ("rapidocr_cls", "f16", "sm_80"),
        ("squeezenet", "f16", "sm_90a"),
    ],
)
def test_a_model_of_the_bench_runs_whole(name, precision, cpu, tmp_path):
    assert run(name, precision, cpu, tmp_path).is_right
