"""The farm as a whole: cancelling, collecting garbage, readiness."""

from __future__ import annotations

import dataclasses
import os

import pytest

from farrier.errors import CancelledError, ServiceError, StorageError
from farrier.options import CompileOptions
from farrier.records import TuningRecord
from farrier_device.measurement import Status
from farrier_farm.farm import Farm
from farrier_farm.redis import embedded
from farrier_farm.settings import Settings
from tests.here import HERE, TARGET


def test_cancelling_a_job_drops_its_batches(farm: Farm, request_of) -> None:
    job = farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET))
    batch = farm.measurements.submit(request_of("ab" * 32), HERE, farm.jobs.lease("w", 0))
    farm.cancel(job.id)
    with pytest.raises(CancelledError):
        farm.measurements.wait(batch, 5)


def test_garbage_is_what_nothing_names(farm: Farm, request_of) -> None:
    model, artifact, library, unused, fresh = (farm.blobs.put(os.urandom(64)) for _ in range(5))
    farm.records.add(TuningRecord("t", "f", 1, "rule", 1, (), "trace", Status.OK, (1,)))
    archive = farm.records.archives.write()
    job = farm.jobs.submit(model, CompileOptions(target=TARGET))
    farm.jobs.succeed(farm.jobs.lease("w", 0), artifact, {})
    farm.measurements.submit(request_of(library), HERE)
    for digest in (model, artifact, library, unused, archive):
        os.utime(farm.blobs.path(digest), (0, 0))
    assert farm.collect_garbage() >= 64
    assert not farm.blobs.has(unused)
    for digest in (model, artifact, library, fresh, archive):
        assert farm.blobs.has(digest)
    assert farm.jobs.get(job.id).artifact == artifact


def test_readiness_looks_at_redis_and_the_disk(tmp_path_factory) -> None:
    settings = Settings(home=tmp_path_factory.mktemp("r"), min_free_bytes=0)
    valkey = embedded.start(settings)
    farm = Farm.open(settings)
    farm.check()
    full = Farm.open(dataclasses.replace(settings, min_free_bytes=1 << 60))
    with pytest.raises(StorageError):
        full.check()
    full.close()
    valkey.stop()
    with pytest.raises(ServiceError, match="does not answer"):
        farm.check()
    farm.close()
