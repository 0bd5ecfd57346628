"""The device agent: `farrier-device` dials the broker, leases batches, measures and reports them.

    farrier-device --broker HOST:PORT --state DIR --enrol TOKEN

An operator creates the token with `farrier devices add NAME`. At its first start, the agent
exchanges the token for a secret of its own, which it stores in the state folder. Instead of a token
for one device, `--token-file` names the file of the token that all devices of the farm share.

With --serial PORT the agent measures on a board without an operating system, with --qemu BOARD on
an emulated board, and with --simulate NAME on the simulator of an accelerator.

SIGTERM drains the agent: it measures and reports the present batch, then exits with 0. A second
SIGTERM ends the agent at once.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.metadata
import json
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from farrier_device import cgroups, describe, devices, health, logs, nvidia
from farrier_device.adapters import Adapter, NoAdapterError, adapters_apart, chosen
from farrier_device.agent_options import parser
from farrier_device.alive import SIGNS, SignOfLife
from farrier_device.baseline.engines import NAMES, installed
from farrier_device.blobstore import BlobStore
from farrier_device.boards.choice import BoardChoice
from farrier_device.boards.line import LineGoneError
from farrier_device.connection import AgentError, Connection, UsageError, open_channel
from farrier_device.cooling import Cooling
from farrier_device.cuda_library import ARCH
from farrier_device.identity import Identity
from farrier_device.library_form import HOST_CODE
from farrier_device.loop import Agent, Measuring, describe_device
from farrier_device.nvml import Nvml, NvmlError
from farrier_device.outbox import Outbox
from farrier_device.runners.any_runner import AnyRunner
from farrier_device.runners.baselines import WALLS, Engines
from farrier_device.runners.boards import BoardRunner
from farrier_device.runners.local import ChildRunner
from farrier_device.sandbox import SandboxError, require
from farrier_device.simulators import NoSimulatorError, Simulated, simulated

log = logging.getLogger(__name__)

_TERMINATED = 128 + signal.SIGTERM
_GLANCE_S = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent until a signal, or until an error that only an operator can fix; return the
    exit code."""
    options = parser().parse_args(arguments)
    logs.set_up("device", options.log, device=options.name or socket.gethostname())
    try:
        return _run(options)
    except AgentError as error:
        print(f"farrier-device: {error}", file=sys.stderr)
        return error.exit_code


def _run(options: argparse.Namespace) -> int:
    _check_one_machine(options)
    token = "" if options.token_file is None else _token(options.token_file)
    machine = _machine(options.machine)
    link = open_channel(options.broker, options.tls_ca, options.tls_name)
    lock = _locked(options.state)
    cgroups.settle()
    identity = _identity(options, token)
    connection = Connection(link, identity)
    engines = Engines(
        installed() if options.engines else {},
        folder=options.state / "models",
        secrets=tuple(filter(None, (options.state, options.token_file))),
    )
    engines.clear()
    runner: AnyRunner
    measuring: Measuring | None
    adapter: Adapter | None = None
    adapters: Sequence[Adapter] = ()
    if options.serial or options.qemu:
        runner = measuring = _board(options, identity.device)
    elif options.simulate:
        measuring = _simulated(options)
        runner = _runner(options, identity.device, machine, engines, code=measuring.code)
    else:
        adapters, adapter = _adapters(options.adapter)
        code = HOST_CODE if adapter is None else devices.code_of(adapter.arch)
        runner = _runner(options, identity.device, machine, engines, adapter, code)
        measuring = adapter
    sign = SignOfLife(options.state / SIGNS, "device")
    look, locked = _care(adapter)
    try:
        agent = Agent(
            identity,
            describe_device(
                _version(),
                runner,
                machine,
                _offered(engines, runner) if options.engines else {},
                adapters,
                measuring,
            ),
            connection,
            BlobStore(options.state / "blobs", options.store_bytes),
            Outbox(options.state / "outbox"),
            runner,
            sign.renew,
            Cooling(options.cool_s, look),
        )
        with locked:
            return _until_done(agent)
    except SandboxError as error:
        raise AgentError(str(error)) from None
    except OSError as error:
        raise AgentError(
            f"cannot use the state directory {options.state}: {error.strerror}"
        ) from None
    finally:
        sign.end()
        runner.close()
        connection.close()
        os.close(lock)


def _check_one_machine(options: argparse.Namespace) -> None:
    """Raise UsageError if the options select more than one machine."""
    other = (options.serial, options.qemu, options.simulate)
    named = [*filter(None, other), *([options.adapter] if options.adapter is not None else [])]
    if len(named) > 1 or (any(other) and options.engines):
        raise UsageError(
            "an agent measures with one machine: use only one of --serial, --qemu, --simulate "
            "and --adapter, and --engines only with the processor or a GPU"
        )
    if options.simulate and options.machine:
        raise UsageError(
            "--machine cannot be used with --simulate, which describes its "
            "machine itself; leave --machine out"
        )


def _runner(
    options: argparse.Namespace,
    device: str,
    machine: str,
    engines: Engines,
    measuring: Adapter | None = None,
    code: str = HOST_CODE,
) -> ChildRunner:
    """Return the runner that measures on this machine, on its GPU `measuring`, or on the simulator
    that runs the kind of code `code`."""
    return ChildRunner(
        device=device,
        require=options.require_sandbox,
        pin=not options.no_pin and code == HOST_CODE,
        emulated=_is_emulated(machine, measuring),
        engines=engines,
        adapter="" if measuring is None else measuring.name,
        code=code,
    )


