"""Native code in this process: loading, threads, calling, timing, memory."""

from __future__ import annotations

import array
import ctypes
import itertools
import math
import random
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from farrier_device.describe import available_cpus
from farrier_device.native import (
    Library,
    NativeError,
    Pool,
    aligned_buffer,
    calibrate,
    call,
    pointers,
    read_both,
)

COUNT = 1009


@pytest.fixture
def loaded(library):
    with Library.from_bytes(library) as opened:
        yield opened


def filled(values) -> tuple:
    data = array.array("f", values).tobytes()
    buffer = aligned_buffer(len(data))
    buffer.view[:] = data
    return buffer, data


class TestLibrary:
    def test_from_path_and_from_bytes(self, library, tmp_path):
        path = tmp_path / "k.so"
        path.write_bytes(library)
        with Library(path) as first, Library.from_bytes(library) as second:
            assert first.entry("right")
            assert second.entry("right")

    def test_libraries_from_bytes_are_told_apart(self, library):
        """Their descriptors have the paths by which the loader knows them."""
        loaded = [Library.from_bytes(library) for _ in range(3)]
        places = {
            ctypes.cast(entry_of.entry("right"), ctypes.c_void_p).value for entry_of in loaded
        }
        assert len(places) == 3
        for entry_of in loaded:
            entry_of.close()
            entry_of.close()

    def test_missing_symbol(self, loaded):
        with pytest.raises(NativeError, match="'nowhere'"):
            loaded.entry("nowhere")

    def test_no_library(self, tmp_path):
        path = tmp_path / "k.so"
        path.write_bytes(b"not ELF")
        with pytest.raises(NativeError, match="cannot load"):
            Library(path)
        with pytest.raises(NativeError, match="cannot load"):
            Library.from_bytes(b"not ELF")

    def test_library_without_the_support_library(self):
        with pytest.raises(NativeError, match="farrier_max_error"):
            Library("libc.so.6")


class TestCall:
    @pytest.mark.parametrize("threads", [1, 2, 3, 8])
    def test_result(self, loaded, threads):
        x, data = filled(random.Random(threads).uniform(-9, 9) for _ in range(COUNT))
        y = aligned_buffer(4 * COUNT)
        with Pool(loaded, threads, pin=available_cpus()) as pool:
            call(loaded.entry("right_in_parallel"), pointers([x.address, y.address]), pool)
        assert list(y.view.cast("f")) == [2 * v for v in array.array("f", data)]

    def test_failure_code(self, loaded):
        with Pool(loaded) as pool, pytest.raises(NativeError, match="code 3"):
            call(loaded.entry("code_three"), pointers([]), pool)

    def test_pool_ends_its_threads(self, loaded):
        before = threading.active_count()
        pool = Pool(loaded, 4)
        assert threading.active_count() == before + 3
        pool.close()
        pool.close()
        assert threading.active_count() == before

    def test_no_pool_without_threads(self, loaded):
        with pytest.raises(ValueError, match="0 threads"):
            Pool(loaded, 0)

    def test_overhead(self, loaded):
        """A call costs microseconds: the best of several rounds, as other processes interfere."""
        x, _ = filled(range(COUNT))
        y = aligned_buffer(4 * COUNT)
        args, entry = pointers([x.address, y.address]), loaded.entry("right")
        with Pool(loaded) as pool:
            best = math.inf
            for _ in range(20):
                begin = time.perf_counter_ns()
                for _ in range(100):
                    call(entry, args, pool)
                best = min(best, (time.perf_counter_ns() - begin) / 100)
        assert best < 10_000


