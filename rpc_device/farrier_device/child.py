"""The measurement child: a disposable process that runs candidates so that nobody else has to.

Started by `sandbox.SandboxedProcess`, it encloses itself, greets, and then takes batch after batch
over its socket. A batch is one frame and the descriptors of the library and the blobs:

    runner → child   {"request": <text>, "first": k, "pin": bool, "blobs": [sha256…]}
    child → runner   {"loaded": true}                           the library is in
                     {"started": k}, {"result": k, "value": …}  and so on from k to the last
                     {"done": true}

Each result is sent at once: should candidate k take the process down, the runner has 0..k-1.
`reference` is the runner's business; the child measures `candidates`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from farrier_device import describe, measurement, sandbox, wire
from farrier_device.arguments import Arguments, Blob
from farrier_device.measurement import CandidateResult, MeasureRequest, Status
from farrier_device.measuring import Candidates
from farrier_device.native import Library, NativeError, Pool

_KEPT_BYTES = 256 << 20  # of buffers, from one batch to the next


def main(argv: Sequence[str] | None = None) -> None:
    """`argv`: the limits as JSON, the process id of the keeper, the descriptor of the socket."""
    limits, parent, descriptor = sys.argv[1:] if argv is None else argv
    cpus = describe.available_cpus()
    with socket.socket(fileno=int(descriptor)) as sock:
        level = sandbox.enter(sandbox.Limits(**json.loads(limits)), int(parent))
        with contextlib.suppress(wire.ClosedError):
            wire.send(sock, {"ready": level})
            arguments = Arguments()
            while True:
                _serve(sock, wire.receive(sock), arguments, cpus)
                arguments.trim(_KEPT_BYTES)


def _serve(
    sock: socket.socket, message: dict[str, Any], arguments: Arguments, cpus: Sequence[int]
) -> None:
    request = measurement.request_from_json(message["request"])
    pin = cpus[: request.policy.threads] if message["pin"] else ()
    names: list[str] = message["blobs"]
    library, *files = wire.receive_files(sock, 1 + len(names))
    first: int = message["first"]
    with contextlib.ExitStack() as stack:
        blobs = stack.enter_context(_mapped(names, files))
        try:
            code, pool = stack.enter_context(_loaded(library, request, pin))
        except NativeError as error:
            for index in range(first, len(request.candidates)):
                _answer(sock, index, CandidateResult(Status.REJECTED, message=str(error)))
        else:
            wire.send(sock, {"loaded": True})
            candidates = Candidates(code, pool, request.policy, blobs)
            for index in range(first, len(request.candidates)):
                started = functools.partial(wire.send, sock, {"started": index})
                result = candidates.measure(request.candidates[index], arguments, started)
                _answer(sock, index, result)
    wire.send(sock, {"done": True})


def _answer(sock: socket.socket, index: int, result: CandidateResult) -> None:
    wire.send(sock, {"result": index, "value": dataclasses.asdict(result)})


@contextlib.contextmanager
def _mapped(names: Sequence[str], files: Sequence[int]) -> Iterator[dict[str, Blob]]:
    blobs: dict[str, Blob] = {}
    try:
        for name, file in zip(names, files, strict=True):
            blobs[name] = Blob(file)
        yield blobs
    finally:
        for blob in blobs.values():
            blob.close()


@contextlib.contextmanager
def _loaded(
    file: int, request: MeasureRequest, pin: Sequence[int]
) -> Iterator[tuple[Library, Pool]]:
    """The library and its threads. The file stays open while it is loaded: the loader tells
    libraries apart by their path, which names the descriptor."""
    if pin:
        os.sched_setaffinity(0, {pin[0]})
    try:
        with (
            Library(f"/proc/self/fd/{file}") as library,
            Pool(library, request.policy.threads, pin) as pool,
        ):
            yield library, pool
    finally:
        os.close(file)


if __name__ == "__main__":
    main()
