import os
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.artifact import container
from farrier.errors import ArtifactError, StorageError
from farrier.files import atomic

names = st.text("abcdefghij./_", min_size=1, max_size=40).filter(lambda n: not n.startswith("/"))


def written(path, members):
    with path.open("wb") as file:
        container.write(file, members)
    return path


@given(st.dictionaries(names, st.binary(max_size=300), min_size=1, max_size=6))
def test_any_unzip_tool_reads_the_members_and_each_is_aligned(tmp_path_factory, members):
    path = written(tmp_path_factory.mktemp("c") / "x.farrier", members)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {n: archive.read(n) for n in archive.namelist()} == members


def test_large_members_lie_in_the_file_aligned_and_small_ones_are_deflated(tmp_path):
    large = np.random.default_rng(0).bytes(9_000_001)  # It is read in three pieces.
    members = {"model.so": bytes(70_000), "params.bin": large, "small": bytes(5000)}
    path = written(tmp_path / "x.farrier", members)
    data = path.read_bytes()
    assert len(data) < len(large) + 2000
    assert data.index(large) % container.ALIGNMENT == 0
    for name, content in members.items():
        assert container.size(path, name) == len(content)
        memory = bytearray(len(content))
        assert container.read_into(path, name, memoryview(memory)) == container.digest(content)
        assert memory == content
        for wrong in (len(content) - 1, len(content) + 1):
            with pytest.raises(ArtifactError, match=r"x\.farrier"):
                container.read_into(path, name, memoryview(bytearray(wrong)))


def test_equal_members_make_equal_bytes(tmp_path):
    members = {"a": b"1" * 65, "params.bin": np.arange(1000, dtype=np.float32).tobytes()}
    first, second = written(tmp_path / "1", members), written(tmp_path / "2", dict(members))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("keep", [0, 10, 100, 200])
def test_a_truncated_container_is_an_error_that_names_the_file(tmp_path, keep):
    path = written(tmp_path / "cut.farrier", {"manifest.json": b"{}", "params.bin": bytes(6000)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ArtifactError, match=r"cut\.farrier"):
        container.read(path)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "model.farrier"
    path.write_bytes(b"old")
    with pytest.raises(StorageError, match=r"cannot write .*/x: "):
        atomic.write_atomically(path / "x", lambda file: file.write(b"new"))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(28, "full"), ArtifactError("lost"), KeyboardInterrupt()])
def test_what_was_begun_is_gone_whatever_ends_it(tmp_path, error):
    path = tmp_path / "model.farrier"
    path.write_bytes(b"old")

    def write(file):
        file.write(b"new")
        raise error

    with pytest.raises(StorageError if isinstance(error, OSError) else type(error)):
        atomic.write_atomically(path, write)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_replaces_the_file_whole(tmp_path):
    path = tmp_path / "deep" / "model.farrier"
    atomic.write_atomically(path, lambda file: file.write(b"one"))
    atomic.write_atomically(path, lambda file: file.write(b"two"))
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path):
    (tmp_path / "link").symlink_to("model.farrier")
    for data in (b"one", b"two"):
        atomic.write_atomically(tmp_path / "link", lambda file, data=data: file.write(data))
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "model.farrier").read_bytes() == data


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    atomic.check_writable(path)
    atomic.write_atomically(path, lambda file: file.write(b"data"))
    assert os.read(reader, 100) == b"data"
    os.close(reader)
    assert path.is_fifo()


def test_where_nothing_can_be_written_is_known_before(tmp_path, monkeypatch):
    atomic.check_writable(tmp_path / "deep" / "model.farrier")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageError, match="it is a directory"):
        atomic.check_writable(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file is no directory"):
        atomic.check_writable(tmp_path / "file" / "deep" / "model.farrier")
    monkeypatch.setattr(os, "access", lambda *_: False)  # Root may write in every directory.
    with pytest.raises(StorageError, match="is not writable"):
        atomic.check_writable(tmp_path / "model.farrier")
