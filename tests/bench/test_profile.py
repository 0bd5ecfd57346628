"""The profile: every call once, figures that add up, and a roofline that kernels stay below."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import farrier
from farrier.artifact.calls import CallRecord
from farrier.artifact.manifest import KernelReport
from farrier.bench.device_profile import grouped
from farrier.bench.profile import profile
from farrier.bench.roofline import Roofline, measure_roofline
from farrier.cli.app import build
from farrier.targets import host
from farrier_device.program import Call, Launch
from tests.targets.webgpu import webgpu
from tests.targets.webgpu.test_hosts import MIXED


def test_the_floor_is_the_slower_of_arithmetic_and_memory():
    roofline = Roofline(operations=100e9, bandwidth=10e9)
    assert roofline.floor_s(_kernel(200e9, 90e9), 1) == pytest.approx(2)
    assert roofline.floor_s(_kernel(1, 0), 50e9) == pytest.approx(5)


def test_products_that_a_dot_product_adds_up_take_as_long_as_that():
    roofline = Roofline(operations=100e9, bandwidth=10e9, dots={"u8 i8 i32": 400e9})
    assert roofline.arithmetic_s(_kernel(220e9, 100e9, "u8 i8 i32")) == pytest.approx(0.2 + 0.5)
    assert roofline.arithmetic_s(_kernel(220e9, 100e9, "u8 i8 f32")) == pytest.approx(2.2)


def _kernel(operations, multiply_adds, factors=""):
    return KernelReport(
        name="k",
        task="",
        calls=1,
        rule="",
        source="",
        predicted_us=0.0,
        operations=operations,
        multiply_adds=multiply_adds,
        factors=factors,
    )


def test_the_roofline_of_this_machine_is_that_of_a_computer():
    roofline = measure_roofline(host(), 1)
    assert 2e9 < roofline.operations < 1e12
    assert 1e9 < roofline.bandwidth < 1e12
    assert roofline.dots.keys() == {f"{d.left} {d.right} {d.total}" for d in host().available_dots}
    # Intel's AVX512-BF16 does half of what f32 does: 0.49 to 0.51 on a Sapphire Rapids.
    assert all(0.25 < rate / roofline.operations < 10 for rate in roofline.dots.values())


def test_rows_cover_every_call_and_add_up(small_model):
    artifact = farrier.load(small_model.artifact)
    profiled = profile(artifact, seconds=0.1)
    assert sum(row.calls for row in profiled.kernels) == len(artifact.calls)
    assert {row.name for row in profiled.kernels} == {k.name for k in artifact.manifest.kernels}
    total = sum(kernel.operations * kernel.calls for kernel in artifact.manifest.kernels)
    assert sum(row.operations for row in profiled.kernels) == total
    assert sum(row.nbytes for row in profiled.kernels) == sum(c.nbytes for c in artifact.calls)
    assert list(profiled.kernels) == sorted(profiled.kernels, key=lambda row: -row.seconds)
    assert all(row.source == "default" and row.seconds > 0 for row in profiled.kernels)
    assert profiled.best_s <= profiled.model_s


def test_by_call_each_row_names_its_nodes(small_model):
    artifact = farrier.load(small_model.artifact)
    profiled = profile(artifact, seconds=0.1, by_call=True)
    assert sorted(row.origin for row in profiled.kernels) == sorted(
        c.origin for c in artifact.calls
    )
    assert all(row.calls == 1 for row in profiled.kernels)


def test_the_command_prints_a_table_or_json(small_model):
    app, path = build(), str(small_model.artifact)
    done = CliRunner().invoke(app, ["profile", path, "--seconds", "0.1", "--top", "2"])
    assert done.exit_code == 0
    for part in ("GFLOP/s", "roofline", " more"):
        assert part in done.output
    done = CliRunner().invoke(app, ["profile", path, "--seconds", "0.1", "--json"])
    raw = json.loads(done.output)
    assert raw["threads"] == 1
    row = raw["kernels"][0]
    assert row["gflops"] == pytest.approx(row["operations"] / row["seconds"] / 1e9)
    assert row["roofline_share"] > 0


@pytest.mark.long
def test_the_kernels_of_a_gpu_and_its_host_are_timed_where_they_stand():
    webgpu.device()
    artifact = farrier.compile(MIXED, target="webgpu", verify=False)
    times = profile(artifact, seconds=0.0)
    assert {row.name for row in times.kernels} == {k.name for k in artifact.manifest.kernels}
    assert all(row.seconds > 0 for row in times.kernels)
    on_host = {kernel.name for kernel in artifact.manifest.kernels if kernel.reason}
    assert on_host
    assert {row.name for row in times.kernels if not row.floor_s} == on_host
    assert times.roofline.operations > 1e6
    assert times.roofline.bandwidth > 1e6
    assert times.emulated == webgpu.device().is_emulated


def test_the_launches_of_a_call_follow_each_other():
    calls = [CallRecord(name, "", "", ()) for name in ("sum", "sum", "on_host")]
    launches = [Launch(name, "gpu", ()) for name in ("sum_0", "sum_1", "sum_0", "sum_1")]
    launches.append(Call("on_host", ()))
    assert [*grouped(calls, launches)] == [range(2), range(2, 4), range(4, 5)]
