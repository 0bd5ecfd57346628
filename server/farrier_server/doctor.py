"""The checks that `farrier doctor` makes of a farm: Redis, the blob store, the broker, the trainer,
and a measurement on each device, which uses the same queue as the batches of jobs."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil
import statistics
import time
from collections.abc import Collection

import grpc

from farrier.errors import FarrierError, NotFoundError, ServiceError, StorageError
from farrier.measure.drift import drift_candidate, drift_object
from farrier.sdk.doctor import Finding, Findings
from farrier_device.measurement import CodeObject, MeasureRequest, TimingPolicy
from farrier_device.protocol import channel, device_pb2, device_pb2_grpc
from farrier_farm.access.tokens import TokenRole, load_token
from farrier_farm.devices.classes import MeasurementTarget
from farrier_farm.devices.devices import Device, DeviceState
from farrier_farm.farm import Farm
from farrier_farm.redis import embedded
from farrier_farm.redis.connection import Client
from farrier_farm.redis.retry import PROMPT
from farrier_farm.roles.probe import local_address
from farrier_farm.settings import Settings

_AT_ONCE = 8  # The number of devices that measure at the same time.
_COMMANDS = 20
_RPC_S = 5.0


def of_farm(names: Collection[str], wait_s: float) -> Findings:
    """Yield the results of all checks of a farm. Yield no result if FARRIER_HOME and REDIS_URL do
    not refer to a farm. `names` are the devices to check; all if it is empty. Each device has
    `wait_s` seconds for its measurement."""
    settings = Settings.from_environment()
    if settings.redis_url is None and not embedded.socket_path(settings.home).exists():
        return
    try:
        farm = Farm.open(settings, PROMPT)
    except FarrierError as error:
        yield Finding.failed("redis", error)
        return
    with contextlib.closing(farm):
        for check in (_redis(farm.client), _blobs(farm), _broker(settings)):
            yield from check
        yield from _builders(farm)
        yield from _trainer(farm)
        yield from _devices(farm, names, wait_s)


def _redis(client: Client) -> Findings:
    try:
        version = client.command("INFO", "server")
        reading = _seconds(client, "PING")
        writing = _seconds(client, "SET", "farrier:doctor", "well", "EX", 60)
        shortcomings = client.shortcomings()
    except FarrierError as error:
        yield Finding.failed("redis", error)
        return
    name = f"Valkey {version['valkey_version']}" if "valkey_version" in version else "Redis"
    detail = (
        f"{name} ({version['redis_version']}) at {client.address}: "
        f"{reading * 1e3:.2f} ms a command, {writing * 1e3:.2f} ms a durable write"
    )
    yield Finding("redis", True, detail)
    for shortcoming in shortcomings:
        hint = "correct the setting; otherwise acknowledged data may be lost"
        yield Finding("redis durability", False, shortcoming, hint)


def _seconds(client: Client, *words: str | int) -> float:
    """Return the median time of a Redis command, in seconds."""
    taken = []
    for _ in range(_COMMANDS):
        begin = time.perf_counter()
        client.command(*words)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def _blobs(farm: Farm) -> Findings:
    """Check that a blob can be written, read back and removed."""
    data = os.urandom(1 << 20)
    try:
        digest = farm.blobs.put(data)
        same = farm.blobs.path(digest).read_bytes() == data
        farm.blobs.remove(digest, farm.references.are_there)
    except (FarrierError, OSError) as error:
        failure = error if isinstance(error, FarrierError) else StorageError(str(error))
        yield Finding.failed("blob store", failure)
        return
    home = farm.settings.home
    free = shutil.disk_usage(home).free
    if not same:
        hint = f"check the disk of {home}: it returned other bytes than were written"
        yield Finding("blob store", False, "a blob read back differs", hint)
    else:
        yield Finding("blob store", True, f"{home} can store blobs; {free / 1e9:.1f} GB are free")


def _builders(farm: Farm) -> Findings:
    """Report the number of builders of the farm; a farm without builders is not an error."""
    try:
        builders = farm.builds.builders()
    except FarrierError as error:
        yield Finding.failed("builders", error)
        return
    if builders:
        detail = f"{', '.join(sorted(builders))}: {sum(builders.values())} builds at once"
        yield Finding("builders", True, detail)


def _trainer(farm: Farm) -> Findings:
    """Report the result of the last training of the cost model; a farm without a trainer is not an
    error."""
    try:
        state = farm.cost_models.state()
    except FarrierError as error:
        yield Finding.failed("trainer", error)
        return
    if state.outcome is None or state.decided is None:
        return
    ago = (time.time() - state.decided) / 60
    last = f"the last training, {ago:.0f} min ago: {state.outcome.reason}"
    if state.in_use is None:
        yield Finding("trainer", True, f"{last}; jobs begin with the built-in cost model")
        return
    version = f"version {state.in_use.number} of the cost model"
    try:
        farm.blobs.verified(state.in_use.blob)
    except FarrierError as error:
        detail = f"{version} is in use, but jobs begin with the built-in one: {error.message}"
        hint = "`farrier cost-model rollback` selects the previous version"
        yield Finding("trainer", False, detail, hint)
    else:
        yield Finding("trainer", True, f"{last}; jobs begin with {version}")


def _broker(settings: Settings) -> Findings:
    """Check the broker by using a session that does not exist, with the device token. If the broker
    answers that the session does not exist, then TLS, the token and Redis work."""
    address = local_address(settings.broker_host, settings.broker_port)
    token = load_token(settings, TokenRole.DEVICE)
    if token is None:
        error = ServiceError("there is no device token", hint="`farrier broker` creates it")
        yield Finding.failed("broker", error)
        return
    session = device_pb2.Session(device_id="farrier-doctor", id="none")
    request = device_pb2.HeartbeatRequest(session=session)
    metadata = [("authorization", f"Bearer {token}")]
    begin = time.perf_counter()
    with _dialled(settings, address) as link:
        stub = device_pb2_grpc.BrokerStub(link)  # type: ignore[no-untyped-call]
        try:
            stub.Heartbeat(request, metadata=metadata, timeout=_RPC_S)
            code, details = grpc.StatusCode.OK, "the broker accepted a session that does not exist"
        except grpc.RpcError as failure:
            code, details = failure.code(), failure.details()
    took = (time.perf_counter() - begin) * 1e3
    if code is grpc.StatusCode.NOT_FOUND:
        tls = "without TLS" if settings.tls_cert is None else "TLS"
        yield Finding(
            "broker", True, f"{address} answers after {took:.0f} ms, {tls}, and accepts the token"
        )
        return
    hints = {
        grpc.StatusCode.UNAVAILABLE: "start `farrier broker`, or see its log; "
        "FARRIER_BROKER_HOST and FARRIER_BROKER_PORT set its address",
        grpc.StatusCode.UNAUTHENTICATED: "the broker has another token: restart the broker "
        "and the agents",
    }
    detail = f"{address}: {code.name.lower()}: {details}"
    yield Finding("broker", False, detail, hints.get(code, "see the log of `farrier broker`"))


def _dialled(settings: Settings, address: str) -> grpc.Channel:
    if settings.tls_cert is None:
        return grpc.insecure_channel(address, options=channel.CLIENT_OPTIONS)
    credentials = grpc.ssl_channel_credentials(settings.tls_cert.read_bytes())
    return grpc.secure_channel(address, credentials, options=channel.CLIENT_OPTIONS)


def _devices(farm: Farm, names: Collection[str], wait_s: float) -> Findings:
    """Check each device that can take batches by a measurement, `_AT_ONCE` devices at a time."""
    able = {DeviceState.IDLE, DeviceState.BUSY}
    wanted = [d for d in farm.devices.list() if d.state in able and (not names or d.id in names)]
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(lambda device: _measured(farm, device, wait_s), wanted)


def _measured(farm: Farm, device: Device, wait_s: float) -> Finding:
    """Check that the device measures a reference kernel, whose results are certain, and returns a
    time."""
    what, begin = f"measure on {device.id}", time.perf_counter()
    try:
        request = _request(farm, device)
        batch = farm.measurements.submit(request, MeasurementTarget(device.device_class, device.id))
        try:
            result = farm.measurements.wait(batch, wait_s)
        finally:
            farm.measurements.cancel(batch)
    except FarrierError as error:
        return Finding.failed(what, error)
    took = time.perf_counter() - begin
    if result is None:
        busy = f"it measures batch {device.lease}" if device.lease else "it accepted no batch"
        hint = "see the log of its agent; --wait sets a longer time for a busy device"
        return Finding(what, False, f"no result in {took:.0f} s: {busy}", hint)
    if result.fault is not None:
        return Finding(what, False, f"{result.fault}: {result.message}", "see its agent's log")
    (outcome,) = result.results
    if not outcome.samples_ns:
        return Finding(what, False, f"{outcome.status}: {outcome.message}", "see its agent's log")
    return Finding(
        what,
        True,
        f"a result after {took:.2f} s, of which {result.run_s:.2f} s were the run; "
        f"{outcome.undisturbed_ns * 0.001:.1f} µs a call, sandbox {result.sandbox or 'none'}",
    )


def _request(farm: Farm, device: Device) -> MeasureRequest:
    """Return a batch that measures only the reference kernel, for the device's class. Raises
    NotFoundError if the device has no class."""
    its_class = farm.devices.device_class(device.device_class)
    if its_class is None:
        raise NotFoundError(f"no class {device.device_class!r}", hint="restart its agent")
    target = its_class.target
    code = tuple(
        CodeObject(farm.blobs.put(content), kind)
        for kind, content in target.backend.kernel_code([drift_object(target)], target)
    )
    return MeasureRequest(code, (drift_candidate(target, farm.blobs),), TimingPolicy())
