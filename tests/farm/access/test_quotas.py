"""Quotas: what users may keep, and how long devices measure for them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable

import pytest

from farrier.errors import TooManyRequestsError
from farrier.options import CompileOptions
from farrier_device.describe import describe
from farrier_device.measurement import CandidateResult, MeasureResult, Status
from farrier_farm.access import quotas
from farrier_farm.access.quotas import Quotas
from farrier_farm.access.users import DEFAULT
from farrier_farm.farm import Farm
from tests.device_side import BlockingDeviceSide
from tests.here import HERE, TARGET

TIMED = CandidateResult(Status.OK, (1271, 1303, 1283), 3e-6)


def _quotas(farm: Farm, **changes: object) -> Quotas:
    return Quotas(farm.client, dataclasses.replace(farm.settings, **changes), farm.blobs)


def _announce(farm: Farm, kept: Quotas, user: str, data: bytes) -> str:
    """Begin an upload of the user, who sends nothing yet; return its id."""
    upload = farm.blobs.begin(len(data), hashlib.sha256(data).hexdigest())
    kept.keep(user, upload)
    return upload.id


def test_bytes_count_until_something_refers_to_them(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "_SETTLED_S", 0.0)
    kept = _quotas(farm, upload_bytes_of_user=100)
    first = _announce(farm, kept, "ann", b"a" * 60)
    # The same bytes count again, because both uploads may be on the disk.
    for data in (b"b" * 60, b"a" * 60):
        with pytest.raises(TooManyRequestsError, match="ann keeps 60 bytes") as raised:
            _announce(farm, kept, "ann", data)
        assert raised.value.limit == "upload-bytes"
        assert "FARRIER_UPLOAD_BYTES_OF_USER" in raised.value.hint
    _announce(farm, kept, "bob", b"b" * 60)
    _announce(farm, kept, DEFAULT, b"c" * 200)
    farm.blobs.append(first, 0, b"a" * 60)
    model = farm.blobs.finish(first)
    with pytest.raises(TooManyRequestsError):  # The upload is complete and still stored.
        _announce(farm, kept, "ann", b"b" * 60)
    farm.jobs.submit(model, CompileOptions(target=TARGET))
    second = _announce(farm, kept, "ann", b"b" * 60)
    assert kept.kept_bytes("ann") == 60
    farm.blobs.abandon(second)
    _announce(farm, kept, "ann", b"d" * 90)
    assert kept.kept_bytes("ann") == 90


def test_files_are_bounded_as_well(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MOST_KEPT", 3)
    kept = _quotas(farm, upload_bytes_of_user=100)
    for data in (b"a", b"b", b"c"):
        _announce(farm, kept, "ann", data)
    with pytest.raises(TooManyRequestsError):
        _announce(farm, kept, "ann", b"d")


def test_an_announcement_is_one_script_however_much_is_kept(farm: Farm) -> None:
    kept = _quotas(farm, upload_bytes_of_user=10_000)

    def commands() -> int:
        return int(farm.client.command("INFO", "stats")["total_commands_processed"])

    def cost(data: bytes) -> int:
        before = commands()
        _announce(farm, kept, "ann", data)
        return commands() - before

    cost(b"0")  # The first call loads the script.
    few = cost(b"1")
    for n in range(2, 50):
        _announce(farm, kept, "ann", bytes([n]))
    assert cost(b"last") == few


@pytest.mark.parametrize("how", ["measured", "faulted"])
def test_the_time_of_devices_is_the_user_s_whose_job_asked(
    farm: Farm,
    device_side: BlockingDeviceSide,
    request_of: Callable[[str], object],
    how: str,
) -> None:
    session = device_side.connect("d", dataclasses.asdict(describe()))
    job = farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET), owner="ann")
    lease = farm.jobs.lease("w", 0)
    assert lease is not None
    assert lease.item == job.id
    farm.measurements.submit(request_of("ab" * 32), HERE, lease)
    batch = device_side.lease("d", session, 5)
    assert batch is not None
    held = int(farm.client.command("HGET", "farrier:device:d", "held"))
    farm.client.command("HSET", "farrier:device:d", "held", held - 40_000)
    if how == "measured":
        result = MeasureResult(results=(TIMED, TIMED))
        device_side.report("d", session, batch.lease.item, batch.lease.fence, result)
    else:
        device_side.connect("d", dataclasses.asdict(describe()))
    used = farm.quotas.device_seconds()
    assert set(used) == {"ann"}
    assert 40 <= used["ann"] < 400
    for budget, is_over in ((40.0, True), (1000.0, False), (0.0, False)):
        kept = _quotas(farm, device_seconds_of_user=budget)
        kept.check_device_time("bob")
        kept.check_device_time(DEFAULT)
        if is_over:
            with pytest.raises(TooManyRequestsError, match="for ann for") as raised:
                kept.check_device_time("ann")
            assert 0 < raised.value.retry_after_s <= 86400
            assert "FARRIER_DEVICE_SECONDS_OF_USER" in raised.value.hint
        else:
            kept.check_device_time("ann")
