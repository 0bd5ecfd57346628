"""`python -m bench.broker`: measure the load of waiting devices and of batches on a single broker.

    python -m bench.broker --devices 500 --seconds 60

It starts a broker and a Valkey, and in another process simulated devices, each with its own
connection. They send heartbeats and wait for batches, first without any batch, then with batches
that pass through the devices one after another. It prints failures, the latency of heartbeats, the
broker's share of a core, and the Redis commands by INFO commandstats, including those within
scripts. The simulated devices use the same cores, so latencies include their own processing.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from farrier_device.describe import describe
from farrier_device.measurement import (
    Argument,
    Candidate,
    CandidateResult,
    CodeObject,
    Launch,
    MeasureRequest,
    MeasureResult,
    Role,
    Status,
    to_json,
)
from farrier_device.protocol import channel, device_pb2, device_pb2_grpc
from farrier_farm.access.tokens import TokenRole, load_token
from farrier_farm.devices.classes import DeviceClass, MeasurementTarget
from farrier_farm.farm import Farm
from farrier_farm.redis import embedded
from farrier_farm.settings import Settings

_CALL_S = 15.0  # Agents give up a call after this time.
_POLL_S = 20.0
_REQUEST = MeasureRequest(
    (CodeObject("a" * 64),), (Candidate((Launch("k"),), (Argument(Role.SCRATCH, 64),)),)
)
_RESULT = MeasureResult((CandidateResult(Status.OK, (100, 101, 99), 1e-7),), sandbox="none")


@dataclasses.dataclass
class Tally:
    """Statistics of the devices' calls: latencies, and numbers of successes and failures."""

    heartbeats_s: list[float] = dataclasses.field(default_factory=list)
    calls: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


