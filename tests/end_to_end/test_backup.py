"""`farrier up` with jobs under way, its backup, and another `farrier up` from that."""

from __future__ import annotations

import contextlib

import pytest

import farrier
from farrier_farm.access.keys import Keys
from farrier_farm.backup.backup import back_up
from farrier_farm.backup.restore import restore
from farrier_farm.farm import Farm
from farrier_farm.settings import Settings

SHAPE = (1, 3, 13, 17)


@pytest.mark.long
def test_a_farm_goes_on_elsewhere_from_a_backup_that_was_made_while_it_worked(
    make_up, model, tmp_path
):
    up = make_up().start()
    with up.client() as client:
        done = client.wait(client.submit(model, shapes={"x": SHAPE}, trials=8, name="done").id)
        under_way = client.submit(model, shapes={"x": SHAPE}, trials=64, name="under way").id
        next(u for u in client.watch(under_way) if type(u).__name__ == "TrialsMeasured")
        with contextlib.closing(Farm.open(Settings(home=up.home))) as farm:
            back_up(farm, tmp_path / "saved.tar")
        assert client.wait(under_way).state == "succeeded"  # The farm never stood still.
        bytes_before = client.fetch(done.id, tmp_path / "before.farrier").read_bytes()
        records = list(client.records(done.id))
    assert up.end()[0] == 0

    other = make_up()
    restore(tmp_path / "saved.tar", Settings(home=other.home))
    other.start()
    assert other.token == up.token
    with other.client() as client:
        assert client.job(done.id) == done
        assert client.fetch(done.id, tmp_path / "after.farrier").read_bytes() == bytes_before
        assert list(client.records(done.id)) == records
        resumed = client.wait(under_way)
        assert resumed.state == "succeeded"
        artifact = farrier.load(client.fetch(under_way, tmp_path / "resumed.farrier"))
        assert artifact.signature.key == Keys(up.home).current().public
