"""One job for a board through the whole farm: tuned and verified by an agent of an emulated board,
fetched as C and as a program, built and run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

import farrier
from bench import models
from bench.compare import difference
from bench.demo import Service
from bench.ports import free_port
from farrier.llvm import zig
from farrier.packaging.draws import random_inputs
from farrier.sdk.client import Client
from farrier_farm.devices.classes import EMULATED
from farrier_farm.farm import Farm
from farrier_farm.settings import Settings
from tests.targets.bare.test_models import needs_qemu, reference

BOARD, NAME = "mps2-an386", "bench-board"
TRIALS = 4
CONNECTED_S, JOB_S, END_S = 600, 1800, 60

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), needs_qemu]


@contextlib.contextmanager
def agent(home, port):
    words = [sys.executable, "-m", "farrier_device", "--broker", f"127.0.0.1:{port}"]
    words += ["--name", NAME, "--qemu", BOARD, "--state", home / "agent"]
    words += ["--token-file", home / "device.token"]
    with (home / "agent.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:  # A busy machine: the test has what it wanted.
            process.kill()
            process.wait()


def connected(client, home, process):
    """Return the device once it is connected. An agent that ends instead says why in its log."""
    deadline = time.monotonic() + CONNECTED_S
    while time.monotonic() < deadline and process.poll() is None:
        for device in client.devices():
            if device.id == NAME:
                return device
        time.sleep(0.5)
    raise AssertionError(f"the agent's code is {process.poll()}: {log_of(home)}")


def ended(client, job, home, process):
    """Return the job at its end, or as it stands when its agent ends before."""
    state, deadline = job, time.monotonic() + JOB_S
    while time.monotonic() < deadline and process.poll() is None:
        state = client.job(job.id)
        if state.state in ("succeeded", "failed", "cancelled"):
            return state
        time.sleep(1)
    code = process.poll()
    raise AssertionError(f"the job is {state.state}, the agent's code {code}: {log_of(home)}")


def log_of(home):
    return (home / "agent.log").read_text(errors="replace")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    home = tmp_path_factory.mktemp("farm")
    port = free_port()
    (home / "model.onnx").write_bytes(models.build("mobilenet_v2", size=16, stages=1, classes=5))
    with (
        Service(home, Console(quiet=True), port) as service,
        agent(home, port) as process,
        Client(service.url, service.token) as client,
    ):
        connected(client, home, process)
        job = client.submit(home / "model.onnx", target=BOARD, trials=TRIALS)
        job = ended(client, job, home, process)
        assert job.state == "succeeded", (job.error, log_of(home))
        [device] = [each for each in client.devices() if each.id == NAME]
        artifact = farrier.load(client.fetch(job.id, home / "model.farrier"))
        with contextlib.closing(Farm.open(Settings(home=home))) as farm:
            records = list(farm.records)
    return home, job, device, artifact, records


def test_the_job_says_that_its_times_are_an_emulator_s(done):
    _, job, device, artifact, records = done
    assert device.device_class.endswith(EMULATED)
    assert job.device_class == device.device_class
    assert device.faults == 0
    assert device.measured > 0
    verified = job.report["verification"]
    assert (verified["device"], verified["emulated"]) == (NAME, True)
    assert verified["latency_ms"] is None
    assert {"seccomp", "landlock"} <= set(verified["sandbox"].split("+"))
    assert any(kernel.source == "tuned" for kernel in artifact.manifest.kernels)
    assert not records


def test_its_program_and_its_library_compute_what_the_reference_does(done, tmp_path):
    home, _, _, artifact, _ = done
    inputs = random_inputs(artifact.manifest.inputs)
    (wanted,) = reference((home / "model.onnx").read_bytes(), inputs)
    for output in (run_elf(artifact, inputs, tmp_path), run_c(artifact, inputs, tmp_path)):
        assert difference({"y": output.reshape(wanted.shape)}, {"y": wanted}) < 1e-5


def run_elf(artifact, inputs, folder):
    """Run the exported program, which reads a file and writes another."""
    for name, content in artifact.export("elf", BOARD, "net").files.items():
        (folder / name).write_bytes(content)
    return emulated(folder, "net.elf", inputs)


def run_c(artifact, inputs, folder):
    """Compile the exported library into a program of its own, with a C file of the user's."""
    from farrier.targets.bare.boards import BOARDS
    from farrier.targets.bare.c_compiler import FIRMWARE
    from farrier.targets.bare.linking import linker_script

    for name, content in artifact.export("c", name="net").files.items():
        (folder / name).write_bytes(content)
    (folder / "board.ld").write_text(linker_script(BOARDS[BOARD]))
    (folder / "model.h").write_text(
        '#include "net.h"\n'
        "#define MODEL_ARENA_BYTES NET_ARENA_BYTES\n#define MODEL_RUN net_run\n"
        "#define MODEL_INPUTS(CALL) CALL((uint8_t *)net_input_x(arena) - arena, 3072)\n"
        "#define MODEL_OUTPUTS(CALL) CALL((uint8_t *)net_output_logits(arena) - arena, 20)\n"
    )
    flags = ["-target", "thumb-freestanding-eabi", "-mcpu=cortex_m4", "-O2", "-ffreestanding"]
    flags += ["-fno-sanitize=all", "-I.", f"-I{FIRMWARE}", f"-DCOUNTER={0x40028018}"]
    for source in ("start.c", "check.c", "support.c"):
        words = ["cc", *flags, "-c", FIRMWARE / source, "-o", f"{source}.o"]
        zig.run(words, folder, f"{source} does not compile")
    objects = ["start.c.o", "check.c.o", "support.c.o", "libnet.a"]
    zig.run(["ld.lld", "-T", "board.ld", *objects, "-o", "own.elf"], folder, "linking failed")
    return emulated(folder, "own.elf", inputs)


def emulated(folder, program, inputs):
    (folder / "inputs").write_bytes(b"".join(value.tobytes() for value in inputs.values()))
    words = ["qemu-system-arm", "-machine", BOARD, "-nographic", "-semihosting-config"]
    words += ["enable=on,target=native", "-serial", "null", "-monitor", "null", "-kernel", program]
    subprocess.run(words, cwd=folder, check=True, timeout=END_S)
    content = (folder / "outputs").read_bytes()
    assert content[:4] == bytes(4)
    return np.frombuffer(content[12:], np.float32)  # Behind the code, the ticks and the stack.
