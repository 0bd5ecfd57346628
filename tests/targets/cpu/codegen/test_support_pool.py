"""The thread pool of the support library: every iteration once, whatever the load."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from farrier.targets import host
from farrier.targets.cpu.codegen.link import link
from farrier.targets.cpu.codegen.support import support_object
from farrier_device.native import Pool, aligned_buffer, pointers

# A body that counts each iteration (ctx[0]: counts as i32), the largest worker it met (ctx[1]) and
# then works for ctx[2] turns; `regions` runs ctx[4] regions of extent ctx[3].
BODY = """
define void @count(ptr %ctx, i64 %begin, i64 %end, i64 %worker) {
entry:
  %counts = load ptr, ptr %ctx
  %largest.at = getelementptr i8, ptr %ctx, i64 8
  %before = atomicrmw max ptr %largest.at, i64 %worker monotonic
  %turns.at = getelementptr i8, ptr %ctx, i64 16
  %turns = load i64, ptr %turns.at
  br label %test
test:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %worked ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %step, label %done
step:
  %at = getelementptr i32, ptr %counts, i64 %i
  %was = atomicrmw add ptr %at, i32 1 monotonic
  br label %turn
turn:
  %t = phi i64 [ 0, %step ], [ %t.next, %turn ]
  %t.next = add i64 %t, 1
  %again = icmp slt i64 %t.next, %turns
  br i1 %again, label %turn, label %worked
worked:
  %i.next = add i64 %i, 1
  br label %test
done:
  ret void
}
define i32 @regions(ptr %args, ptr %pool) {
entry:
  %ctx = load ptr, ptr %args
  %extent.at = getelementptr i8, ptr %ctx, i64 24
  %extent = load i64, ptr %extent.at
  %regions.at = getelementptr i8, ptr %ctx, i64 32
  %regions = load i64, ptr %regions.at
  %parallel_for = load ptr, ptr %pool
  br label %region
region:
  %r = phi i64 [ 0, %entry ], [ %r.next, %region ]
  call void %parallel_for(ptr %pool, ptr @count, ptr %ctx, i64 %extent)
  %r.next = add i64 %r, 1
  %more = icmp slt i64 %r.next, %regions
  br i1 %more, label %region, label %done
done:
  ret i32 0
}
; Each of 6 iterations starts a nested region over its own row of `extent` counts, where a nested
; body that runs as another worker than the outer one counts nothing.
define void @inner(ptr %ctx, i64 %begin, i64 %end, i64 %worker) {
  %expected.at = getelementptr i8, ptr %ctx, i64 40
  %expected = load i64, ptr %expected.at
  %same = icmp eq i64 %expected, %worker
  br i1 %same, label %go, label %stop
go:
  call void @count(ptr %ctx, i64 %begin, i64 %end, i64 %worker)
  ret void
stop:
  ret void
}
define void @outer(ptr %ctx, i64 %begin, i64 %end, i64 %worker) {
entry:
  %row = alloca [6 x i64]
  %counts = load ptr, ptr %ctx
  %pool.at = getelementptr i8, ptr %ctx, i64 40
  %pool = load ptr, ptr %pool.at
  %extent.at = getelementptr i8, ptr %ctx, i64 24
  %extent = load i64, ptr %extent.at
  %turns.at = getelementptr i8, ptr %ctx, i64 16
  %turns = load i64, ptr %turns.at
  br label %test
test:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %step ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %step, label %done
step:
  %first = mul i64 %i, %extent
  %row.counts = getelementptr i32, ptr %counts, i64 %first
  store ptr %row.counts, ptr %row
  %row.largest = getelementptr i8, ptr %row, i64 8
  store i64 0, ptr %row.largest
  %row.turns = getelementptr i8, ptr %row, i64 16
  store i64 %turns, ptr %row.turns
  %row.worker = getelementptr i8, ptr %row, i64 40
  store i64 %worker, ptr %row.worker
  %parallel_for = load ptr, ptr %pool
  call void %parallel_for(ptr %pool, ptr @inner, ptr %row, i64 %extent)
  %i.next = add i64 %i, 1
  br label %test
done:
  ret void
}
define i32 @nested(ptr %args, ptr %pool) {
  %ctx = load ptr, ptr %args
  %pool.at = getelementptr i8, ptr %ctx, i64 40
  store ptr %pool, ptr %pool.at
  %parallel_for = load ptr, ptr %pool
  call void %parallel_for(ptr %pool, ptr @outer, ptr %ctx, i64 6)
  ret i32 0
}
"""


def run(library, pool, extent, regions, turns=0, symbol="regions", rows=1):
    """The counts after `regions` regions of `extent` iterations, and the largest worker met."""
    counts = np.zeros(max(rows * extent, 1), np.int32)
    context = np.array([counts.ctypes.data, 0, turns, extent, regions, 0], np.int64)
    assert library.entry(symbol)(pointers([context.ctypes.data]), pool.address) == 0
    return counts[: rows * extent], int(context[1])


def load_neighbour(stop) -> None:
    while not stop.is_set():
        sum(range(1000))


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("extent", [0, 1, 2, 3, 7, 31, 127, 1009])
def test_every_iteration_runs_once_a_region(load, pool_of, threads, extent):
    library = load(BODY)
    counts, worker = run(library, pool_of(library, threads), extent, 500)
    np.testing.assert_array_equal(counts, 500)
    assert 0 <= worker < threads


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_thousands_of_tiny_regions(load, pool_of, threads):
    library = load(BODY)
    counts, _ = run(library, pool_of(library, threads), 5, 20_000)
    np.testing.assert_array_equal(counts, 20_000)


@pytest.mark.parametrize("threads", [2, 4, 16])
def test_shares_that_lay_untouched_for_long(load, pool_of, threads):
    library = load(BODY)
    pool = pool_of(library, threads)
    for extent in (2, 97, 1, 3, 1009):
        counts, _ = run(library, pool, extent, 300)
        np.testing.assert_array_equal(counts, 300)


def test_chunks_are_spread_over_threads(load, pool_of):
    library = load(BODY)
    pool = pool_of(library, 2)
    # On a busy machine a helper may come too late, time and again.
    assert any(run(library, pool, 64, 5, turns=20_000)[1] == 1 for _ in range(200))


@pytest.mark.parametrize("threads", [2, 4])
def test_sleeping_helpers_wake_up(load, pool_of, threads):
    library = load(BODY)
    pool = pool_of(library, threads)
    for _ in range(30):
        time.sleep(0.002)  # This is longer than the spin: every helper sleeps in the kernel.
        counts, _ = run(library, pool, 13, 3, turns=1000)
        np.testing.assert_array_equal(counts, 3)


def test_shutdown_while_sleeping_and_while_spinning(load, pool_of):
    library = load(BODY)
    for pause in (0.0, 0.0, 0.003, 0.003):
        pool = pool_of(library, 3)
        run(library, pool, 10, 10)
        time.sleep(pause)
        pool.close()
        assert not any(helper.is_alive() for helper in pool._helpers)


def test_a_loaded_neighbour_on_every_core(load, pool_of):
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    neighbours = [context.Process(target=load_neighbour, args=(stop,)) for _ in range(2)]
    for neighbour in neighbours:
        neighbour.start()
    try:
        library = load(BODY)
        pool = pool_of(library, os.cpu_count() or 2)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            counts, _ = run(library, pool, 97, 20, turns=500)
            np.testing.assert_array_equal(counts, 20)
    finally:
        stop.set()
        for neighbour in neighbours:
            neighbour.join()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_nested_regions_run_inline_as_the_same_worker(load, pool_of, threads):
    library = load(BODY)
    pool = pool_of(library, threads)
    for _ in range(200):
        counts, _ = run(library, pool, 11, 1, turns=50, symbol="nested", rows=6)
        np.testing.assert_array_equal(counts, 1)


@pytest.mark.parametrize("regions", [0, 2**31 - 2, 2**32 - 2, 2**46])
def test_helpers_that_never_start_are_replaced(load, regions):
    """The caller finishes shares of workers that never came, however many regions ago it was."""
    library = load(BODY)
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    size = library.function("farrier_pool_size", number, number)(4)
    memory = np.zeros(size + 64, np.uint8)
    address = memory.ctypes.data + -memory.ctypes.data % 64
    library.function("farrier_pool_init", None, pointer, number, pointer)(address, 4, None)
    ctypes.c_int64.from_address(address + REGION).value = regions
    counts = np.zeros(101, np.int32)
    context = np.array([counts.ctypes.data, 0, 0, 101, 50, 0], np.int64)
    assert library.entry("regions")(pointers([context.ctypes.data]), address) == 0
    np.testing.assert_array_equal(counts, 50)


@pytest.fixture
def two_cpus():
    """Two CPUs that the caller may bind itself to meanwhile."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("needs two CPUs")
    yield sorted(allowed)[:2]
    os.sched_setaffinity(0, allowed)


