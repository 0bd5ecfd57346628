"""The store of blobs in each of its forms, and the limits that it may have."""

from __future__ import annotations

import pytest

from farrier.errors import ConflictError, NotFoundError, StorageError
from farrier_device.blobstore import BlobStore
from farrier_device.storage.content_store import (
    BlobDamagedError,
    BlobMismatchError,
    BlobMissingError,
    ContentStore,
)
from farrier_device.storage.file_store import FileStore, Layout
from farrier_device.storage.limits import LeastRecentlyUsed, Limits, NoSpaceError, StoredFile
from farrier_farm.settings import Settings
from farrier_farm.storage.content import ContentStore as FarmStore
from tests.rpc_device.storage.content_store_contract import ContentStoreContract


class _DeviceErrors(ContentStoreContract):
    MISSING, MISMATCH = BlobMissingError, BlobMismatchError
    DAMAGED, FULL = BlobDamagedError, NoSpaceError


class TestPlainStore(_DeviceErrors):
    @pytest.fixture
    def store(self, tmp_path):
        (tmp_path / "store").mkdir()
        return ContentStore(tmp_path / "store", Layout(fan_out=3), durable=False)


class TestDeviceStore(_DeviceErrors):
    @pytest.fixture
    def store(self, tmp_path):
        return BlobStore(tmp_path / "store", max_bytes=10_000)


class TestFarmStore(ContentStoreContract):
    MISSING, MISMATCH, DAMAGED, FULL = NotFoundError, ConflictError, StorageError, StorageError

    @pytest.fixture
    def store(self, tmp_path):
        return FarmStore(Settings(home=tmp_path / "home", min_free_bytes=0))


def files(**uses):
    return [StoredFile(name, None, nbytes, used) for name, (nbytes, used) in uses.items()]


@pytest.mark.parametrize(
    ("limits", "kept", "removed"),
    [
        (Limits(), (), ""),
        (LeastRecentlyUsed(100), (), ""),
        (LeastRecentlyUsed(60), (), "b"),
        (LeastRecentlyUsed(59), (), "bc"),
        (LeastRecentlyUsed(10), ("b", "d"), "ca"),
    ],
)
def test_what_was_used_longest_ago_goes_first(limits, kept, removed):
    stored = files(a=(20, 3.0), b=(40, 1.0), c=(30, 2.0), d=(10, 4.0))
    assert "".join(file.name for file in limits.surplus(stored, kept)) == removed


def test_files_of_other_names_are_not_the_store_s(tmp_path):
    store = FileStore(tmp_path, Layout(names="[a-c]", drafts="[a-c]\\.new", suffix=".x"))
    for name in ("a.x", "b", "d.x", "c.new", "e.new"):
        (tmp_path / name).write_bytes(b"12")
    assert [file.name for file in store.files()] == ["a"]
    assert [file.name for file in store.unfinished()] == ["c.new"]
    assert store.used() == 4
    assert (store.has("a"), store.has("b"), store.has("../a")) == (True, False, False)
