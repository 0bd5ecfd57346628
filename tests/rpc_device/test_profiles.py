"""Profiles of the sandbox: what a device's adds, and what the host's goes on refusing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from farrier_device import arch, devices, sandbox
from farrier_device.landlock import Access
from farrier_device.measurement import CodeObject, MeasureRequest
from farrier_device.profiles import HOST, Profile
from farrier_device.runners import children
from farrier_device.runners.children import Children
from tests.rpc_device.test_seccomp import ALLOW, EPERM, MACHINES, evaluate

DEVICE = Profile("device", files=("/dev/null",), calls=("getpid", "socket"))

# Enters a sandbox with a profile; prints the error of each call, 0 for success.
TRIES = """
import fcntl, json, mmap, os, sys
from farrier_device import sandbox
from farrier_device.profiles import Profile
UNRESERVED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
words = json.loads(sys.argv[1])
profile = Profile("of a test", files=tuple(words), bounds_addresses=not words)
earlier = os.open("/dev/zero", os.O_RDONLY)
level = sandbox.enter(sandbox.Limits.of_machine(), os.getppid(), profile=profile)

def code_of(act):
    try:
        act()
    except OSError as error:
        return error.errno
    return 0

def asked(path):
    file = os.open(path, os.O_RDWR)
    fcntl.ioctl(file, 0x1234)

print(json.dumps({
    "level": level,
    "null": code_of(lambda: asked("/dev/null")),
    "full": code_of(lambda: asked("/dev/full")),
    "earlier": code_of(lambda: fcntl.ioctl(earlier, 0x1234)),
    "created": code_of(lambda: os.open("/dev/null", os.O_RDWR | os.O_CREAT)),
    "addresses": code_of(lambda: mmap.mmap(-1, 1 << 42, flags=UNRESERVED, prot=mmap.PROT_READ)),
}))
"""


def tried(*files: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", TRIES, json.dumps(files)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
        check=True,
    )
    codes: dict[str, object] = json.loads(done.stdout)
    level = codes.pop("level")
    assert str(level).startswith("seccomp+landlock")
    return codes


def test_the_host_asks_no_device_file():
    assert tried() == {
        "null": errno.EPERM,
        "full": errno.EPERM,
        "earlier": errno.EPERM,
        "created": errno.EPERM,
        "addresses": errno.ENOMEM,
    }


def test_a_profile_opens_and_asks_its_device_file_and_no_other():
    """/dev/null knows no request, and says so: the call went through."""
    assert tried("/dev/null") == {
        "null": errno.ENOTTY,
        "full": errno.EACCES,
        "earlier": errno.ENOTTY,
        "created": errno.EPERM,
        "addresses": 0,
    }


@MACHINES
def test_calls_of_a_profile(machine):
    calls = arch.calls_of(machine)
    for name in ("ioctl", "socket"):
        number = calls.numbers[name]
        assert evaluate(machine, calls.audit_arch, number, profile=DEVICE) == ALLOW
        assert evaluate(machine, calls.audit_arch, number) == EPERM
    opens = calls.numbers["openat"]
    modes = {os.O_RDWR: ALLOW, os.O_WRONLY: EPERM, os.O_RDWR | os.O_CREAT: EPERM}
    for mode, verdict in modes.items():
        assert evaluate(machine, calls.audit_arch, opens, 0, 0, mode, profile=DEVICE) == verdict


def test_a_profile_with_device_files_requires_landlock(monkeypatch):
    assert (HOST.required, DEVICE.required) == ((), ("landlock",))
    assert HOST.access() == {}
    assert set(DEVICE.access().values()) == {Access.DEVICE}
    monkeypatch.setitem(devices.KINDS, "walled", devices.DeviceKind("nobody:here", DEVICE))
    monkeypatch.setattr(children, "greeting", lambda sock: (0, "seccomp+rlimits"))
    with (
        Children(sandbox.Limits.of_machine(), "") as keeper,
        pytest.raises(sandbox.SandboxError, match="landlock missing"),
    ):
        keeper.child("walled")


def test_the_profile_is_that_of_the_codes_kind():
    assert devices.KINDS[devices.kind_of(MeasureRequest((CodeObject("a"),), ()))].profile is HOST
