"""Tests of the reach of a job's process: the model, the compiler, and nothing of the farm."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path

import pytest

from farrier.options import CompileOptions
from farrier_farm.access.tokens import TokenRole, load_token
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_farm.redis import embedded
from farrier_worker import confinement
from tests.here import TARGET
from tests.waiting import wait_until

# Tries one access after another, and reports the results.
EXPLORER = """
    import json
    tries = {}
    def attempt_at(name, act):
        try:
            tries[name] = repr(act() or "done")
        except BaseException as error:
            tries[name] = type(error).__name__
    def connect(family, address):
        socket.socket(family).connect(address)
    for path in %(secrets)r:
        attempt_at(path, lambda path=path: open(path, "rb").read() and "read")
    attempt_at("list home", lambda: os.listdir(%(home)r) and "listed")
    attempt_at("environ", lambda: open(f"/proc/{os.getppid()}/environ", "rb").read() and "read")
    attempt_at("memory", lambda: open(f"/proc/{os.getppid()}/mem", "rb") and "opened")
    attempt_at("redis", lambda: connect(socket.AF_UNIX, %(redis)r))
    attempt_at("network", lambda: connect(socket.AF_INET, ("127.0.0.1", %(port)d)))
    attempt_at("leave", os.setsid)
    attempt_at("write", lambda: open(%(home)r + "/planted", "w") and "written")
    attempt_at("link", lambda: os.symlink("/etc/passwd", "link"))
    attempt_at("signal", lambda: os.kill(os.getppid(), 0))
    attempt_at("model", lambda: open(line.order["message"], "rb").read().decode())
    attempt_at("scratch", lambda: open("mine", "w").write("x") and "written")
    child = [sys.executable, "-c", "import numpy, llvmlite; open('its', 'w'); print('alive')"]
    attempt_at("child", lambda: subprocess.run(child, capture_output=True, check=True).stdout)
    look = f"open({%(secrets)r[0]!r})"
    code = [sys.executable, "-c", look]
    attempt_at("child's reach", lambda: subprocess.run(code, capture_output=True).returncode)
    succeed({**tries, "environment": dict(os.environ)})
"""


def _offered() -> str:
    """The walls that this kernel has."""
    version = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)  # of Landlock's interface
    has_seccomp = "Seccomp:" in Path("/proc/self/status").read_text()
    return "+".join(["seccomp"] * has_seccomp + ["landlock"] * (version > 0))


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_jobs_process_reaches_nothing_of_the_farm(
    farm: Farm, program, supervise, monkeypatch, tmp_path, port, caplog
) -> None:
    caplog.set_level("INFO")
    for name in ("FARRIER_TOKEN", "FARRIER_DEVICE_TOKEN", "REDIS_URL", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("FARRIER_HOME", str(farm.settings.home))
    monkeypatch.setenv("FARRIER_DEBUG", "0")
    named = tmp_path / "named.token"
    named.write_text("secret")
    for role in TokenRole:
        load_token(farm.settings, role, create=True)
    home = farm.settings.home
    other = farm.blobs.put(b"another user's model")
    secrets = [home / "user.token", home / "device.token", named, farm.blobs.path(other)]
    words = {
        "secrets": [*map(str, secrets)],
        "home": str(home),
        "redis": str(embedded.socket_path(home)),
        "port": port,
    }
    job_id = farm.jobs.submit(
        farm.blobs.put(b"the model"), CompileOptions(target=TARGET, verify=False)
    ).id
    supervise(program(EXPLORER % words, is_enclosed=True), device_token_file=named)
    job = wait_until(lambda: (j := farm.jobs.get(job_id)).state.final and j)
    assert job.state is State.SUCCEEDED, job.error
    report = dict(job.report)

    environment = report.pop("environment")
    assert "secret" not in environment.values()
    assert not [n for n in environment if "TOKEN" in n or n in ("REDIS_URL", "FARRIER_HOME")]
    assert environment["FARRIER_DEBUG"] == "0"

    [level] = [r.args[1] for r in caplog.records if "is enclosed by" in r.msg]
    assert level == (_offered() or "nothing")
    allowed = {"model": "'the model'", "scratch": "'written'", "child": "b'alive\\n'"}
    assert {name: report.pop(name) for name in allowed} == allowed
    denied = {"redis", "network", "leave"} if "seccomp" in level else set()
    if "landlock" in level:
        assert report.pop("child's reach") == "1"
        denied = set(report)
    report.pop("signal")  # Only newer kernels deny this.
    assert {name: report[name] for name in denied - {"signal"}} == dict.fromkeys(
        denied - {"signal"}, "PermissionError"
    )
    assert not (home / "planted").exists()


def test_paths_of_packages_are_those_of_the_supervisor(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    variables = confinement.environment(Path("/scratch"), {"PYTHONPATH": f"own{os.pathsep}/else"})
    assert variables["PYTHONPATH"] == f"{tmp_path / 'own'}{os.pathsep}/else"
    assert variables["TMPDIR"] == "/scratch"
