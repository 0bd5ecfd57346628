"""The promises of every store of blobs: a device's, a farm's, one without limits."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
from typing import ClassVar

import pytest


def digest_of(data):
    return hashlib.sha256(data).hexdigest()


class ContentStoreContract:
    """A subclass has a fixture `store`, and names the errors of its store."""

    MISSING: ClassVar[type[Exception]]
    MISMATCH: ClassVar[type[Exception]]
    DAMAGED: ClassVar[type[Exception]]
    FULL: ClassVar[type[Exception]]

    def left(self, store):
        """All files of the store but its blobs."""
        blobs = {file.path for file in store.files()}
        return [path for path in store.root.rglob("*") if path.is_file() and path not in blobs]

    def test_all_ways_to_store_bytes_lead_to_one_blob(self, store, tmp_path):
        data = b"data" * 1000
        source, draft = tmp_path / "source", tmp_path / "draft"
        for path in (source, draft):
            path.write_bytes(data)
        names = {
            store.put(data),
            store.put(memoryview(data)),
            store.put_stream([data[:7], data[7:]]),
            store.put_file(source, expected=digest_of(data)),
            store.adopt(draft),
        }
        assert names == {digest_of(data)}
        assert [(file.name, file.nbytes) for file in store.files()] == [(digest_of(data), 4000)]
        assert store.path(digest_of(data)).read_bytes() == data
        assert store.verified(digest_of(data)) == store.path(digest_of(data))
        assert (source.exists(), draft.exists(), self.left(store)) == (True, False, [])

    def test_a_blob_that_is_stored_again_stays_the_file_that_it_is(self, store):
        name = store.put(b"data")
        file = store.path(name).stat().st_ino
        store.put_stream([b"data"])
        assert store.path(name).stat().st_ino == file

    def test_other_bytes_than_expected_are_refused(self, store):
        with pytest.raises(self.MISMATCH, match=digest_of(b"other")):
            store.put_stream([b"data"], expected=digest_of(b"other"))
        assert [*store.files(), *self.left(store)] == []

    @pytest.mark.parametrize("name", ["", "..", "../x", "A" * 64, "0" * 63 + "\n", "0" * 64])
    def test_a_name_without_a_blob_is_missing(self, store, name):
        assert not store.has(name)
        assert not store.touch(name)
        for ask in (store.path, store.verified):
            with pytest.raises(self.MISSING):
                ask(name)

    def test_damage_is_seen_by_the_digest(self, store):
        name = store.put(b"data")
        store.path(name).write_bytes(b"dat")
        with pytest.raises(self.DAMAGED, match="damaged"):
            store.verified(name)

    def test_a_hard_link_outlives_the_blob(self, store, tmp_path):
        name = store.put(b"data")
        os.link(store.path(name), tmp_path / "link")
        store.path(name).unlink()
        assert (tmp_path / "link").read_bytes() == b"data"
        assert store.put(b"data") == name
        assert store.verified(name).read_bytes() == b"data"

    def test_a_full_disk_leaves_nothing(self, store):
        """A limit on the size of files fails a write as a full disk does."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            with pytest.raises(self.FULL):
                store.put(bytes(8192))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert [*store.files(), *self.left(store)] == []
        assert store.put(bytes(8192)) == digest_of(bytes(8192))

    def test_a_killed_process_leaves_no_blob_and_a_draft_that_goes(self, store):
        writer = os.fork()
        if writer == 0:

            def chunks():
                yield b"half"
                os.kill(os.getpid(), signal.SIGKILL)

            store.put_stream(chunks())
        assert os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) == -signal.SIGKILL
        (draft,) = self.left(store)
        assert list(store.files()) == []
        assert [file.path for file in store.unfinished()] == [draft]
        store.remove_unfinished(before=0)
        assert draft.exists()
        os.utime(draft, (0, 0))
        store.remove_unfinished(before=1)
        assert self.left(store) == []
