"""A farm with an emulated board: `farrier up` on this machine, and a device agent in the emulated
root that connects to it.

A model is submitted for a Raspberry Pi 4, cross-compiled by the worker, tuned and verified on the
emulated board, and its artifact runs there. Measurements of the emulated board must not be used by
other jobs.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

import farrier
from bench import models
from bench.boards import board
from bench.boards.artifacts import TOLERANCE, onnxruntime_outputs
from bench.boards.guest import Guest, exchange
from bench.boards.root import INSIDE, REPOSITORY, Root, last_words, said
from bench.compare import difference
from bench.demo import Service
from bench.ports import free_port
from farrier.errors import ServiceError
from farrier.frontends.onnx.model.file import Model
from farrier.packaging.draws import random_inputs
from farrier.runtime.artifact import RECORDS
from farrier.sdk.client import Client, Device, Job
from farrier_farm.devices.classes import EMULATED
from farrier_farm.farm import Farm
from farrier_farm.settings import Settings

TARGET = "rpi4"
NAME = "pi"
_TRIALS = 6
_CONNECT_S = 180.0  # An emulated Python takes long to start.
_JOB_S = 600.0
_END_S = 60.0


def check(root: Root, console: Console) -> bool:
    """Run a model through the entire farm, and return whether every check succeeds."""
    model = models.build("mobilenet_v2", size=32, stages=1, classes=7)
    cpu = board.qemu_cpu(TARGET)
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="farrier-board-") as name,
        exchange() as shared,
        Service(Path(name), console, port) as service,
        _agent(root, cpu, shared, Path(name), port),
        Client(service.url, service.token) as client,
    ):
        home = Path(name)
        (home / "model.onnx").write_bytes(model)
        device = _connected(client)
        console.print(f"{NAME} is of the class {device.device_class}")
        job = client.submit(home / "model.onnx", target=TARGET, trials=_TRIALS)
        watched = said([*_FARRIER, "watch", job.id], env=_environment(service), timeout=_JOB_S)
        console.print(watched.stdout.rstrip(), markup=False)
        job = client.job(job.id)
        if job.state != "succeeded":
            console.print(f"the job {job.state}: {job.error}", markup=False)
            return False
        device = _device(client, NAME)
        artifact = farrier.load(client.fetch(job.id, home / "model.farrier"))
        inputs = random_inputs(artifact.manifest.inputs)
        with Guest(root, shared, cpu=cpu) as guest:
            outputs = guest.run(artifact, inputs)
        wanted = onnxruntime_outputs(Model.of_bytes(model), artifact, inputs)
        failed = [
            what
            for what, holds in {
                **_of_the_job(job, device, watched.stdout),
                "the artifact is for a Cortex-A72": artifact.manifest.machine == "cortex-a72",
                "it runs there, with right outputs": difference(outputs, wanted) <= TOLERANCE,
                "no record of it is kept": not _has_records(home),
                "the artifact carries no time": b"_ns" not in artifact.members[RECORDS],
            }.items()
            if not holds
        ]
    for what in failed:
        console.print(f"not so: {what}")
    return not failed


def _of_the_job(job: Job, device: Device, watched: str) -> dict[str, bool]:
    """Return the checks of a finished job, as sentence → whether it holds."""
    report = job.report or {}
    verified = report.get("verification") or {}
    figures = (verified.get("latency_ms"), report.get("untuned_ms"), report.get("tuned_ms"))
    return {
        "the device's class is marked": device.device_class.endswith(EMULATED),
        "the job is measured by that class": job.device_class == device.device_class,
        "the device has measured": device.measured > 0 and (job.trials or 0) >= _TRIALS,
        "the model is verified there": verified.get("device") == NAME,
        "its sandbox is told": verified.get("sandbox", "").endswith("rlimits"),
        "the report says that it is emulated": verified.get("emulated") is True,
        "no time is told": (*figures, job.best_ms) == (None,) * 4,
        "nor to those who watch": "emulated" in watched and " ms" not in watched,
        "the device is healthy": device.faults == 0,
    }


_FARRIER = (sys.executable, "-m", "farrier.cli")


def _environment(service: Service) -> dict[str, str]:
    others = {k: v for k, v in os.environ.items() if not k.startswith("FARRIER_")}
    return {**others, "FARRIER_SERVER": service.url, "FARRIER_TOKEN": service.token}


@contextlib.contextmanager
def _agent(root: Root, cpu: str, shared: Path, home: Path, port: int) -> Iterator[None]:
    """A context in which the device agent runs inside the emulated root."""
    (shared / "device.token").write_text((home / "device.token").read_text())
    inside = f"{INSIDE}/{shared.relative_to(REPOSITORY)}"
    words = ["-m", "farrier_device", "--broker", f"127.0.0.1:{port}", "--name", NAME]
    words += ["--token-file", f"{inside}/device.token", "--state", f"{inside}/state"]
    log = shared / "agent.log"
    with log.open("wb") as file:
        agent = root.start(
            [*words, "--machine", TARGET], cpu, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            yield
        except ServiceError as error:
            raise ServiceError(f"{error.message}: {last_words(log.read_text())}") from None
        finally:
            agent.terminate()
            try:
                agent.wait(_END_S)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()


def _connected(client: Client) -> Device:
    """Wait until the board's agent has registered, and return the device. Raises ServiceError after
    a time limit."""
    deadline = time.monotonic() + _CONNECT_S
    while time.monotonic() < deadline:
        for device in client.devices():
            if device.id == NAME:
                return device
        time.sleep(0.5)
    raise ServiceError(f"the agent in the root has not connected in {_CONNECT_S:g} s")


def _device(client: Client, name: str) -> Device:
    return next(device for device in client.devices() if device.id == name)


def _has_records(home: Path) -> bool:
    farm = Farm.open(Settings(home=home))
    try:
        return any(True for _ in farm.records)
    finally:
        farm.close()
