"""The disk under `farrier up` fills; whoever asks hears of it, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farrier.errors import StorageError
from tests.small_disk import SmallDisk, small_disk
from tests.up import Up
from tests.waiting import wait_until

SHAPES = {"x": (1, 3, 13, 17)}


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    with small_disk(64) as disk:
        yield disk


@pytest.mark.long
def test_a_full_disk_is_told_of_and_the_farm_goes_on_when_there_is_room(disk, model) -> None:
    up = Up(disk.home).start()
    try:
        with up.client() as client:
            before = client.wait(client.submit(model, shapes=SHAPES, name="before").id)
            disk.fill()
            wait_until(lambda: up.command("jobs").returncode == StorageError.exit_code)
            said = up.command("jobs").stderr
            assert "No space left on device" in said
            assert f"bytes are free in {disk.home}/valkey" in said
            disk.free()
            wait_until(lambda: up.command("jobs").returncode == 0)
            assert client.job(before.id) == before
            # The device could not say that it is there while Valkey was away.
            after = client.submit(model, shapes=SHAPES, name="after", wait_for_device=True)
            client.wait(after.id)
        _, said = up.end()
        assert "Valkey ended and does not start" in said
        assert "no acknowledged data was lost" in said
    finally:
        disk.free()
        up.clean_up()
