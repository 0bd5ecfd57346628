"""`python -m bench.seeded HOME`: fill the farm of a home folder with jobs, trials and devices.

    python -m bench.seeded ~/.farrier --jobs 500 --trials 10000
    python -m bench.seeded ~/.farrier --jobs 500 --trials 10000 --long 100000 --live 50

It starts the home's embedded Valkey, or uses a running one. It writes through the farm's own API,
as the roles do, and then changes times, so that the jobs appear to be spread over two weeks. Names
of some jobs and kernels contain markup, which pages must show as text. Seed an empty home, before a
worker is started in it: the worker would take the jobs that are marked as running.

Devices stay connected, and jobs keep running, only while heartbeats arrive. `--live` sends them
until Ctrl-C, and reports that number of trials per second for the newest job.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.seeded.devices import Fleet, planned
from bench.seeded.jobs import BATCH, SeededJob, seed_jobs, seed_long
from farrier.errors import FarrierError
from farrier_farm.farm import Farm
from farrier_farm.redis import embedded
from farrier_farm.settings import Settings

_BEAT_S = 4.0


@contextlib.contextmanager
def hasty(farm: Farm, owned: bool) -> Iterator[None]:
    """A context in which writes to Valkey are not flushed to disk one by one, so that they may be
    lost in a power failure until it ends."""
    if not owned:
        yield
        return
    farm.client.command("CONFIG", "SET", "appendfsync", "no")
    try:
        yield
    finally:
        farm.client.command("CONFIG", "SET", "appendfsync", "always")


def seed_throughput(farm: Farm, draw: random.Random) -> None:
    """Write the throughput of each minute of the last hour, consistent with the seeded jobs."""
    this = int(time.time() // 60)
    for minute in range(this - 59, this + 1):
        batches = round(20 + 12 * draw.random() + (10 if minute % 17 < 6 else 0))
        counts = {"trials": batches * BATCH, "batches": batches, "finished": draw.randint(0, 3)}
        words = [str(word) for pair in counts.items() for word in pair]
        key = f"farrier:throughput:{minute}"
        farm.client.commands([("HSET", key, *words), ("EXPIRE", key, "7200")])


async def live(farm: Farm, fleet: Fleet, jobs: Sequence[SeededJob], rate: float) -> None:
    """Renew leases, send heartbeats, and report `rate` trials per second, until the task is
    cancelled."""
    beaten, done, begin = 0.0, 0, time.monotonic()
    while True:
        now = time.monotonic()
        if now - beaten > _BEAT_S:
            beaten = now
            await fleet.beat()
            for job in jobs:
                farm.jobs.renew(job.lease)
        due = int((now - begin) * rate) - done
        if jobs and due >= min(BATCH, max(rate, 1)):
            jobs[-1].measure(min(due, 4 * BATCH), None)
            done += due
        await asyncio.sleep(0.05)


async def run(farm: Farm, arguments: argparse.Namespace, owned: bool) -> None:
    draw = random.Random(arguments.seed)
    begin = time.monotonic()
    with hasty(farm, owned):
        jobs = seed_jobs(farm, draw, arguments.jobs, arguments.trials)
        if arguments.long:
            jobs.append(seed_long(farm, draw, arguments.long))
        fleet = Fleet(farm, planned(arguments.devices), draw)
        await fleet.connect()
        seed_throughput(farm, draw)
    print(
        f"{arguments.jobs} jobs, {arguments.trials + arguments.long} trials and "
        f"{arguments.devices} devices in {time.monotonic() - begin:.0f} s",
        *(f"running: {job.lease.item}" for job in jobs),
        sep="\n",
        flush=True,
    )
    try:
        if arguments.live is not None:
            print(f"live, with {arguments.live:g} trials a second", flush=True)
            await live(farm, fleet, jobs, arguments.live)
    finally:
        await fleet.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.seeded",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("home", type=Path, help="FARRIER_HOME of the farm")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--trials", type=int, default=10_000, help="of all these jobs")
    parser.add_argument("--long", type=int, default=0, help="trials of one job more, which runs")
    parser.add_argument("--devices", type=int, default=14)
    parser.add_argument("--live", type=float, metavar="RATE", help="trials a second, until Ctrl-C")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    home = arguments.home.expanduser().absolute()
    # Leases last longer than the seeding: what takes them away is another role.
    settings = Settings(home=home, min_free_bytes=0, lease_s=3600.0)
    try:
        valkey = embedded.start(settings)
        try:
            with contextlib.closing(Farm.open(settings)) as farm:
                asyncio.run(run(farm, arguments, valkey.owned))
        except KeyboardInterrupt:
            pass
        finally:
            valkey.stop()
    except FarrierError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
