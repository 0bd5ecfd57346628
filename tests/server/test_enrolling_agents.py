"""Tests of how `farrier-device` gets and keeps its own secret, against a real broker."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys

import pytest

from farrier_device.blobstore import BlobStore
from farrier_farm.access.audit import Wanted
from tests.here import HERE
from tests.server.test_broker_with_agent import batch, library  # noqa: F401
from tests.waiting import wait_until


@pytest.fixture
def launch(broker, tmp_path):
    """Start agents, by default with the shared token, and the state folder `name`."""
    shared = broker.farm.settings.home / "device.token"
    with contextlib.ExitStack() as stack:

        def start(state: str, *options: str, enrol: str = "", token=shared) -> subprocess.Popen:
            command = [sys.executable, "-m", "farrier_device", "--no-pin", "--broker"]
            command += [broker.address, "--state", str(tmp_path / state), *options]
            if token is not None:
                command += ["--token-file", str(token)]
            environment = {**os.environ, "FARRIER_ENROL": enrol}
            process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def connected(broker):
    """Wait until a device has a session that it did not have before, and return it."""
    seen = set()

    def wait(name: str):
        def newly():
            with_session = [
                connected_device
                for connected_device in broker.farm.devices.list()
                if connected_device.id == name and connected_device.session
            ]
            return next(
                (
                    connected_device
                    for connected_device in with_session
                    if connected_device.session not in seen
                ),
                None,
            )

        wait_until(newly)
        device = newly()
        seen.add(device.session)
        return device

    return wait


def ended(process: subprocess.Popen) -> tuple[int, str]:
    _, said = process.communicate(timeout=240)
    assert "Traceback" not in said
    return process.returncode, said


def stopped(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 0


def test_an_agent_with_the_shared_token_enrols_once(broker, launch, connected, tmp_path):
    first = launch("state", "--name", "local")
    enrolled = connected("local").enrolled
    assert enrolled is not None
    kept = tmp_path / "state" / "identity.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    stopped(first)
    again = launch("state", "--name", "local", token=None)
    assert connected("local").enrolled == enrolled
    code, said = ended(launch("elsewhere", "--name", "local"))
    assert code == 11
    assert "farrier devices remove local" in said
    stopped(again)
    noted, _ = broker.farm.audit.read(Wanted(action="devices"), limit=10)
    assert [(entry.action, entry.object, entry.role) for entry in noted] == [
        ("devices.enrol", "local", "device")
    ]
    assert "127.0.0.1" in noted[0].address


def test_an_agent_is_named_by_its_token(broker, launch, connected, batch, tmp_path):  # noqa: F811
    token = broker.farm.enrolments.invite("rack-7").token
    launch("state", token=None, enrol=token)
    connected("rack-7")
    request, blobs = batch
    store = BlobStore(tmp_path / "blobs", 1 << 20)
    for data in blobs.values():
        store.put(data)
    result = broker.farm.runner(HERE).measure(request, store)
    assert result.fault is None, result.message
    assert (result.device, result.signed) == ("rack-7", True)


def test_an_agent_whose_secret_the_farm_has_lost_enrols_again(broker, launch, connected):
    process = launch("state", "--name", "local")
    before = connected("local")
    broker.farm.client.command("FLUSHALL")
    after = connected("local")
    assert after.session.partition(".")[2] != before.session.partition(".")[2] != ""
    stopped(process)


def test_a_device_that_is_revoked_ends_its_agent(broker, launch, connected):
    process = launch("state", "--name", "local")
    connected("local")
    broker.farm.enrolments.revoke("local")
    code, said = ended(process)
    assert code == 11
    assert "was revoked" in said
    broker.farm.enrolments.remove("local")
    assert broker.farm.devices.list() == []


def test_what_an_agent_cannot_enrol_with_is_said(broker, launch, tmp_path):
    state = tmp_path / "damaged"
    state.mkdir()
    (state / "identity.json").write_text("{")
    pi = broker.farm.enrolments.invite("pi").token
    for process, code, words in (
        (launch("empty", token=None), 2, "farrier devices add NAME"),
        (launch("damaged"), 2, "remove the file, and enrol"),
        (
            launch("named", "--name", "x", token=None, enrol=pi),
            11,
            "is for the device pi, not for x",
        ),
        (launch("wrong", token=None, enrol="nonsense"), 11, "this enrolment token is unknown"),
    ):
        returned, said = ended(process)
        assert (returned, words in said) == (code, True), said
    assert broker.farm.devices.list() == []


def test_a_state_folder_that_takes_no_secret_ends_the_agent(broker, launch, tmp_path):
    state = tmp_path / "state"
    (state / "identity.json").mkdir(parents=True)
    code, said = ended(launch("state", "--name", "local"))
    assert code == 2
    assert "identity.json" in said


def test_a_secret_is_one_device_of_one_folder(broker, launch, connected):
    stopped_first = launch("state", "--name", "one")
    connected("one")
    stopped(stopped_first)
    code, said = ended(launch("state", "--name", "two"))
    assert code == 2
    assert "is the secret of the device one, but --name is two" in said


def test_an_enrolment_that_failed_leaves_the_secret_before(broker, launch, connected, tmp_path):
    stopped_first = launch("state", "--name", "one")
    connected("one")
    stopped(stopped_first)
    kept = json.loads((tmp_path / "state" / "identity.json").read_text())
    assert ended(launch("state", enrol="nonsense"))[0] == 11
    again = json.loads((tmp_path / "state" / "identity.json").read_text())
    assert again["secret"] == kept["secret"] != ""
    launch("state")
    connected("one")