class SimulatedDevice:
    """A client that behaves to the broker like a device, without an agent process."""

    def __init__(self, name: str, address: str, token: str, tally: Tally) -> None:
        options = [*channel.CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(address, options=options)
        self._stub: Any = device_pb2_grpc.BrokerStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._name = name
        self.tally = tally
        self._held: list[str] = []

    async def register(self) -> None:
        description = device_pb2.Description(**dataclasses.asdict(describe()))
        request = device_pb2.RegisterRequest(
            device_id=self._name, instance=self._name, description=description
        )
        reply = await self._stub.Register(request, metadata=self._metadata, timeout=60)
        self._session = device_pb2.Session(device_id=self._name, id=reply.session)
        self._interval_s = reply.heartbeat_interval_ms / 1000

    async def beat(self, phase: float) -> None:
        """Send heartbeats forever. The first one is delayed by the share `phase` of the interval,
        to spread the heartbeats of many devices."""
        await asyncio.sleep(phase * self._interval_s)
        while True:
            begun = time.perf_counter()
            request = device_pb2.HeartbeatRequest(
                session=self._session, state=device_pb2.DEVICE_STATE_READY, leases=self._held
            )
            await self._call("Heartbeat", request, _CALL_S)
            taken = time.perf_counter() - begun
            self.tally.heartbeats_s.append(taken)
            await asyncio.sleep(max(0.0, self._interval_s - taken))

    async def work(self) -> None:
        """Lease batches and report their results immediately, forever."""
        while True:
            request = device_pb2.LeaseRequest(session=self._session, wait_ms=int(1000 * _POLL_S))
            reply = await self._call("Lease", request, _POLL_S + _CALL_S)
            if reply is None:
                await asyncio.sleep(1.0)
            elif reply.HasField("batch"):
                batch = reply.batch
                self._held = [batch.lease]
                report = device_pb2.ReportRequest(
                    session=self._session,
                    lease=batch.lease,
                    fence=batch.fence,
                    result=to_json(_RESULT).encode(),
                )
                await self._call("Report", report, _CALL_S)
                self._held = []

    async def close(self) -> None:
        await self._channel.close()

    async def _call(self, method: str, request: Any, timeout_s: float) -> Any:
        self.tally.calls[method] += 1
        try:
            call = getattr(self._stub, method)
            return await call(request, metadata=self._metadata, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            self.tally.failed[f"{method} {error.code().name}"] += 1
            return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.broker", description=__doc__)
    parser.add_argument("--devices", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the idle phase")
    parser.add_argument("--batches", type=int, default=200)
    options = parser.parse_args(arguments)
    with _farm() as (farm, address, pid):
        asyncio.run(_measure(farm, address, pid, options))
    return 0


@contextlib.contextmanager
def _farm() -> Iterator[tuple[Farm, str, int]]:
    """Yield a farm, the address of its broker, and the process id of the broker."""
    home = Path(tempfile.mkdtemp(prefix="farrier-"))
    settings = Settings(home=home, min_free_bytes=0, broker_port=0)
    valkey = embedded.start(settings)
    environment = {**os.environ, **settings.to_environment()}
    command = [sys.executable, "-c", _BROKER]
    try:
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True
        ) as broker:
            assert broker.stdout is not None
            address = broker.stdout.readline().strip()
            with contextlib.closing(Farm.open(settings)) as farm:
                yield farm, address, broker.pid
            broker.terminate()
    finally:
        valkey.stop()
        shutil.rmtree(home, ignore_errors=True)


_BROKER = """
import functools
from farrier_farm.settings import Settings
from farrier_server.broker.serving import run
run(Settings.from_environment(), "127.0.0.1", 0, ready=functools.partial(print, flush=True))
"""


async def _measure(farm: Farm, address: str, pid: int, options: argparse.Namespace) -> None:
    token = load_token(farm.settings, TokenRole.DEVICE) or ""
    tally = Tally()
    devices = [SimulatedDevice(f"d{n}", address, token, tally) for n in range(options.devices)]
    for start in range(0, len(devices), 50):
        await asyncio.gather(*(device.register() for device in devices[start : start + 50]))
    tasks = [asyncio.create_task(device.work()) for device in devices]
    tasks += [asyncio.create_task(d.beat(n / len(devices))) for n, d in enumerate(devices)]
    await asyncio.to_thread(_through, farm)  # The queue exists, as in any farm that has measured.
    await asyncio.sleep(5)  # until all wait
    print(f"{options.devices} devices, {os.cpu_count()} cores, {options.seconds:.0f} s")
    with _phase("idle", farm, pid, devices):
        await asyncio.sleep(options.seconds)
    with _phase(f"{options.batches} batches, one after the other", farm, pid, devices):
        for _ in range(options.batches):
            await asyncio.to_thread(_through, farm)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for device in devices:
        await device.close()


def _through(farm: Farm) -> None:
    """Submit a batch as a job would, and wait for its result."""
    batch = farm.measurements.submit(_REQUEST, MeasurementTarget(DeviceClass.of(describe()).id))
    while farm.measurements.wait(batch, 10.0) is None:
        print("  a batch waits for more than 10 s")


@contextlib.contextmanager
def _phase(title: str, farm: Farm, pid: int, devices: list[SimulatedDevice]) -> Iterator[None]:
    """A context that prints statistics of the calls and Redis commands made within it."""
    tally = Tally()
    for device in devices:
        device.tally = tally
    commands, cpu_s, begun = _commands(farm), _cpu_s(pid), time.monotonic()
    yield
    took_s = time.monotonic() - begun
    spent_s = _cpu_s(pid) - cpu_s
    sent = collections.Counter(_commands(farm))
    sent.subtract(commands)
    beats = sorted(tally.heartbeats_s)
    p50, p99 = (1000 * beats[int(q * (len(beats) - 1))] for q in (0.5, 0.99))
    worst, mean = 1000 * beats[-1], 1000 * statistics.fmean(beats)
    print(f"{title}: {took_s:.1f} s")
    print(f"  calls {dict(tally.calls)}, failed {dict(tally.failed) or 'none'}")
    print(f"  heartbeat ms: p50 {p50:.1f}, p99 {p99:.1f}, mean {mean:.1f}, worst {worst:.1f}")
    print(f"  broker: {spent_s / took_s:.2f} cores")
    scripts = sent["evalsha"] + sent["eval"]
    print(f"  Redis: {sum(sent.values())} commands, of which {scripts} scripts; ", end="")
    print(", ".join(f"{word} {count}" for word, count in sent.most_common(8)))
    print(f"  a heartbeat: {sum(sent.values()) / len(beats):.1f} commands, ", end="")
    print(f"{scripts / len(beats):.2f} scripts, all else of the phase included")
    if tally.calls["Report"]:
        print(f"  a batch: {sum(sent.values()) / tally.calls['Report']:.1f} commands, ", end="")
        print(f"{scripts / tally.calls['Report']:.2f} scripts, all else of the phase included")


def _commands(farm: Farm) -> dict[str, int]:
    """Return the number of calls of each Redis command so far."""
    statistics = farm.client.command("INFO", "commandstats")
    return {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in statistics.items()}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