class TestTime:
    def test_samples_are_nanoseconds(self, loaded):
        x, _ = filled(range(COUNT))
        y = aligned_buffer(4 * COUNT)
        args, entry = pointers([x.address, y.address]), loaded.entry("slow")
        with Pool(loaded) as pool:
            begin = time.perf_counter_ns()
            (sample,) = loaded.time(entry, args, pool, 1)
            elapsed = time.perf_counter_ns() - begin
        assert 0.8 * elapsed - 30_000_000 < sample <= 1.01 * elapsed

    def test_flush_makes_memory_cold(self, loaded):
        x, _ = filled(range(COUNT))
        y = aligned_buffer(4 * COUNT)
        args, entry = pointers([x.address, y.address]), loaded.entry("right")
        flushed, ratios = [(x.address, x.nbytes)], []
        with Pool(loaded) as pool:
            for _ in range(9):  # In turns, because other processes use the caches as well.
                warm = min(loaded.time(entry, args, pool, 20))
                ratios.append(min(loaded.time(entry, args, pool, 20, flushed)) / warm)
        assert statistics.median(ratios) > 1.2

    def test_failure_code(self, loaded):
        with Pool(loaded) as pool, pytest.raises(NativeError, match="returned code 3"):
            loaded.time(loaded.entry("code_three"), pointers([]), pool, 3)

    def test_a_call_shorter_than_a_tick_takes_some_time(self, loaded, monkeypatch):
        with Pool(loaded) as pool, monkeypatch.context() as patch:
            patch.setattr(loaded, "_time", lambda *arguments: 0)  # Every tick stays 0 then.
            assert loaded.time(loaded.entry("right"), pointers([]), pool, 3) == [1, 1, 1]

    def test_calibration(self):
        def quarters():
            return time.perf_counter_ns() // 4

        begin = read_both(quarters)
        assert calibrate(quarters, begin) == pytest.approx(4, rel=1e-3)

    def test_a_reading_that_was_interrupted_does_not_count(self, monkeypatch):
        clock = itertools.count(step=10)
        calls = itertools.count()

        def interrupted():
            ticks = next(clock)
            if next(calls) != 3:
                for _ in range(500):
                    next(clock)
            return ticks

        monkeypatch.setattr(time, "perf_counter_ns", lambda: next(clock))
        ticks, ns = read_both(interrupted)
        assert ns == ticks


class TestMaxError:
    def test_relative_to_the_largest_value(self, loaded):
        out, _ = filled([1.0, -4.0, 2.5])
        expected, _ = filled([1.0, -4.0, 2.0])
        assert loaded.max_error(out.address, expected.address, 12, "f32") == 0.125

    def test_nan_matches_nan_only(self, loaded):
        out, _ = filled([math.nan, 1.0])
        other, _ = filled([0.0, 1.0])
        assert loaded.max_error(out.address, out.address, 8, "f32") == 0
        assert loaded.max_error(out.address, other.address, 8, "f32") == math.inf


class TestMemory:
    @pytest.mark.parametrize("nbytes", [0, 1, 63, 4096, (2 << 20) - 1, 2 << 20, (5 << 20) + 17])
    @pytest.mark.parametrize("skew", [0, 1088])
    def test_aligned_and_zero(self, nbytes, skew):
        buffer = aligned_buffer(nbytes, skew=skew)
        assert buffer.address % 64 == 0
        assert len(buffer.view) == buffer.nbytes == nbytes
        assert bytes(buffer.view) == bytes(nbytes)
        if nbytes >= 2 << 20:
            assert buffer.address % (2 << 20) == skew
        if nbytes:
            buffer.view[-1] = 7
            assert ctypes.string_at(buffer.address + nbytes - 1, 1) == b"\7"
            buffer.zero()
            assert buffer.view[-1] == 0

    def test_view_keeps_the_memory(self):
        view = aligned_buffer(1 << 16).view
        view[:] = b"\5" * (1 << 16)
        others = [aligned_buffer(1 << 16) for _ in range(8)]
        assert others
        assert bytes(view) == b"\5" * (1 << 16)

    def test_no_room(self):
        with pytest.raises(MemoryError, match="not enough memory"):
            aligned_buffer(1 << 60)
        with pytest.raises(ValueError, match="skew"):
            aligned_buffer(64, skew=1)


def test_measuring_needs_the_standard_library_alone():
    script = (
        "import sys\n"
        "import farrier_device.native, farrier_device.child, farrier_device.runners.local\n"
        "import farrier_device.blobstore, farrier_device.describe\n"
        "bad = {'numpy', 'grpc', 'google', 'farrier', 'asyncio'} & set(sys.modules)\n"
        "sys.exit(f'imported: {bad}' if bad else 0)\n"
    )
    root = str(Path(sys.modules["farrier_device"].__path__[0]).parent)
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
