"""Timing and comparison of the support library."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farrier.ir.types import DType
from farrier.targets.arm import ArmTarget
from farrier.targets.cpu.codegen.link import link
from farrier.targets.cpu.codegen.support import SYMBOLS, support_object
from farrier_device.native import NativeError, pointers

ENTRIES = """
define i32 @sum(ptr %args, ptr %pool) {
entry:
  %data = load ptr, ptr %args
  %calls.at = getelementptr i8, ptr %args, i64 8
  %calls = load ptr, ptr %calls.at
  %was = load i64, ptr %calls
  %now = add i64 %was, 1
  store i64 %now, ptr %calls
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %next ]
  %at = getelementptr i64, ptr %data, i64 %i
  %value = load volatile i64, ptr %at
  %sum.next = add i64 %sum, %value
  %i.next = add i64 %i, 8
  %more = icmp slt i64 %i.next, 32768
  br i1 %more, label %next, label %done
done:
  ret i32 0
}
define i32 @fails(ptr %args, ptr %pool) {
  ret i32 7
}
"""


def test_flushed_memory_is_slower_to_read(load, pool_of):
    library = load(ENTRIES)
    pool = pool_of(library, 1)
    data, calls = np.ones(32768, np.int64), np.zeros(1, np.int64)
    args = pointers([data.ctypes.data, calls.ctypes.data])
    entry = library.entry("sum")
    warm = library.time(entry, args, pool, 20)
    cold = library.time(entry, args, pool, 20, [(data.ctypes.data, data.nbytes)])
    assert calls[0] == 40
    assert min(warm) > 0
    assert np.median(cold) > 1.5 * np.median(warm)


def test_a_failing_entry_stops_the_timing(load, pool_of):
    library = load(ENTRIES)
    with pytest.raises(NativeError, match="code 7"):
        library.time(library.entry("fails"), pointers([0]), pool_of(library, 1), 3)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float32, "f32"),
        (np.float64, "f64"),
        (np.int8, "i8"),
        (np.int32, "i32"),
        (np.int64, "i64"),
        (np.uint8, "u8"),
        (np.bool_, "bool"),
    ],
)
def test_max_error_of_each_dtype(load, dtype, name):
    random = np.random.default_rng(3)
    expected = (random.random(1001) * 100 - (0 if dtype in (np.uint8, np.bool_) else 50)).astype(
        dtype
    )
    out = expected.copy()
    library = load(ENTRIES)
    assert library.max_error(out.ctypes.data, expected.ctypes.data, out.nbytes, name) == 0
    out[501] = not out[501] if dtype is np.bool_ else out[501] + 3
    scale = np.abs(expected.astype(np.float64)).max()
    wanted = abs(float(out[501]) - float(expected[501])) / scale
    actual = library.max_error(out.ctypes.data, expected.ctypes.data, out.nbytes, name)
    assert actual == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(
    ("got", "wanted", "error"),
    [
        (math.nan, math.nan, 0.0),
        (math.inf, math.inf, 0.0),
        (-math.inf, math.inf, math.inf),
        (math.nan, 1.0, math.inf),
        (1.0, math.nan, math.inf),
        (math.inf, 1.0, math.inf),
        (2.5, 2.0, 0.125),
    ],
)
def test_max_error_of_special_values(load, got, wanted, error):
    out, expected = np.array([4.0, got], np.float32), np.array([4.0, wanted], np.float32)
    library = load(ENTRIES)
    assert library.max_error(out.ctypes.data, expected.ctypes.data, 8, "f32") == error


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), count=st.integers(0, 37))
def test_max_error_of_any_f32(load, data, count):
    values = st.lists(st.floats(width=32), min_size=count, max_size=count)
    out, expected = (np.array(data.draw(values), np.float32) for _ in range(2))
    same = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    out[same] = expected[same]
    actual = load(ENTRIES).max_error(out.ctypes.data, expected.ctypes.data, out.nbytes, "f32")
    got, wanted = out.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(got - wanted)
    off[(got == wanted) | (np.isnan(got) & np.isnan(wanted))] = 0
    off[np.isnan(off)] = math.inf
    sizes = np.abs(wanted[np.isfinite(wanted)])
    scale = max(sizes.max(initial=0), float(np.finfo(np.float32).tiny))
    assert actual == off.max(initial=0) / scale


def test_neighbouring_large_integers_differ(load):
    out, expected = np.array([2**60 + 1]), np.array([2**60])
    error = load(ENTRIES).max_error(out.ctypes.data, expected.ctypes.data, 8, "i64")
    assert error == pytest.approx(2.0**-60)


@pytest.mark.parametrize(
    ("dtype", "padding"),
    [
        ("f32", 0x7FC0DEAD),
        ("bf16", 0x7FED),
        ("f16", 0x7EED),
        ("i32", 0xFFFFFFFF),
        ("i16", 0),
        ("i8", 0x80),
        ("u8", 255),
    ],
)
def test_padding_is_not_compared(load, dtype, padding):
    kind = DType(dtype).numpy
    expected, out = np.array([1, 2, 4], kind), np.array([1, 99, 4], kind)
    expected.view(f"u{kind.itemsize}")[1] = padding

    def error(*mark):
        arguments = out.ctypes.data, expected.ctypes.data, out.nbytes, dtype, *mark
        return load(ENTRIES).max_error(*arguments)

    assert error(padding) == 0
    assert error() > 0
    out[2] = 5
    assert error(padding) == 0.25


def test_the_library_is_made_for_aarch64_on_any_host():
    board = ArmTarget(
        "aarch64-unknown-linux-gnu", "cortex-a72", (), 128, 32, 4, 32 << 10, 1 << 20, 0
    )
    library = link([support_object(board)], SYMBOLS)
    assert library[:4] == b"\x7fELF"
    assert int.from_bytes(library[18:20], "little") == 183
    assert (0xD4000001).to_bytes(4, "little") in library  # svc #0
