"""Weights quantized in blocks stay packed: kernels read each byte of them once."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import farrier
from farrier.ir.dim import number
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.architectures import ARCHITECTURES
from farrier.targets.cuda.assembler import assemble, find_ptxas
from farrier.targets.cuda.expressible import LIMITS
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.gpu import few_rows
from farrier.targets.gpu.device import USUAL
from tests.ops.test_blocks import one_product
from tests.schedule.programs import inputs_of
from tests.targets.cuda import emulator
from tests.targets.cuda.ptx import kernels_of
from tests.targets.cuda.running import run_kernels
from tests.targets.cuda.traffic import Traffic
from tests.targets.gpu.packed import KINDS, packed_product

_SECTOR = 32


def _kernel(program, **decisions):
    space = few_rows.space(program, LIMITS, USUAL)
    return lower_threads(space.schedule({**space.default(), **decisions}).function)


class _Reads(Traffic):
    """The addresses and sizes of all accesses to global memory, by instruction and warp."""

    def __init__(self):
        super().__init__()
        self.sectors, self.widths = [], []

    def note(self, space, text, threads, address, nbytes):
        super().note(space, text, threads, address, nbytes)
        if space == "global" and text.startswith("ld"):
            at = np.stack([threads // 32, address // _SECTOR], 1)
            self.sectors.append(np.unique(at, axis=0)[:, 1])
            self.widths.append((address, nbytes))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 4])
def test_each_sector_of_the_codes_is_read_once(rows, kind):
    program = packed_product(rows, 8, 16, 128, kind)
    function = _kernel(program, sum_rows=rows, sum_turns=1)
    inputs, reads, begins = inputs_of(program), _Reads(), []

    def launch(kernel, blocks, threads, arguments, memory):
        begins.extend(arguments)
        emulator.launch(kernel, blocks, threads, arguments, memory, reads)

    run_kernels(kernels_of(ptx_of(render(function, "sm_80"), "sm_80")), function, inputs, launch)
    place = [buffer.name for buffer in function.params].index("words")
    first, nbytes = begins[place], number(function.params[place].nbytes)
    sectors = np.concatenate(reads.sectors) - first // _SECTOR
    of_codes = sectors[(sectors >= 0) & (sectors < nbytes // _SECTOR)]
    assert sorted(of_codes) == list(range(nbytes // _SECTOR))
    widths = {n for at, n in reads.widths if (at >= first).all() and (at < first + nbytes).all()}
    assert widths == {16}
    assert reads.over_the_fewest("global") <= 1.25


CASES = [
    (4, 32, 1, 256, 96, np.float32, "packed", 0),
    (4, 16, 3, 75, 33, np.float16, "float", 0),
    (8, 32, 1, 128, 65, np.float32, "", 0),
    (4, 32, 17, 64, 24, np.float32, "packed", 4),
]


@pytest.mark.parametrize("case", CASES)
def test_a_model_keeps_its_weights_packed(library, case):
    """The artifact has the bytes of the codes, scales and zero points, and the results are those in
    float64."""
    node, infos, constants, feeds, wanted = one_product(np.random.default_rng(3), 0, *case)
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    artifact = farrier.compile(model, target="cuda:sm_80", verify=False)
    ((name, want),) = wanted.items()
    got = artifact.run(feeds)[name].astype(float)
    tolerance = 1e-5 if case[5] is np.float32 else 1e-3
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())
    assert any("packed" in launch for launch in library.launches)
    assert artifact.report["size"]["params_bytes"] < case[3] * case[4] * 4 / 2


def test_rows_of_any_number(library):
    node, infos, constants, feeds, wanted = one_product(
        np.random.default_rng(4), 0, 4, 32, 17, 64, 24, np.float32, "packed", 0
    )
    for info in infos:
        info.type.tensor_type.shape.dim[0].dim_param = "rows"
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    artifact = farrier.compile(model, target="cuda:sm_80", verify=False)
    ((x,), (want,)) = feeds.values(), wanted.values()
    for rows in 1, 5, 17:
        (got,) = artifact.run({"x0": x[:rows]}).values()
        np.testing.assert_allclose(got, want[:rows], rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.skipif(find_ptxas() is None, reason="install the package nvidia-cuda-nvcc")
@pytest.mark.parametrize("cpu", ARCHITECTURES)
@pytest.mark.parametrize("shape", [(1, 32, 8, 1024), (8, 32, 8, 1021)])
def test_ptxas_keeps_the_sums_in_registers(shape, cpu):
    function = _kernel(packed_product(*shape))
    _, frames = assemble(ptx_of(render(function, cpu), cpu), cpu, find_ptxas())
    assert all(frame.is_in_registers for frame in frames)
