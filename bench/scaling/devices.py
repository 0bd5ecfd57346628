"""`python -m bench.scaling.devices`: simulated devices, which take a fixed time for each candidate.

    python -m bench.scaling.devices --broker HOST:PORT --token-file FILE --state DIR
                                    --devices 8 --candidate-s 1 [--invented]

Each device is an agent of `farrier_device`, with its own connection, session, blob store and
outbox. All share one runner, which executes one batch at a time, so the times of candidates are
real. A batch of single kernels then lasts `--candidate-s` per candidate, as on a slower device;
other batches last only as long as they run. With `--invented`, times of single kernels are invented
from the library and the symbol, and nothing runs, which leaves the machine's cores to builds.

It prints a line of JSON at the begin and at the end of each batch, with seconds of the system's
monotonic clock. It ends when its standard input is closed.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc

from farrier_device.blobstore import BlobStore
from farrier_device.connection import Connection
from farrier_device.cooling import Cooling
from farrier_device.identity import Identity
from farrier_device.loop import Agent, describe_device
from farrier_device.measurement import (
    Candidate,
    CandidateResult,
    DeviceFault,
    MeasureRequest,
    MeasureResult,
    Status,
)
from farrier_device.outbox import Outbox
from farrier_device.protocol import channel
from farrier_device.runners.local import ChildRunner

_STORE_BYTES = 4 << 30
_BYTES_PER_NS = 10.0  # The speed of an invented kernel that moves its arguments once.
_SPREAD = 8.0  # Invented times lie within this factor of it.
_SAMPLES = 5

Tell = Callable[[dict[str, Any]], None]


class CountingStore(BlobStore):
    """A blob store that counts the bytes that it receives from the farm."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, _STORE_BYTES)
        self.arrived_bytes = 0

    def receive(self, sha256: str, chunks_from: Callable[[int], Iterable[bytes]]) -> None:
        super().receive(sha256, chunks_from)
        self.arrived_bytes += self.path(sha256).stat().st_size


class PacedRunner:
    """The runner of a simulated device, which is slowed down to the device's pace. All devices
    share `machine`, the runner that executes batches."""

    kind = ChildRunner.kind

    def __init__(
        self,
        device: str,
        machine: ChildRunner,
        store: CountingStore,
        candidate_s: float,
        invented: bool,
        tell: Tell,
    ) -> None:
        self._device = device
        self._machine = machine
        self._store = store
        self._candidate_s = candidate_s
        self._invented = invented
        self._tell = tell
        self._counted_bytes = 0

    def sandbox_level(self) -> str:
        return self._machine.sandbox_level()

    def measure(
        self,
        request: MeasureRequest,
        blobs: BlobStore,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """Measure as `ChildRunner.measure` does, but return no earlier than after the simulated
        time of the batch."""
        begin = time.monotonic()
        cancelled = cancelled or threading.Event()
        alone = is_of_kernels_alone(request)
        event = {"device": self._device, "alone": alone, "candidates": len(request.candidates)}
        arrived_bytes = self._store.arrived_bytes
        self._tell(
            {
                "batch": "begin",
                "at": begin,
                **event,
                "library_bytes": blobs.path(request.code[0].blob).stat().st_size,
                "arrived_bytes": arrived_bytes - self._counted_bytes,
            }
        )
        self._counted_bytes = arrived_bytes
        if alone and self._invented:
            result = MeasureResult(tuple(invented(request)))
        else:
            result = self._machine.measure(_without_drift(request), blobs, cancelled)
        ran_s = result.run_s
        if alone:
            pace_s = self._candidate_s * len(request.candidates)
            if cancelled.wait(max(0.0, begin + pace_s - time.monotonic())):
                result = MeasureResult(fault=DeviceFault.LOST, message="the batch was cancelled")
        end = time.monotonic()
        fault = "" if result.fault is None else f"{result.fault}: {result.message}"
        self._tell({"batch": "end", "at": end, **event, "ran_s": ran_s, "fault": fault})
        return dataclasses.replace(
            result, device=self._device, sandbox=self.sandbox_level(), run_s=end - begin
        )


def is_of_kernels_alone(request: MeasureRequest) -> bool:
    """Check whether all candidates of a batch are kernels of one task. Other batches run entire
    models, compare with another plan, or have no reference."""
    return (
        request.rival is None
        and request.reference is not None
        and not any(candidate.parts for candidate in request.candidates)
    )


def invented(request: MeasureRequest) -> list[CandidateResult]:
    """Return an invented time for each candidate, a function of library and symbol: it is
    log-uniformly distributed between the time to move the arguments and `_SPREAD` times that."""
    return [_invented(request.code[0].blob, candidate) for candidate in request.candidates]


def _invented(library: str, candidate: Candidate) -> CandidateResult:
    digest = hashlib.sha256(f"{library} {candidate.name}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    least_ns = 1000 + sum(argument.nbytes for argument in candidate.args) / _BYTES_PER_NS
    ns = round(least_ns * math.pow(_SPREAD, share))
    return CandidateResult(Status.OK, (ns,) * _SAMPLES, 0.0)


def _without_drift(request: MeasureRequest) -> MeasureRequest:
    """Return the request without its limit on drift. A machine that compiles and measures at the
    same time drifts, and such a fault says nothing about the farm."""
    policy = dataclasses.replace(request.policy, max_drift=math.inf)
    return dataclasses.replace(request, policy=policy)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scaling.devices",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--broker", required=True)
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument("--state", required=True, type=Path)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--candidate-s", type=float, default=1.0)
    parser.add_argument("--invented", action="store_true")
    options = parser.parse_args(arguments)
    token = options.token_file.read_text().strip()
    printing = threading.Lock()

    def tell(line: dict[str, Any]) -> None:
        with printing:
            print(json.dumps(line), flush=True)

    with ChildRunner() as machine:
        description = describe_device("bench", machine)
        for number in range(options.devices):
            name = f"simulated-{number:02d}"
            store = CountingStore(options.state / name / "blobs")
            identity = Identity(name, shared=token)
            agent = Agent(
                identity,
                description,
                Connection(_channel(options.broker), identity),
                store,
                Outbox(options.state / name / "outbox"),
                PacedRunner(name, machine, store, options.candidate_s, options.invented, tell),  # type: ignore[arg-type]
                cooling=Cooling(0.0),
            )
            threading.Thread(target=agent.run, name=name, daemon=True).start()
        sys.stdin.read()
    return 0


def _channel(broker: str) -> Any:
    """Return a channel with its own connection; by default, channels to the same address share a
    connection."""
    options = [*channel.CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(broker, options=options)


if __name__ == "__main__":
    sys.exit(main())
