"""The store of blobs: verified, resumable, bounded."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import signal
import threading

import pytest

from farrier_device.blobstore import (
    BlobMismatchError,
    BlobMissingError,
    BlobStore,
    NoSpaceError,
)


def some_bytes(count: int, seed: int = 3) -> bytes:
    return random.Random(seed).randbytes(count)


@pytest.fixture
def store(tmp_path):
    return BlobStore(tmp_path / "store", max_bytes=10_000)


@pytest.mark.parametrize("count", [0, 1, 4093])
def test_put_then_path(store, count):
    data = some_bytes(count)
    sha256 = store.put(data)
    assert sha256 == hashlib.sha256(data).hexdigest()
    assert store.has(sha256)
    assert store.path(sha256).read_bytes() == data
    assert store.put(data) == sha256


def test_threads_that_put_the_same_bytes_at_once(store):
    """However they meet, none takes away what another writes."""
    for number in range(20):
        data = some_bytes(4093, seed=number)
        ready = threading.Barrier(4)
        digests: list[str] = []

        def put(data=data, ready=ready, digests=digests):
            ready.wait()
            digests.append(store.put(data))

        threads = [threading.Thread(target=put) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert digests == [hashlib.sha256(data).hexdigest()] * 4


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64])
def test_what_is_not_here(store, name):
    with pytest.raises(BlobMissingError):
        store.path(name)


def test_receive_goes_on_where_it_stopped(store):
    data = some_bytes(5003)
    sha256 = hashlib.sha256(data).hexdigest()
    offsets = []

    def broken(offset):
        offsets.append(offset)
        yield data[offset : offset + 1009]
        raise ConnectionError("cut")

    def whole(offset):
        offsets.append(offset)
        yield data[offset:]

    for _ in range(2):
        with pytest.raises(ConnectionError):
            store.receive(sha256, broken)
        assert not store.has(sha256)
    store.receive(sha256, whole)
    assert offsets == [0, 1009, 2018]
    assert store.path(sha256).read_bytes() == data


def test_wrong_bytes_are_thrown_away(store):
    data = some_bytes(100)
    sha256 = hashlib.sha256(data).hexdigest()
    with pytest.raises(BlobMismatchError, match=sha256):
        store.receive(sha256, lambda offset: [b"x" * 100])
    assert not store.has(sha256)
    store.receive(sha256, lambda offset: [data[offset:]])
    assert store.path(sha256).read_bytes() == data


def test_the_longest_unused_goes_first(store):
    old, used, held, new = (some_bytes(3000, seed) for seed in range(4))
    names = [store.put(data) for data in (old, used, held)]
    for age, name in enumerate(reversed(names)):
        os.utime(store.root / name, (age, age))  # `held` is the oldest, then `used`, then `old`
    store.path(names[1])
    with store.holding(frozenset({names[2]})):
        store.put(new)
    assert [store.has(name) for name in names] == [False, True, True]
    store.put(some_bytes(3000, 5))
    assert not store.has(names[2])


def test_blob_larger_than_the_store(store):
    with pytest.raises(NoSpaceError, match="10000 bytes"):
        store.put(some_bytes(10_001))
    assert list(store.root.iterdir()) == []


def test_full_disk_is_a_clear_error(tmp_path):
    """A limit on file size fails a write as a full disk does."""
    store = BlobStore(tmp_path / "store", max_bytes=1 << 30)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(NoSpaceError, match="not enough disk space for blob"):
            store.put(some_bytes(8192))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(store.root.iterdir()) == []
    store.put(some_bytes(8192))
