"""Tests of the blob store: acknowledged data is complete and on the disk; a failure leaves
nothing."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import IO

import pytest

from farrier.errors import ConflictError, NotFoundError, StorageError, UsageError
from farrier_farm.settings import Settings
from farrier_farm.storage.blobs import BlobStore


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(Settings(home=tmp_path, min_free_bytes=0, max_upload_bytes=1 << 20))


def nothing(_sha256: str) -> bool:
    """Return False: a sweep need not spare anything."""
    return False


def _bytes(count: int, seed: int = 7) -> bytes:
    return random.Random(seed).randbytes(count)


def _leftovers(store: BlobStore) -> list[Path]:
    """Return the files that are not blobs."""
    home = store.root.parent
    blobs = set(store.root.glob("??/*"))
    return [p for p in home.rglob("*") if p.is_file() and p not in blobs]


@pytest.mark.parametrize("count", [0, 1, 127, 1 << 20])
def test_what_is_put_is_found_by_its_digest(store: BlobStore, count: int) -> None:
    data = _bytes(count)
    digest = store.put(data)
    assert digest == hashlib.sha256(data).hexdigest()
    assert store.put(data) == digest
    assert store.verified(digest).read_bytes() == data
    assert store.path(digest).read_bytes() == data
    assert store.size(digest) == count
    assert store.has(digest)
    assert store.used() == count
    assert _leftovers(store) == []
    assert [store.remove(digest, nothing) for _ in range(2)] == [True, False]
    assert not store.has(digest)


def test_another_digest_than_promised_is_refused(store: BlobStore) -> None:
    promised = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(ConflictError, match=promised):
        store.put_stream([b"da", b"ta"], expected=promised)
    assert _leftovers(store) == []
    assert store.used() == 0


@pytest.mark.parametrize("name", ["", "..", "ab", "../" * 21 + "a", "A" * 64, "0" * 63 + "\n"])
def test_names_that_are_no_digests_are_not_found(store: BlobStore, name: str) -> None:
    assert not store.has(name)
    assert not store.remove(name, nothing)
    with pytest.raises(NotFoundError):
        store.verified(name)


def test_damage_is_noticed(store: BlobStore) -> None:
    digest = store.put(_bytes(997))
    path = store.path(digest)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(StorageError, match="damaged"):
        store.verified(digest)


def test_a_whole_blob_that_is_stored_again_stays_the_file_that_it_is(
    store: BlobStore, tmp_path: Path
) -> None:
    """A process within walls may read files, not names."""
    digest = store.put(b"data")
    file = store.path(digest).stat().st_ino
    again = tmp_path / "again"
    again.write_bytes(b"data")
    assert store.put(b"data") == store.adopt(again, digest) == digest
    assert store.path(digest).stat().st_ino == file
    assert not again.exists()
    assert not list(store.drafts.iterdir())


def test_damage_is_mended_by_storing_again(store: BlobStore) -> None:
    digest = store.put(b"data")
    store.path(digest).write_bytes(b"dat")
    assert store.put(b"data") == digest
    assert store.verified(digest).read_bytes() == b"data"


def test_the_quota_and_the_free_space_are_kept(tmp_path: Path) -> None:
    small = BlobStore(Settings(home=tmp_path, min_free_bytes=0, blob_quota_bytes=1000))
    small.put(_bytes(800))
    with pytest.raises(StorageError, match="quota"):
        small.put(_bytes(800, seed=8))
    with pytest.raises(StorageError, match="quota"):
        small.begin(300)
    assert small.used() == 800
    assert _leftovers(small) == []
    full = BlobStore(Settings(home=tmp_path, min_free_bytes=1 << 60))
    with pytest.raises(StorageError, match="free"):
        full.put(b"data")
    with pytest.raises(StorageError, match="free"):
        full.begin(1)


def test_a_write_that_the_disk_refuses_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: write() fails in the same way."""
    program = """
        import pathlib, resource, sys
        from farrier.errors import StorageError
        from farrier_farm.storage.blobs import BlobStore
        from farrier_farm.settings import Settings
        store = BlobStore(Settings(home=pathlib.Path(sys.argv[1]), min_free_bytes=0))
        upload = store.begin(9000)
        store.append(upload.id, 0, bytes(3000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        for call in (lambda: store.put(bytes(9000)),
                     lambda: store.append(upload.id, 3000, bytes(6000))):
            try:
                call()
            except StorageError as error:
                print(error.hint)
        print(store.upload(upload.id).offset, store.used(), upload.id)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    *hints, state = run.stdout.splitlines()
    assert len(hints) == 2
    assert all("free some space" in hint for hint in hints)
    offset, used, upload_id = state.split()
    assert (offset, used) == ("3000", "0")
    store = BlobStore(Settings(home=tmp_path, min_free_bytes=0))
    store.append(upload_id, 3000, bytes(6000))
    assert store.verified(store.finish(upload_id)).read_bytes() == bytes(9000)


def test_an_upload_resumes_where_it_was(store: BlobStore, tmp_path: Path) -> None:
    data = _bytes(10_007)
    digest = hashlib.sha256(data).hexdigest()
    upload = store.begin(len(data), digest)
    assert (upload.size, upload.offset, upload.sha256) == (len(data), 0, digest)
    for offset in range(0, len(data), 1009):
        again = BlobStore(Settings(home=tmp_path, min_free_bytes=0))  # as another process
        assert again.upload(upload.id).offset == offset
        chunk = data[offset : offset + 1009]
        assert again.append(upload.id, offset, chunk).offset == offset + len(chunk)
    assert store.finish(upload.id) == digest
    assert store.verified(digest).read_bytes() == data
    assert _leftovers(store) == []
    with pytest.raises(NotFoundError):
        store.upload(upload.id)


def test_an_upload_is_read_again_only_where_another_process_took_part(
    store: BlobStore, tmp_path: Path, monkeypatch
) -> None:
    data = _bytes(10_007)
    digest = hashlib.sha256(data).hexdigest()
    read, file_digest = [], hashlib.file_digest

    def reading(file: IO[bytes], name: str) -> object:
        if not store.has(Path(file.name).name):  # Otherwise it is the blob, which is read as well.
            read.append(file)
        return file_digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", reading)
    # This store stands for another process.
    other = BlobStore(Settings(home=tmp_path, min_free_bytes=0))
    for stores in ([store] * 3, [store, other, store], [other, other, store]):
        upload = store.begin(len(data), digest)
        for number, at in enumerate(range(0, len(data), 5000)):
            stores[number].append(upload.id, at, data[at : at + 5000])
        before = len(read)
        assert stores[-1].finish(upload.id) == digest
        assert len(read) - before == (stores != [store] * 3)
        assert store.path(digest).read_bytes() == data


def test_a_piece_that_was_refused_is_not_in_the_digest(store: BlobStore, monkeypatch) -> None:
    upload = store.begin(4, hashlib.sha256(b"good").hexdigest())
    store.append(upload.id, 0, b"go")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: os.write(-1, b""))  # The disk fails.
        with pytest.raises(StorageError):
            store.append(upload.id, 2, b"xx")
    store.append(upload.id, 2, b"od")
    assert store.verified(store.finish(upload.id)).read_bytes() == b"good"


def test_chunks_out_of_place_are_refused(store: BlobStore) -> None:
    upload = store.begin(10)
    store.append(upload.id, 0, b"12345")
    for offset in (0, 4, 6):
        with pytest.raises(ConflictError, match="offset 5"):
            store.append(upload.id, offset, b"67890")
    with pytest.raises(UsageError, match="10 bytes"):
        store.append(upload.id, 5, b"678901")
    with pytest.raises(ConflictError, match="5 of 10"):
        store.finish(upload.id)
    assert store.upload(upload.id).offset == 5


def test_an_upload_of_other_bytes_than_promised_is_dropped(store: BlobStore) -> None:
    upload = store.begin(4, hashlib.sha256(b"good").hexdigest())
    store.append(upload.id, 0, b"evil")
    with pytest.raises(ConflictError, match="sha256"):
        store.finish(upload.id)
    assert store.used() == 0
    assert _leftovers(store) == []


def test_two_senders_of_one_chunk(store: BlobStore) -> None:
    upload = store.begin(64_000)
    data = [_bytes(64_000, seed) for seed in (1, 2)]
    outcomes: list[object] = []

    def send(chunk: bytes) -> None:
        try:
            outcomes.append(store.append(upload.id, 0, chunk).offset)
        except ConflictError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=send, args=(chunk,)) for chunk in data]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcome == 64_000 for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 1
    assert store.verified(store.finish(upload.id)).read_bytes() in data


def test_uploads_that_are_unknown_or_too_large(store: BlobStore) -> None:
    for upload_id in ("../../etc/passwd", "", "0" * 32):
        with pytest.raises(NotFoundError):
            store.append(upload_id, 0, b"x")
    with pytest.raises(UsageError):
        store.begin(-1)
    with pytest.raises(UsageError, match="FARRIER_MAX_UPLOAD_BYTES"):
        store.begin((1 << 20) + 1)


def test_a_sweep_removes_what_is_old_and_unnamed(store: BlobStore) -> None:
    kept, old, fresh = (store.put(_bytes(100, seed)) for seed in range(3))
    idle, busy = store.begin(10), store.begin(10)
    store.append(idle.id, 0, b"1234")
    draft = store.drafts / "crashed"
    draft.write_bytes(bytes(50))
    for path in (store.path(kept), store.path(old), draft):
        os.utime(path, (0, 0))
    os.utime(store.root.parent / "uploads" / f"{idle.id}.part", (0, 0))
    assert store.sweep({kept}.__contains__, older_than_s=3600) == 100 + 50 + 4
    assert [store.has(digest) for digest in (kept, old, fresh)] == [True, False, True]
    assert store.upload(busy.id).offset == 0
    with pytest.raises(NotFoundError):
        store.upload(idle.id)


@pytest.mark.parametrize("step", ["begin", "finish"])
def test_a_sweep_removes_what_a_crash_left_of_an_upload(tmp_path: Path, step: str) -> None:
    """The process is killed where the first file's name is durable, before it turns to the next."""
    program = """
        import os, pathlib, signal, sys
        from farrier_device.storage import durable
        from farrier_farm.storage.blobs import BlobStore
        from farrier_farm.settings import Settings
        store = BlobStore(Settings(home=pathlib.Path(sys.argv[1]), min_free_bytes=0))
        def die(*_): os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[2] == "begin":
            os.fsync = die
        upload = store.begin(4)
        store.append(upload.id, 0, b"1234")
        durable.sync_directory = die
        store.finish(upload.id)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), tmp_path, step]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    store = BlobStore(Settings(home=tmp_path, min_free_bytes=0))
    [left] = _leftovers(store)
    store.sweep(nothing, older_than_s=3600)
    assert left.exists()
    os.utime(left, (0, 0))
    store.sweep(nothing, older_than_s=3600)
    assert _leftovers(store) == []


def test_what_is_renewed_while_a_sweep_looks_at_it_stays(store: BlobStore) -> None:
    digest = store.put(b"data")
    os.utime(store.path(digest), (0, 0))
    asked = []

    def is_needed(sha256: str) -> bool:
        # The first renewal is before it is set aside, the second one after.
        asked.append(store.renew(sha256))
        return False

    assert store.sweep(is_needed, older_than_s=3600) == 0
    assert asked == [True]
    assert store.has(digest)
    os.utime(store.path(digest), (0, 0))

    def is_kept(_digest: str) -> bool:
        asked.append(store.has(digest))
        return False

    assert store.sweep(is_kept, older_than_s=3600) == 4
    assert asked == [True, True, False]


def test_what_a_killed_sweep_put_aside_comes_back_where_it_is_needed(store: BlobStore) -> None:
    needed, unused = (store.put(_bytes(100, seed)) for seed in range(2))
    for digest in (needed, unused):
        aside = store.drafts / digest
        store.path(digest).rename(aside)
        os.utime(aside, (0, 0))
    assert store.sweep({needed}.__contains__, older_than_s=3600) == 100
    assert store.verified(needed).read_bytes() == _bytes(100, 0)
    assert not store.has(unused)
    assert _leftovers(store) == []


def test_what_is_put_aside_can_be_read_until_it_is_removed(store: BlobStore) -> None:
    data = _bytes(100, 0)
    digest = store.put(data)
    seen = []

    def is_needed(sha256: str) -> bool:
        seen.append((store.has(digest), store.path(digest).read_bytes() == data))
        return len(seen) > 1

    assert not store.remove(digest, is_needed)
    assert seen == [(True, True), (False, True)]
    assert store.verified(digest).read_bytes() == data


def test_a_removal_leaves_what_another_one_puts_back(store: BlobStore) -> None:
    """The first has decided; whoever needs the blob stores it; the second finds it needed."""
    digest = store.put(b"data")

    def first(sha256: str) -> bool:
        if not store.has(digest):  # it is aside
            store.put(b"data")
            assert not store.remove(digest, lambda _: not store.has(digest))
        return False

    assert store.remove(digest, first)
    assert store.verified(digest).read_bytes() == b"data"


def test_storing_again_renews_the_time(store: BlobStore) -> None:
    digest = store.put(b"data")
    os.utime(store.path(digest), (0, 0))
    store.put(b"data")
    assert store.sweep(nothing, older_than_s=3600) == 0