@pytest.fixture
def without_pause():
    """The priority of real time, where it may be had: no other thread runs on the same CPU."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    yield
    os.sched_setscheduler(0, *before)


def test_a_caller_that_gives_its_helper_no_time_moves_it_away(load, two_cpus, request):
    library = load(BODY)
    with Pool(library, 2, pin=two_cpus) as pool:
        (helper,) = pool._helpers
        run(library, pool, 13, 3)
        time.sleep(0.02)  # This is longer than the spin: the caller has to wake it.
        request.getfixturevalue("without_pause")
        os.sched_setaffinity(0, {two_cpus[1]})
        run(library, pool, 13, 3, turns=1000)
        assert os.sched_getaffinity(helper.native_id) == {two_cpus[0]}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_that_is_forked_leaves_the_helpers_of_the_other_alone(load, two_cpus):
    library = load(BODY)
    os.sched_setaffinity(0, {two_cpus[0]})  # The helper has no reason to leave its own.
    with Pool(library, 2, pin=two_cpus) as pool:
        (helper,) = pool._helpers
        run(library, pool, 13, 3)
        time.sleep(0.02)  # This is longer than the spin: the helper sleeps.
        child = os.fork()
        if child == 0:
            os.sched_setaffinity(0, {two_cpus[1]})
            counts, _ = run(library, pool, 13, 3)
            os._exit(0 if (counts == 3).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert os.sched_getaffinity(helper.native_id) == {two_cpus[1]}


def test_a_helper_leaves_the_cpu_that_its_caller_moves_to(load, two_cpus):
    library = load(BODY)
    with Pool(library, 2, pin=two_cpus) as pool:
        (helper,) = pool._helpers
        for here, there in (two_cpus, two_cpus[::-1], two_cpus):
            os.sched_setaffinity(0, {here})
            deadline = time.monotonic() + 60
            while os.sched_getaffinity(helper.native_id) != {there}:
                assert time.monotonic() < deadline
                time.sleep(0.002)  # This is longer than the spin: the caller has to wake it.
                counts, _ = run(library, pool, 13, 3, turns=1000)
                np.testing.assert_array_equal(counts, 3)


def test_a_helper_that_begins_late_takes_the_cpu_that_is_left(load, two_cpus):
    library = load(BODY)
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    memory = aligned_buffer(library.function("farrier_pool_size", number, number)(2))
    init = library.function("farrier_pool_init", None, pointer, number, pointer)
    init(memory.address, 2, (ctypes.c_int32 * 2)(*two_cpus))
    np.frombuffer(memory.view, np.int32)[ASLEEP] = 1  # This makes the caller wake helpers.
    os.sched_setaffinity(0, {two_cpus[1]})
    counts = np.zeros(101, np.int32)
    context = np.array([counts.ctypes.data, 0, 0, 101, 50, 0], np.int64)
    assert library.entry("regions")(pointers([context.ctypes.data]), memory.address) == 0
    np.testing.assert_array_equal(counts, 50)
    work = library.function("farrier_pool_work", None, pointer, number)
    helper = threading.Thread(target=work, args=(memory.address, 1))
    helper.start()
    deadline = time.monotonic() + 60
    while os.sched_getaffinity(helper.native_id) != {two_cpus[0]}:
        assert time.monotonic() < deadline
    library.function("farrier_pool_shutdown", None, pointer)(memory.address)
    helper.join()


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_threads_bound_to_two_cpus_and_a_caller_that_moves(load, two_cpus, threads):
    library = load(BODY)
    with Pool(library, threads, pin=two_cpus) as pool:
        for turn in range(60):
            os.sched_setaffinity(0, {two_cpus[turn % 2]})
            counts, worker = run(library, pool, 41, 30, turns=20 * (turn % 3))
            np.testing.assert_array_equal(counts, 30)
            assert worker < threads
            if turn % 5 == 0:
                time.sleep(0.001)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_that_is_forked_works_without_the_helpers(load, pool_of):
    library = load(BODY)
    pool = pool_of(library, 3)
    for pause in (0.0, 0.002):  # With the first pause the helpers spin, with the second they sleep.
        run(library, pool, 64, 20)
        time.sleep(pause)
        child = os.fork()
        if child == 0:
            counts, worker = run(library, pool, 64, 20)
            os._exit(0 if (counts == 20).all() and worker == 0 else 1)
        assert os.waitpid(child, 0)[1] == 0
        counts, _ = run(library, pool, 64, 20)
        np.testing.assert_array_equal(counts, 20)


# Chunks take no time, but for the first that a helper runs: that takes ctx[1] turns. ctx[0] counts
# the chunks that helpers ran.
SLOW_HELPER = """
define void @helped(ptr %ctx, i64 %begin, i64 %end, i64 %worker) {
entry:
  %caller = icmp eq i64 %worker, 0
  br i1 %caller, label %done, label %help
help:
  %before = atomicrmw add ptr %ctx, i64 1 monotonic
  %first = icmp eq i64 %before, 0
  br i1 %first, label %slow, label %done
slow:
  %turns.at = getelementptr i8, ptr %ctx, i64 8
  %turns = load i64, ptr %turns.at
  br label %turn
turn:
  %t = phi i64 [ 0, %slow ], [ %t.next, %turn ]
  call void asm sideeffect "", "~{memory}"()
  %t.next = add i64 %t, 1
  %again = icmp slt i64 %t.next, %turns
  br i1 %again, label %turn, label %done
done:
  ret void
}
define i32 @stall(ptr %args, ptr %pool) {
  %ctx = load ptr, ptr %args
  %parallel_for = load ptr, ptr %pool
  call void %parallel_for(ptr %pool, ptr @helped, ptr %ctx, i64 64)
  ret i32 0
}
"""
BEARABLE, MOST = 4 * 131072, 1280 * 131072  # Ticks of debt, and of the longest rest.
ALONE_UNTIL, REST, DEBT = 136 // 8, 144 // 8, 152 // 8  # Indices into the pool's memory, as i64.
ASLEEP = 64 // 4  # as i32
REGION = 192  # The byte at which the number of the newest region lies.


def test_a_helper_that_holds_up_the_caller_earns_it_a_rest(load, pool_of):
    library = load(SLOW_HELPER + BODY)
    pool = pool_of(library, 3)
    memory = np.frombuffer(pool._memory.view, np.int64)
    deadline, woken = time.monotonic() + 60, 0
    # The loop ends when a helper has taken part, and the caller too.
    while memory[ALONE_UNTIL] <= woken:
        assert time.monotonic() < deadline
        memory[ALONE_UNTIL] = woken = library._ticks()
        context = np.array([0, 10_000_000], np.int64)  # Milliseconds are more than is borne.
        assert library.entry("stall")(pointers([context.ctypes.data]), pool.address) == 0
    assert MOST >= memory[REST] >= BEARABLE
    counts, _ = run(library, pool, 31, 5)
    np.testing.assert_array_equal(counts, 5)


def test_a_helper_that_saved_more_than_it_cost_earns_no_rest(load, pool_of):
    library = load(SLOW_HELPER)
    pool = pool_of(library, 3)
    memory = np.frombuffer(pool._memory.view, np.int64)
    deadline = time.monotonic() + 60
    memory[DEBT] = -MOST
    # The loop ends when a helper has taken part, and the caller too.
    while memory[DEBT] <= BEARABLE - MOST:
        assert time.monotonic() < deadline
        memory[DEBT] = -MOST
        context = np.array([0, 10_000_000], np.int64)
        assert library.entry("stall")(pointers([context.ctypes.data]), pool.address) == 0
    assert memory[DEBT] < 0
    assert memory[ALONE_UNTIL] == 0


def test_what_is_saved_is_remembered_up_to_the_longest_rest(load, pool_of):
    library = load(BODY)
    pool = pool_of(library, 2)
    memory = np.frombuffer(pool._memory.view, np.int64)
    memory[DEBT] = 1 - MOST
    deadline = time.monotonic() + 60
    while memory[DEBT] != -MOST:
        assert time.monotonic() < deadline
        run(library, pool, 64, 20, turns=20_000)
        assert memory[DEBT] >= -MOST


def test_a_caller_that_rests_runs_alone_and_then_no_longer(load, pool_of):
    library = load(BODY)
    pool = pool_of(library, 2)
    memory = np.frombuffer(pool._memory.view, np.int64)
    memory[ALONE_UNTIL] = 2**62
    counts, worker = run(library, pool, 64, 20, turns=20_000)
    np.testing.assert_array_equal(counts, 20)
    assert worker == 0
    memory[ALONE_UNTIL] = 0
    assert max(run(library, pool, 64, 5, turns=20_000)[1] for _ in range(5)) == 1


_SMALL_SIGNAL_STACK = """
import ctypes, sys
from farrier_device.native import Library, NativeError, Pool

class Stack(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

room = ctypes.create_string_buffer(8192)
stack = Stack(ctypes.addressof(room), 0, len(room))
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
try:
    Pool(Library.from_bytes(sys.stdin.buffer.read()))
except NativeError as error:
    print(error)
"""


@pytest.mark.skipif("amx_tile" not in host().features, reason="this machine has no AMX")
def test_registers_that_the_kernel_refuses_are_an_error():
    """The kernel saves no tile registers where a signal's stack has no room for them."""
    command = [sys.executable, "-c", _SMALL_SIGNAL_STACK]
    library = link([support_object(host())])
    done = subprocess.run(command, input=library, capture_output=True, timeout=60, check=True)
    assert b"the kernel refuses the registers that the code needs: " in done.stdout
