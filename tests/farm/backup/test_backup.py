"""A backup of a farm that works, and a farm from it: whole, or refused with the reason."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from farrier.errors import ConflictError, StorageError, UsageError
from farrier.options import CompileOptions
from farrier_farm.access.tokens import TokenRole, load_token
from farrier_farm.access.users import Users
from farrier_farm.backup.backup import MANIFEST, SNAPSHOT, back_up
from farrier_farm.backup.restore import restore
from farrier_farm.farm import Farm
from farrier_farm.jobs.explorations import ExplorationReader
from farrier_farm.redis import embedded
from farrier_farm.settings import Settings
from tests.here import TARGET
from tests.records.record_store_contract import a_record

OPTIONS = CompileOptions(target=TARGET, verify=False)


@pytest.fixture
def filled(farm_settings):
    """A farm with jobs in several states, records, users and keys."""
    with contextlib.closing(Farm.open(farm_settings)) as farm:
        for number in range(20):
            farm.jobs.submit(farm.blobs.put(b"model %d" % number), OPTIONS, name=f"n{number}")
        lease = farm.jobs.lease("w", 30)
        farm.jobs.succeed(lease, farm.blobs.put(os.urandom(3 << 20)), {"a": 1})
        farm.jobs.lease("w", 30)
        for seed in range(50):
            farm.records.add(a_record(seed=seed))
        exploration = farm.explorations.add("e", {"a": {}}, {"a": {}}, ["m"]).about.id
        farm.explorations.set_figures(exploration, ("m", "a"), {"cycles": 1})
        load_token(farm_settings, TokenRole.USER, create=True)
        farm.keys.current()
        Users(farm_settings.home).add("ann")
        yield farm


@pytest.fixture
def new_home():
    folder = Path(tempfile.mkdtemp(prefix="farrier-"))
    yield folder / "home"
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def started(home):
    settings = Settings(home=home, min_free_bytes=0)
    valkey = embedded.start(settings)
    try:
        with contextlib.closing(Farm.open(settings)) as farm:
            yield farm
    finally:
        valkey.stop()


def told(farm):
    """Return the contents of a farm, job by job, with its blobs, records and explorations."""
    jobs, _ = farm.jobs.list(limit=200)
    named = {job.id: job for job in jobs}
    blobs = {sha256: path.stat().st_size for sha256, path in farm.blobs.all()}
    reader = ExplorationReader("default", set(), public=True)
    page, _ = farm.explorations.page(reader, limit=10)
    explorations = [farm.explorations.get(each.id) for each in page]
    return named, blobs, [record.to_line() for record in farm.records], explorations


@pytest.mark.parametrize("name", ["saved", "saved.tar"])
def test_a_farm_comes_back_as_it_was(filled, new_home, tmp_path, name):
    before = told(filled)
    assert len(before[0]) == 20
    assert len(before[3]) == 1
    summary = back_up(filled, tmp_path / name)
    assert summary.blobs == len(before[1]) > 20
    private = [tmp_path / name, *(tmp_path / name).rglob("*")]
    kept = [p for p in private if "blobs" not in p.parts]  # Hard links keep their modes.
    assert not any(stat.S_IMODE(p.stat().st_mode) & 0o077 for p in kept)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert restore(tmp_path / name, Settings(home=new_home)) == summary
    with started(new_home) as farm:
        assert told(farm) == before
        for sha256 in before[1]:
            farm.blobs.verified(sha256)
        assert farm.keys.current().public == filled.keys.current().public
        assert load_token(farm.settings, TokenRole.USER) == load_token(
            filled.settings, TokenRole.USER
        )
        assert [user.name for user in Users(new_home).list()] == ["ann"]
        farm.jobs.submit(farm.blobs.put(b"more"), OPTIONS)
    with started(new_home) as farm:  # A second start shows that the restored data is durable.
        assert len(told(farm)[0]) == 21


def test_what_happens_meanwhile_is_in_it_whole_or_not_at_all(filled, new_home, tmp_path):
    over = threading.Event()

    def work():
        number = 0
        with contextlib.closing(Farm.open(filled.settings)) as farm:
            while not over.is_set():
                number += 1
                job = farm.jobs.submit(farm.blobs.put(b"meanwhile %d" % number), OPTIONS)
                if number % 2:
                    farm.delete(job.id)
                farm.blobs.sweep(farm.references.are_there, -math.inf)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        back_up(filled, tmp_path / "saved")
    finally:
        over.set()
        worker.join()
    restore(tmp_path / "saved", Settings(home=new_home))
    with started(new_home) as farm:
        jobs, *_ = told(farm)
        assert len(jobs) >= 20
        for job in jobs.values():
            farm.blobs.verified(job.model)
            if job.artifact:
                farm.blobs.verified(job.artifact)


def test_no_blob_goes_while_a_backup_is_made(filled):
    lonely = filled.blobs.put(b"needed by nobody")
    with filled.blobs.keeping():
        assert filled.blobs.remove(lonely, lambda _: False) is False
        assert filled.blobs.has(lonely)
    assert filled.blobs.remove(lonely, lambda _: False) is True


def _damages(folder):
    blob = next(p for p in folder.glob("blobs/*") if p.stat().st_size > 1 << 20)
    manifest = json.loads((folder / MANIFEST).read_text())

    def flipped(path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.unlink()  # The path is a link, and the farm's own file must stay.
        path.write_bytes(data)

    return {
        "a damaged blob": (lambda: flipped(blob), StorageError, "is damaged"),
        "a missing blob": (blob.unlink, StorageError, f"blobs/{blob.name} is missing"),
        "a damaged snapshot": (
            lambda: flipped(folder / SNAPSHOT),
            StorageError,
            f"{SNAPSHOT} is damaged",
        ),
        "a missing key": (
            (folder / "home/signing.key").unlink,
            StorageError,
            r"home/signing\.key is missing",
        ),
        "one file more": (
            lambda: (folder / "blobs" / ("0" * 64)).write_bytes(b""),
            StorageError,
            "does not belong to it",
        ),
        "a stranger's file": (
            lambda: (folder / "home/users.lock").touch(),
            UsageError,
            r"no backup contains a file 'home/users\.lock'",
        ),
        "no manifest": ((folder / MANIFEST).unlink, UsageError, f"it has no {MANIFEST}"),
        "a damaged manifest": (
            lambda: (folder / MANIFEST).write_text("{"),
            StorageError,
            f"{MANIFEST} of the backup is damaged",
        ),
        "another format": (
            lambda: (folder / MANIFEST).write_text(json.dumps({**manifest, "format": 9})),
            UsageError,
            "format 9, and this Farrier reads 1",
        ),
    }


def test_a_damaged_backup_is_refused_and_leaves_nothing(filled, new_home, tmp_path):
    whole = tmp_path / "whole"
    back_up(filled, whole)
    (whole.parent / "copy").mkdir()
    for name in _damages(whole):
        folder = tmp_path / "copy" / name.replace(" ", "-")
        shutil.copytree(whole, folder)
        damage, kind, says = _damages(folder)[name]
        damage()
        with pytest.raises(kind, match=says) as caught:
            restore(folder, Settings(home=new_home))
        assert caught.value.hint
        assert list(new_home.parent.iterdir()) == []
    back_up(filled, tmp_path / "b.tar")
    data = (tmp_path / "b.tar").read_bytes()
    for cut in (0, 700, len(data) // 2, len(data) - 20_000):
        (tmp_path / "cut.tar").write_bytes(data[:cut])
        with pytest.raises((UsageError, StorageError), match="backup"):
            restore(tmp_path / "cut.tar", Settings(home=new_home))
        assert list(new_home.parent.iterdir()) == []


def test_a_home_in_use_is_left_alone(filled, new_home, tmp_path):
    back_up(filled, tmp_path / "saved")
    with pytest.raises(ConflictError, match=f"a farm runs in {filled.settings.home}"):
        restore(tmp_path / "saved", filled.settings)
    new_home.mkdir()
    restore(tmp_path / "saved", Settings(home=new_home))
    with pytest.raises(ConflictError, match="is in use: it is not empty"):
        restore(tmp_path / "saved", Settings(home=new_home))
    with pytest.raises(UsageError, match="REDIS_URL"):
        restore(tmp_path / "saved", Settings(home=new_home, redis_url="redis://h:1"))
    with pytest.raises(UsageError, match="no backup"):
        restore(tmp_path / "none", Settings(home=new_home / "new"))
    with pytest.raises(ConflictError, match="saved already exists"):
        back_up(filled, tmp_path / "saved")


def test_a_backup_that_fails_leaves_nothing(filled, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("farrier_farm.backup.backup._Folder.finish", full)
    with pytest.raises(StorageError, match="No space left"):
        back_up(filled, tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []
