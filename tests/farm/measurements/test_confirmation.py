"""Tests of the verification of models: by a trusted device, or by two that agree, or by an
untrusted one."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from pathlib import Path

import pytest

from farrier.progress import Warned
from farrier_device.blobstore import BlobStore
from farrier_device.measurement import (
    Argument,
    Candidate,
    CandidateResult,
    CodeObject,
    DeviceFault,
    Launch,
    MeasureRequest,
    MeasureResult,
    Role,
    Status,
)
from farrier_farm.devices.classes import MeasurementTarget
from farrier_farm.farm import Farm
from tests.farm.measurements.test_runner import DeviceThreads
from tests.here import HERE

LIBRARY = b"\x7fELF of a model"
REQUEST = MeasureRequest(
    (CodeObject(hashlib.sha256(LIBRARY).hexdigest()),),
    (Candidate((Launch("model"),), (Argument(Role.SCRATCH, 64),)),),
    floors_ns=((5_000,),),
    verifies=True,
)


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    store = BlobStore(tmp_path / "compiler", 1 << 20)
    store.put(LIBRARY)
    return store


@pytest.fixture
def device_thread(device_side, connect_device):
    devices = DeviceThreads(device_side, functools.partial(connect_device, enrolled=True))
    yield devices
    devices.stop()


def answers(ns: int, status: Status = Status.OK, error: float = 1e-6):
    outcome = CandidateResult(status, (ns,) * 5 if status is Status.OK else (), error)
    return lambda batch: MeasureResult((outcome,))


INVENTS = answers(1_000, error=0.0)
WRONG = answers(0, Status.WRONG, 0.5)


def test_what_a_trusted_device_says_counts(farm: Farm, blobs, device_thread) -> None:
    device_thread("rogue", answers(6_000, error=0.0))
    device_thread("good", answers(9_000))
    farm.devices.trust("good")
    result = farm.runner(HERE).measure(REQUEST, blobs)
    assert (result.device, result.confirmed_by, result.untrusted) == ("good", "", False)
    assert farm.devices.get("rogue").measured == 0


def test_two_that_agree_count_by_the_slower(farm: Farm, blobs, device_thread) -> None:
    device_thread("a", answers(6_000))
    device_thread("b", answers(9_000))
    result = farm.runner(HERE).measure(REQUEST, blobs)
    assert (result.device, result.confirmed_by, result.untrusted) == ("b", "a", False)


def test_one_alone_is_said_to_be_untrusted(farm: Farm, blobs, device_thread) -> None:
    device_thread("only", answers(6_000))
    result = farm.runner(HERE).measure(REQUEST, blobs)
    assert (result.device, result.confirmed_by, result.untrusted) == ("only", "", True)
    again = farm.runner(HERE).measure(dataclasses.replace(REQUEST, verifies=False), blobs)
    assert not again.untrusted
    # What a device says of who vouches for it is not heard.
    device_thread("sly", lambda _: MeasureResult(answers(9_000)(None).results, confirmed_by="x"))
    result = farm.runner(MeasurementTarget(HERE.device_class, "sly")).measure(REQUEST, blobs)
    assert (result.device, result.confirmed_by, result.untrusted) == ("sly", "", True)


def test_an_invented_result_verifies_nothing(farm: Farm, blobs, device_thread) -> None:
    device_thread("rogue", INVENTS)
    device_thread("good", answers(9_000))
    result = farm.runner(HERE).measure(REQUEST, blobs)
    assert result.device == "good"
    assert result.results[0].samples_ns == (9_000,) * 5


@pytest.mark.parametrize("third", [None, "ok", "wrong"])
def test_who_disagrees_needs_a_third(farm: Farm, blobs, device_thread, third) -> None:
    device_thread("a", answers(6_000))
    device_thread("b", WRONG)
    if third is not None:
        device_thread("c", answers(7_000) if third == "ok" else WRONG)
    result = farm.runner(HERE).measure(REQUEST, blobs)
    if third is None:
        assert result.fault is DeviceFault.BROKEN
        assert "disagree about the model: " in result.message
        assert {"a", "b"} <= set(result.message.split())
    else:
        assert result.results[0].status is (Status.OK if third == "ok" else Status.WRONG)
        assert result.confirmed_by


def test_a_trusted_device_overrules_and_who_said_otherwise_is_named(
    farm: Farm, blobs, device_thread, connect_device, device_side
) -> None:
    good = connect_device("good", enrolled=True)
    device_side.heartbeat(*good, draining=True)  # It drains, so that it is not asked first.

    def lies(batch):
        farm.devices.trust("good")  # An operator does so just now.
        device_thread("good", WRONG)
        return answers(6_000)(batch)

    device_thread("rogue", lies)
    heard: list[Warned] = []
    result = farm.runner(HERE, listener=heard.append).measure(REQUEST, blobs)
    assert (result.device, result.untrusted) == ("good", False)
    assert result.results[0].status is Status.WRONG
    (warned,) = heard
    assert "rogue reports that the model is ok, but good, which is trusted, that it is wrong" in (
        warned.message
    )
