"""The measurement child: a disposable process that runs candidates (compiled variants to be timed),
which may crash or hang.

`fork_server` forks the child for the code of one batch. The child sandboxes itself, opens its
device, sends a greeting, and takes batches for that code over its socket until it is killed. A
batch is one frame, followed by the descriptors of the code objects and the blobs:

    runner → child   {"request": <text>, "first": k, "pin": bool, "blobs": [sha256…]}
    child → runner   {"loaded": true}                           the code is in
                     {"started": k}, {"result": k, "value": …}  and so on from k to the last
                     {"done": true}

Each result is sent at once: if candidate k crashes the process, the runner has the results 0..k-1.
The child measures only `candidates`; the runner handles the request's `reference`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from farrier_device import devices, measurement, namespaces, sandbox, seccomp, wire
from farrier_device.arguments import Arguments
from farrier_device.blob import Blob
from farrier_device.choice import Choice
from farrier_device.devices.device import AnyDevice, DeviceError, DeviceLostError
from farrier_device.library_form import HOST_CODE
from farrier_device.measurement import (
    Argument,
    Candidate,
    CandidateResult,
    CodeObject,
    Launch,
    MeasureRequest,
    Role,
    Status,
)
from farrier_device.measuring import Candidates

MOST_TEXT = 2000  # The most characters of a result's message.


class ChildSetup(NamedTuple):
    """The facts that a fork server passes to a child: the descriptor of its socket, its limits, the
    server's process id, the isolation layers already in force, the machine's CPUs, and the child's
    choice of a device."""

    descriptor: int
    limits: sandbox.Limits
    parent: int
    layers: Sequence[str]
    cpus: Sequence[int]
    choice: Choice


def main(setup: ChildSetup) -> None:
    """Serve the runner until it closes the connection."""
    libc = sandbox.libc()
    kind = setup.choice.device
    # The device's module cannot be read from within the sandbox.
    open_device = kind.opener(setup.choice.name)
    reads = setup.choice.enter_installation() if kind.profile.is_package else {}
    if setup.layers and not seccomp.is_possible(libc):
        # A filter of system calls leaves no access to shared memory.
        namespaces.enter_own_ipc(libc)
    namespaces.drop_capabilities(libc)
    with socket.socket(fileno=setup.descriptor) as sock:
        level = sandbox.enter(
            setup.limits, setup.parent, within=setup.layers, profile=kind.profile, reads=reads
        )
        with (
            contextlib.closing(_opened(open_device)) as device,
            contextlib.suppress(wire.ClosedError),
        ):
            wire.send(sock, {"ready": level})
            arguments = Arguments(device)
            while True:
                message = wire.receive(sock)
                try:
                    _serve(sock, message, device, arguments, setup.cpus)
                except DeviceLostError as error:
                    _end(error)


def _opened(open_device: Callable[[], AnyDevice]) -> AnyDevice:
    """Open the device. If that fails, the reason is written as the child's last output, and the
    process ends."""
    try:
        return open_device()
    except DeviceError as error:
        _end(error)


def _end(error: DeviceError) -> NoReturn:
    """End the process, after writing the error as its last output."""
    sys.stderr.write(str(error))
    sys.stderr.flush()
    os._exit(1)


def warm_up() -> None:
    """Run the code that every child runs first (parsing a request, using the C library) once, so
    that forked children inherit warm caches."""
    argument = Argument(Role.INPUT, 0)
    launches = (Launch("entry"),)
    candidate = Candidate(launches, (argument,), parts=(Launch("part", ((0, 0),)),))
    request = MeasureRequest((CodeObject(""),), (candidate,), reference=candidate)
    measurement.request_from_json(measurement.to_json(request))
    _encoded(0, CandidateResult(Status.OK))
    devices.KINDS[HOST_CODE].opener()
    sandbox.libc()


def _serve(
    sock: socket.socket,
    message: dict[str, Any],
    device: AnyDevice,
    arguments: Arguments,
    cpus: Sequence[int],
) -> None:
    request = measurement.request_from_json(message["request"])
    pin = cpus[: request.policy.threads] if message["pin"] else ()
    names: list[str] = message["blobs"]
    count = len(request.code)
    files = wire.receive_files(sock, count + len(names))
    first: int = message["first"]
    with contextlib.ExitStack() as stack:
        blobs = stack.enter_context(_mapped(names, files[count:]))
        try:
            stack.enter_context(_loaded(device, files[:count], request, pin))
        except DeviceError as error:
            for index in range(first, len(request.candidates)):
                _answer(sock, index, CandidateResult(Status.REJECTED, message=str(error)))
        else:
            wire.send(sock, {"loaded": True})
            candidates = Candidates(device, request.policy, blobs)
            for index in range(first, len(request.candidates)):
                started = functools.partial(wire.send, sock, {"started": index})
                result = candidates.measure(request.candidates[index], arguments, started)
                _answer(sock, index, result)
    wire.send(sock, {"done": True})


def _answer(sock: socket.socket, index: int, result: CandidateResult) -> None:
    wire.send(sock, _encoded(index, result))


def _encoded(index: int, result: CandidateResult) -> dict[str, Any]:
    short = dataclasses.replace(result, message=result.message[:MOST_TEXT])
    return {"result": index, "value": dataclasses.asdict(short)}


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
    device: AnyDevice, files: Sequence[int], request: MeasureRequest, pin: Sequence[int]
) -> Iterator[None]:
    """Return a context in which the request's code is loaded on the device; the files of the code
    are closed after the device has unloaded it."""
    try:
        device.load(list(zip(request.code, files, strict=True)), request.policy.threads, pin)
        yield
    finally:
        device.unload()
        for file in files:
            os.close(file)
