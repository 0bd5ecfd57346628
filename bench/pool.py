"""`python -m bench.pool`: the cost of the thread pool when busy, when idle, and with a busy
neighbour.

fork and join is the time of a parallel region on running threads, beyond the region's time on one
thread divided by the number of threads.

A neighbour is another process that keeps one core busy. The last ratio, minus 1, is the pool's loss
compared with running on the remaining core only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Iterator

from rich.console import Console

from bench.workloads import NAMES, Workload, workload
from farrier.errors import FarrierError
from farrier.options import CompileOptions
from farrier.packaging.draws import random_inputs
from farrier.pipeline import compile_model
from farrier.runtime.artifact import Artifact
from farrier.targets import host
from farrier.targets.cpu.codegen import compile_text, link, support_object
from farrier.targets.cpu.target import as_cpu
from farrier_device.memory import pointers
from farrier_device.native import Library, Pool

_REGIONS = 1000  # a sample
_SAMPLES = 60
# Regions of `extent` items, each with `turns` rounds of a loop that does nothing.
_LOOP = """
define internal void @items(ptr %work, i64 %begin, i64 %end, i64 %worker) nounwind {
entry:
  %turns.at = getelementptr i64, ptr %work, i64 1
  %turns = load i64, ptr %turns.at
  br label %item
item:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %done ]
  %any = icmp ne i64 %turns, 0
  br i1 %any, label %turn, label %done
turn:
  %t = phi i64 [ 0, %item ], [ %t.next, %turn ]
  call void asm sideeffect "", "~{memory}"()
  %t.next = add i64 %t, 1
  %again = icmp ult i64 %t.next, %turns
  br i1 %again, label %turn, label %done
done:
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %end
  br i1 %more, label %item, label %return
return:
  ret void
}
define i32 @regions(ptr %args, ptr %pool) nounwind {
entry:
  %work = load ptr, ptr %args
  %count = load i64, ptr %work
  %extent.at = getelementptr i64, ptr %work, i64 2
  %extent = load i64, ptr %extent.at
  %parallel_for = load ptr, ptr %pool
  br label %region
region:
  %n = phi i64 [ 0, %entry ], [ %n.next, %region ]
  call void %parallel_for(ptr %pool, ptr @items, ptr %work, i64 %extent)
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, %count
  br i1 %more, label %region, label %done
done:
  ret i32 0
}
"""


@dataclasses.dataclass(frozen=True, slots=True)
class ForkJoin:
    """The median microseconds of a parallel region on a single thread and on several threads."""

    threads: int
    alone_us: float
    shared_us: float

    @property
    def cost_us(self) -> float:
        return self.shared_us - self.alone_us / self.threads


def fork_join(turns: int, several: int = 2) -> ForkJoin:
    """Time parallel regions of 8 items per thread, where an item takes an equal share of a loop of
    `turns` iterations; return medians for 1 and for `several` threads. Threads are bound to cores
    if there are enough cores."""
    target = as_cpu(host())
    library = link([compile_text(_LOOP, target), support_object(target)])
    items = 8 * several
    work = (ctypes.c_int64 * 3)(_REGIONS, turns // items, items)
    args = pointers([ctypes.addressof(work)])
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    medians = []
    with Library.from_bytes(library) as loaded:
        for threads in (1, several):
            pin = cpus[:threads] if 1 < threads <= len(cpus) else ()
            with Pool(loaded, threads, pin) as pool:
                samples = loaded.time(loaded.entry("regions"), args, pool, _SAMPLES)
            medians.append(statistics.median(samples) / _REGIONS / 1e3)
    return ForkJoin(several, *medians)


def idle_share(artifact: Artifact, seconds: float) -> float:
    """Return the processor seconds per second that this process uses between calls."""
    session = artifact.session(2)
    session.run(random_inputs(artifact.manifest.inputs))
    time.sleep(0.1)  # Longer than any spin.
    start, busy = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - busy) / (time.perf_counter() - start)


def mean_ms(artifact: Artifact, threads: int, seconds: float) -> float:
    """Return the mean milliseconds of a run over `seconds`. It is the mean because delayed runs
    have to count."""
    session = artifact.session(threads)
    inputs = random_inputs(artifact.manifest.inputs)
    session.run(inputs)
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < seconds:
        session.run(inputs)
        count += 1
    elapsed = time.perf_counter() - start
    session.close()
    return elapsed / count * 1e3


@contextlib.contextmanager
def neighbour(cpus: Collection[int]) -> Iterator[None]:
    """A context in which another process keeps one of the cores `cpus` busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(process.pid, cpus)
        time.sleep(0.2)  # The neighbour is busy by then.
        yield
    finally:
        process.kill()
        process.wait()


def compiled(source: Workload) -> Artifact:
    options = CompileOptions(shapes=source.shapes, threads=2, verify=False)
    return compile_model(source.build(), options, name=source.name)


def neighbours(artifact: Artifact, seconds: float) -> dict[str, float]:
    """Return the mean milliseconds of a run without a busy process, and with one on any core or on
    a certain core."""
    cpus = sorted(os.sched_getaffinity(0))
    means = {f"{threads} threads": mean_ms(artifact, threads, seconds) for threads in (1, 2)}
    for name, where in (("any core", cpus), *((f"core {cpu}", [cpu]) for cpu in cpus[:2])):
        with neighbour(where):
            means[f"neighbour on {name}"] = mean_ms(artifact, 2, seconds)
    return means


def _doubled(most: int) -> Iterator[int]:
    """Yield 2, 4, 8, … below `most`, and `most`."""
    threads = 2
    while threads < most:
        yield threads
        threads *= 2
    yield most


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pool",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", default="resnet18,mobilenet_v2", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each mean")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    try:
        sources = [workload(name) for name in arguments.models.split(",")]
        artifacts = [compiled(source) for source in sources]
    except FarrierError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return error.exit_code
    for turns in (5_000, 20_000, 80_000):
        for threads in _doubled(max(2, len(os.sched_getaffinity(0)))):
            cost = fork_join(turns, threads)
            console.print(
                f"fork and join of {threads} threads: {cost.cost_us:.2f} us; a region takes "
                f"{cost.alone_us:.2f} us on one thread, {cost.shared_us:.2f} us on {threads}"
            )
    # A scheduler of its own would not share the cores with the neighbour.
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    for artifact in artifacts:
        console.print(f"{artifact.manifest.name}:")
        console.print(f"  idle: {idle_share(artifact, 1.0):.2%} of a core")
        times = neighbours(artifact, arguments.seconds)
        alone = times["1 threads"]
        for name, milliseconds in times.items():
            console.print(
                f"  {name}: {milliseconds:.2f} ms, {milliseconds / alone:.2f} of 1 thread"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
