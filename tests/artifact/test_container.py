import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.artifact import container
from farrier.errors import ArtifactError, StorageError

names = st.text("abcdefghij./_", min_size=1, max_size=40).filter(lambda n: not n.startswith("/"))


@given(st.dictionaries(names, st.binary(max_size=300), min_size=1, max_size=6))
def test_any_unzip_tool_reads_the_members_and_each_is_aligned(tmp_path_factory, members):
    path = tmp_path_factory.mktemp("c") / "x.farrier"
    path.write_bytes(container.pack(members))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {n: archive.read(n) for n in archive.namelist()} == members
    data = path.read_bytes()
    for name, content in members.items():
        offset, length = container.span(path, name)
        assert offset % container.ALIGNMENT == 0
        assert data[offset : offset + length] == content


def test_equal_members_make_equal_bytes():
    members = {"a": b"1" * 65, "params.bin": np.arange(1000, dtype=np.float32).tobytes()}
    assert container.pack(members) == container.pack(dict(members))


@pytest.mark.parametrize("keep", [0, 10, 400, 5000])
def test_a_truncated_container_is_an_error_that_names_the_file(tmp_path, keep):
    path = tmp_path / "cut.farrier"
    path.write_bytes(container.pack({"manifest.json": b"{}", "params.bin": bytes(6000)})[:keep])
    with pytest.raises(ArtifactError, match=r"cut\.farrier"):
        container.read(path)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "model.farrier"
    path.write_bytes(b"old")
    with pytest.raises(StorageError, match=r"cannot write .*/x: "):
        container.write_atomically(path / "x", b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_replaces_the_file_whole(tmp_path):
    path = tmp_path / "deep" / "model.farrier"
    container.write_atomically(path, b"one")
    container.write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]
