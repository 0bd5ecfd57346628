"""This machine as the compiler has it: a runner, and the folder of blobs that goes with it."""

from __future__ import annotations

import hashlib
import resource

import pytest

from farrier.errors import StorageError
from farrier.measure import LocalDevice
from farrier_device.blobstore import BlobMissingError
from farrier_device.measurement import CodeObject, MeasureRequest, Status
from tests.measure.runner_contract import QUICK, ChildRunnerContract
from tests.rpc_device.doubling import Doubling, linked_kernels


class TestContract(ChildRunnerContract):
    @pytest.fixture
    def device(self):
        with LocalDevice() as local:
            yield local

    @pytest.fixture
    def runner(self, device):
        return device.runner

    @pytest.fixture
    def blobs(self, device):
        return device.blobs

    def test_closing_the_device_removes_its_blobs_too(self, device, measure, doubling):
        assert measure(doubling.candidate("right")).results[0].status is Status.OK
        assert list(self.temporary.iterdir())
        device.close()
        device.close()
        assert list(self.temporary.iterdir()) == self.left_behind() == []

    def test_a_lent_file_is_a_blob_that_stays_where_it_is(self, device, runner, tmp_path):
        lent = tmp_path / "kernels.so"
        lent.write_bytes(linked_kernels())
        library = hashlib.sha256(linked_kernels()).hexdigest()
        with pytest.raises(BlobMissingError, match=library):
            device.blobs.path(library)
        device.blobs.lend(library, lent)
        candidate = Doubling(device.blobs.put, seed=3).candidate("right")
        result = runner.measure(
            MeasureRequest((CodeObject(library),), (candidate,), QUICK), device.blobs
        )
        assert result.results[0].status is Status.OK
        device.close()
        assert lent.exists()


def test_blobs_are_put_once_and_found_by_their_digest():
    with LocalDevice() as device:
        digests = [device.blobs.put(data) for data in (b"one", memoryview(b"one"), b"")]
        assert digests[0] == digests[1] == hashlib.sha256(b"one").hexdigest()
        assert device.blobs.path(digests[0]).read_bytes() == b"one"
        assert device.blobs.path(digests[2]).read_bytes() == b""


def test_a_full_disk_is_a_storage_error_with_the_way_out():
    with LocalDevice() as device:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        try:
            with pytest.raises(StorageError, match="not enough disk space for blob") as caught:
                device.blobs.put(bytes(2 << 20))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "TMPDIR" in caught.value.hint