def _simulated(options: argparse.Namespace) -> Simulated:
    """Return the machine that `--simulate` names. Raises UsageError if no installed simulator
    simulates it."""
    try:
        return simulated(options.simulate)
    except NoSimulatorError as error:
        raise UsageError(str(error)) from None


def _board(options: argparse.Namespace, device: str) -> BoardRunner:
    """Return the runner for the board that the options select. Raises UsageError if the board does
    not answer."""
    choice = BoardChoice(
        options.serial, options.baud, options.board, options.qemu, options.firmware
    )
    try:
        opener = choice.opener(options.state, options.require_sandbox)
        runner = BoardRunner(opener, name=choice.name, device=device)
        require(runner.sandbox_level(), options.require_sandbox)
    except (LineGoneError, SandboxError) as error:
        raise UsageError(str(error)) from None
    return runner


def _adapters(name: str | None) -> tuple[Sequence[Adapter], Adapter | None]:
    """Return the GPUs of this machine, and the GPU with the given name (None without a name).
    Raises UsageError if this machine has no GPU with that name."""
    try:
        adapters = adapters_apart()
        return adapters, None if name is None else chosen(adapters, name)
    except NoAdapterError as error:
        if name is not None:
            raise UsageError(str(error)) from None
        log.debug("no GPU was found: %s", error)
        return (), None


def _care(
    measuring: Adapter | None,
) -> tuple[Callable[[], health.Health], contextlib.AbstractContextManager[object]]:
    """Return a function that reads the health of the device `measuring` (this machine's
    processor if None), and a context manager that locks the clocks of the device if the driver
    permits that."""
    if measuring is None or measuring.arch != ARCH or measuring.is_emulated:
        return health.look, contextlib.nullcontext()
    try:
        gpu = Nvml(nvidia.bus_of(nvidia.number_of(measuring.name)))
    except NvmlError as error:
        log.info("cannot read the temperature of %s: %s", measuring.name, error)
        return health.Health, contextlib.nullcontext()
    return gpu.look, gpu.locked_clocks()


def _is_emulated(machine: str, measuring: Adapter | None) -> bool:
    return (
        describe.is_emulated()
        or _states_emulation(machine)
        or (measuring is not None and measuring.is_emulated)
    )


def _offered(engines: Engines, runner: AnyRunner) -> Mapping[str, str]:
    """Return the other inference engines that this device offers for comparisons: version by name.
    The result is empty, with a warning in the log, if no engine is installed, the machine is
    emulated, or the sandbox is too weak."""
    why = ""
    if not engines.versions:
        why = f"none of these engines is installed here: {', '.join(NAMES)}"
    elif runner.emulated:
        why = "this machine is emulated, so times measured on it mean nothing"
    else:
        try:
            require(runner.sandbox_level(), WALLS)
        except SandboxError as error:
            why = str(error)
    if why:
        log.warning("--engines: %s", why)
        return {}
    return engines.versions


def _until_done(agent: Agent) -> int:
    """Run the agent in a separate thread, so that a signal interrupts only the wait of the main
    thread; return the exit code.

    Signal handlers and the thread report through a SimpleQueue, which a handler may fill even while
    the main thread is within `get`.
    """
    failures: list[BaseException] = []
    # The items are signal numbers, and None at the end.
    said: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            agent.run()
        except BaseException as error:  # The error is raised again below, in the main thread.
            failures.append(error)
        finally:
            said.put(None)

    def on_signal(number: int, frame: FrameType | None) -> None:
        said.put(number)

    previous = {
        number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)
    }
    worker = threading.Thread(target=work, name="farrier-agent")
    worker.start()
    while True:
        try:
            heard = said.get(timeout=_GLANCE_S)
        except queue.Empty:
            continue  # A signal that arrives just before the wait is handled after it.
        if heard is None:
            break
        if agent.draining:
            log.info("stopped at once, without finishing the batch")
            os._exit(_TERMINATED)  # The child process dies with this process.
        log.info("draining: the current batch is measured and reported before the agent stops")
        agent.drain()
    worker.join()
    for number, handler in previous.items():
        signal.signal(number, handler)
    if failures:
        raise failures[0]
    return 0


def _machine(stated: str) -> str:
    """Return the value of `--machine`: a name as it is, or the content of the description file that
    it names."""
    if not stated.endswith(".json"):
        return stated
    try:
        return json.dumps(json.loads(Path(stated).read_text()))
    except OSError as error:
        raise UsageError(f"cannot read the file of --machine {stated}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"the file of --machine {stated} is not JSON: {error}") from None


def _states_emulation(machine: str) -> bool:
    """Return whether the value of `--machine` describes emulated hardware."""
    try:
        stated = json.loads(machine)
    except ValueError:
        return False  # a name
    return isinstance(stated, dict) and stated.get("emulated") is True


def _identity(options: argparse.Namespace, token: str) -> Identity:
    """Return the identity of the device. Its name is the host's name unless the operator or an
    enrolment sets another name."""
    identity_options = {"state": options.state, "shared": token, "enrolment": options.enrol.strip()}
    identity = Identity(options.name, **identity_options)
    if identity.device or identity_options["enrolment"]:
        return identity
    return Identity(socket.gethostname(), **identity_options)


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise UsageError(f"cannot read the file of --token-file {path}: {error.strerror}") from None
    if not token:
        raise UsageError(
            f"the file of --token-file {path} is empty; write the farm's device token to it"
        )
    return token


def _locked(state: Path) -> int:
    """Lock the state directory for this process; return the descriptor that holds the lock."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"cannot use the directory of --state {state}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UsageError(
            f"the directory of --state {state} is in use by another agent; give each agent its own"
        ) from None
    return descriptor


def _version() -> str:
    for name in ("farrier-device", "farrier"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"
