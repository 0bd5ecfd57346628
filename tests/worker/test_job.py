"""The job process with the real compiler: a model in, an artifact or a reason out."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier import progress
from farrier.artifact.trust import Trust
from farrier.options import CompileOptions
from farrier.records import Context, TuningRecord
from farrier.runtime.artifact import check_whole
from farrier_device.describe import describe
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import Job
from farrier_farm.leases.states import State
from farrier_farm.storage.models import DataFile, Manifest
from farrier_worker.supervisor import JOB_COMMAND
from tests.here import HERE, TARGET
from tests.loops import ENDLESS, loop
from tests.waiting import wait_until


def _model(rows: int = 5, inner: int = 67, columns: int = 131) -> bytes:
    """relu(x @ w), with sizes that no tile divides."""
    weights = np.random.default_rng(3).standard_normal((inner, columns)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, inner])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@pytest.fixture
def worker_settings(worker_settings):
    return dataclasses.replace(worker_settings, lease_s=10.0, device_expiry_s=10.0)


@pytest.fixture
def run_job(farm: Farm, supervise):
    """Submits, and returns the job once it has ended."""

    def run(model: bytes, options: CompileOptions, **settings: object):
        job = farm.jobs.submit(farm.blobs.put(model), options, name="mlp")
        supervise(list(JOB_COMMAND), **settings)
        return wait_until(lambda: (j := farm.jobs.get(job.id)).state.final and j)

    return run


def test_a_loop_that_never_ends_fails_its_job_and_the_worker_takes_the_next(
    farm: Farm, device, run_job
) -> None:
    job = run_job(loop(ENDLESS), CompileOptions(target=TARGET), reference_s=0.5)
    assert (job.state, job.error["code"]) == (State.FAILED, "time-limit")
    assert "the step 'reference' did not end" in job.error["message"]
    assert "FARRIER_REFERENCE_S" in job.error["hint"]
    following = farm.jobs.submit(farm.blobs.put(_model()), CompileOptions(target=TARGET))
    wait_until(lambda: farm.jobs.get(following.id).state is State.SUCCEEDED)


def test_a_model_becomes_an_artifact(farm: Farm, device, run_job) -> None:
    job = run_job(_model(), CompileOptions(target=TARGET))
    assert job.state is State.SUCCEEDED, job.error
    assert device() > 0  # It was verified there.
    assert job.report["verification"]["reference"].startswith("ONNX Runtime")  # within walls
    path = farm.blobs.verified(job.artifact)
    artifact = path.read_bytes()
    assert artifact[:2] == b"PK"
    signed = check_whole(path, Trust(frozenset({farm.keys.current().public}))).signature
    assert signed.key == farm.keys.current().public
    assert farm.jobs.leases.expired(0.0, len(artifact) - 1, 10) == [job.id]
    assert farm.jobs.leases.expired(0.0, len(artifact), 10) == []
    assert job.report
    events = [e.data for e in farm.events.read(job.id) if e.data["kind"] != "state"]
    stages = [e["stage"] for e in events if e["kind"] == "stage-started"]
    assert stages[0] == "import"
    assert job.stage == stages[-1]
    [verified] = [progress.from_dict(e) for e in events if e["kind"] == "verified"]
    assert verified.max_error < 1e-4
    assert verified.device == "here"


def test_tuning_leaves_records(farm: Farm, device, run_job) -> None:
    job = run_job(_model(), CompileOptions(target=TARGET, trials=12))
    assert job.state is State.SUCCEEDED, job.error
    assert job.trials == 12
    assert sum(record.context is Context.ALONE for record in farm.records) == 12
    trials, _ = farm.trials.list(job.id, after="", limit=1000)
    assert [trial.task for trial in trials] == [record.task for record in farm.records]
    ((task,), _) = farm.trials.tasks(job.id, 0, 10)
    assert (task.schedule["share"], task.schedule["calls"]) == (1.0, 1)
    assert task.trials == sum(record.task == task.schedule["task"] for record in farm.records)
    seconds = [r.seconds for r in farm.records if r.context is Context.ALONE]
    assert task.best_alone_s == pytest.approx(min(seconds))
    [archive] = farm.records.archives
    lines = farm.blobs.verified(archive).read_bytes().decode().splitlines()
    assert [TuningRecord.from_line(line) for line in lines] == list(farm.records)


def test_a_private_job_leaves_nothing_to_others(farm: Farm, device, supervise) -> None:
    private = farm.private_records("ann")
    supervise(list(JOB_COMMAND))
    for trials in (12, 20):
        options = CompileOptions(target=TARGET, trials=trials)
        model = farm.blobs.put(_model())
        job = farm.jobs.submit(model, options, owner="ann", private=True)
        job = wait_until(lambda id=job.id: (j := farm.jobs.get(id)).state.final and j)
        assert job.state is State.SUCCEEDED, job.error
        archived = "".join(farm.blobs.verified(archive).read_text() for archive in private.archives)
        assert archived.splitlines() == list(private.export())
    schedules = [(r.task, r.decisions) for r in private if r.context is Context.ALONE]
    # The second job continued from the first one's records.
    assert len(set(schedules)) == len(schedules) > 12
    assert (list(farm.records), list(farm.definitions.newest(10))) == ([], [])


def test_an_attempt_goes_on_from_the_records_of_the_one_before(
    farm: Farm, device, supervise
) -> None:
    job = farm.jobs.submit(farm.blobs.put(_model()), CompileOptions(target=TARGET, trials=300))
    first = supervise(list(JOB_COMMAND))
    wait_until(lambda: farm.records.count() >= 60)
    first.drain()
    first.drain()
    wait_until(lambda: farm.jobs.get(job.id).state is State.QUEUED)
    earlier = set(farm.records)
    supervise(list(JOB_COMMAND))
    ended = wait_until(lambda: (j := farm.jobs.get(job.id)).state.final and j)
    assert (ended.state, ended.attempts, ended.crashes) == (State.SUCCEEDED, 2, 0)
    decisions = [(r.task, r.decisions) for r in farm.records if r.context is Context.ALONE]
    assert earlier <= set(farm.records)
    assert len(set(decisions)) == len(decisions)  # Nothing was measured a second time.


@pytest.mark.parametrize(
    ("model", "code"),
    [(b"", "invalid-model"), (b"not a model", "invalid-model"), (_model()[:-40], "invalid-model")],
)
def test_what_is_no_model_fails_with_the_reason(farm: Farm, run_job, model, code) -> None:
    job = run_job(model, CompileOptions(target=TARGET))
    assert (job.state, job.attempts) == (State.FAILED, 1)
    assert job.error["code"] == code
    assert job.error["message"]


def _with_data_file(location: str) -> tuple[bytes, bytes]:
    """The message of a model whose weights lie in that file, and the file."""
    model = onnx.load_from_string(_model())
    [weights] = model.graph.initializer
    data = weights.raw_data
    onnx.external_data_helper.set_external_data(weights, location, 0, len(data))
    weights.ClearField("raw_data")
    return model.SerializeToString(), data


def test_models_with_data_files(farm: Farm, supervise) -> None:
    message, data = _with_data_file("folder/m.data")

    def submit(location: str, data: bytes) -> str:
        file = DataFile(farm.blobs.put(data), len(data))
        model = farm.models.create(Manifest(farm.blobs.put(message), {location: file}))
        return farm.jobs.submit(model, CompileOptions(target=TARGET, verify=False)).id

    whole = submit("folder/m.data", data)
    wrong = [submit("other", data), submit("folder/m.data", data[:-1])]
    damaged = submit("folder/m.data", data[::-1])
    blob = next(iter(farm.models.get(farm.jobs.get(damaged).model).files.values())).sha256
    farm.blobs.path(blob).write_bytes(bytes(len(data)))
    supervise(list(JOB_COMMAND))
    for job_id in (whole, *wrong, damaged):
        job = wait_until(lambda job_id=job_id: (j := farm.jobs.get(job_id)).state.final and j)
        assert job.attempts == 1
        if job_id == whole:
            assert job.state is State.SUCCEEDED, job.error
            continue
        said = job.error["message"]
        code, named = "invalid-model", "'folder/m.data'"
        if job_id == damaged:
            code, named = "storage", blob
        assert (job.state, job.error["code"], named in said) == (State.FAILED, code, True)
        assert str(farm.settings.home) not in said


def test_a_job_that_asks_for_more_than_its_worker_knows_fails_with_the_reason(
    farm: Farm, supervise
) -> None:
    job = farm.jobs.submit(farm.blobs.put(_model()), CompileOptions(target=TARGET, verify=False))
    newer = json.dumps({**job.options, "warp": 9})
    farm.client.command("HSET", f"farrier:job:item:{job.id}", "options", newer)
    supervise(list(JOB_COMMAND))
    job = wait_until(lambda: (j := farm.jobs.get(job.id)).state.final and j)
    assert (job.state, job.attempts) == (State.FAILED, 1)
    assert "unknown option warp" in job.error["message"]
    assert "newer Farrier" in job.error["hint"]


def test_a_job_that_loses_its_device_waits_in_the_queue(farm: Farm, supervise, device_side) -> None:
    """It holds no worker, and its next attempt does not count as a crash."""
    description = dataclasses.asdict(describe())
    device_side.connect("here", description)  # It is not heard of again.
    model = farm.blobs.put(_model())
    job = farm.jobs.submit(model, CompileOptions(target=TARGET), wait_for_device=True)
    supervise(list(JOB_COMMAND), device_expiry_s=0.5)
    wait_until(lambda: farm.jobs.get(job.id).attempts == 1)
    wait_until(lambda: farm.jobs.get(job.id).state is State.QUEUED)
    last = farm.events.read(job.id)[-1].data
    assert (last["state"], last["attempt"]) == ("queued", 1)
    assert f"no device for class:{HERE.device_class} is connected" in last["reason"]
    other = farm.jobs.submit(model, CompileOptions(target=TARGET, verify=False))
    wait_until(lambda: farm.jobs.get(other.id).state is State.SUCCEEDED)
    waiting = farm.jobs.get(job.id)
    assert (waiting.state, waiting.attempts, waiting.crashes) == (State.QUEUED, 1, 0)

    def is_leased_again() -> bool:
        device_side.connect("here", description)  # It registers again, and is soon away again.
        return farm.jobs.get(job.id).attempts == 2

    wait_until(is_leased_again)


def test_without_a_device_the_job_fails_with_a_hint(farm: Farm, run_job) -> None:
    job = run_job(_model(), CompileOptions(target=TARGET), device_expiry_s=0.5)
    assert job.state is State.FAILED
    assert job.error["code"] == "no-device"
    assert "farrier device" in job.error["hint"]
    warnings = [e.data["message"] for e in farm.events.read(job.id) if e.data["kind"] == "warned"]
    assert any("is connected; the job waits up to 1 s for one" in warning for warning in warnings)


def test_a_missing_model_fails(farm: Farm, supervise) -> None:
    job = farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET))
    supervise(list(JOB_COMMAND))
    ended = wait_until(lambda: (j := farm.jobs.get(job.id)).state.final and j)
    assert ended.error["code"] == "not-found"


def _warnings(farm: Farm, job_id: str) -> list[str]:
    return [e.data["message"] for e in farm.events.read(job_id) if e.data["kind"] == "warned"]


def test_an_artifact_waits_for_room(farm: Farm, supervise) -> None:
    """A full store, then one from which something is deleted."""
    junk = farm.blobs.put(bytes(1 << 22))
    job = farm.jobs.submit(
        farm.blobs.put(_model()), CompileOptions(target=TARGET, verify=False, trials=0)
    )
    supervise(list(JOB_COMMAND), blob_quota_bytes=1 << 22)
    [warning] = wait_until(lambda: _warnings(farm, job.id))
    assert "quota" in warning
    assert "the job waits up to 600 s for free space" in warning
    assert farm.jobs.get(job.id).state is State.RUNNING
    farm.blobs.remove(junk, farm.references.are_there)
    job = wait_until(lambda: (j := farm.jobs.get(job.id)).state.final and j)
    assert (job.state, job.attempts) == (State.SUCCEEDED, 1), job.error
    assert farm.blobs.has(job.artifact)
    assert len(_warnings(farm, job.id)) == 1


# From the end of the compilation on, every write past 4 KB of a file fails, as at a full disk.
FULL_AT_THE_END = """
    import resource
    from farrier_worker import job
    from farrier_worker.work.product import Product
    write = Product._write_to
    def at_a_full_disk(*arguments):
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        write(*arguments)
    Product._write_to = at_a_full_disk
    job.run(line)
"""


def test_a_tuned_job_that_finds_no_room_says_what_is_kept(
    farm: Farm, device, program, supervise
) -> None:
    """The job that is submitted afterwards measures nothing a second time."""
    model = farm.blobs.put(_model())

    def ended() -> Job:
        job_id = farm.jobs.submit(model, CompileOptions(target=TARGET, trials=12)).id
        return wait_until(lambda: (j := farm.jobs.get(job_id)).state.final and j)

    def measured() -> int:
        return sum(record.context is Context.ALONE for record in farm.records)

    full = supervise(program(FULL_AT_THE_END), room_wait_s=0.1)
    job = ended()
    assert job.state is State.FAILED
    assert "cannot write the artifact" in job.error["message"]
    assert "File too large" in job.error["message"]
    assert "the records of its 12 trials are kept" in job.error["hint"]
    assert measured() == 12
    assert list(farm.blobs.drafts.iterdir()) == []
    full.drain()
    supervise(list(JOB_COMMAND))
    assert ended().state is State.SUCCEEDED
    assert measured() == 12


def test_memory_is_limited(farm: Farm, device, run_job) -> None:
    job = run_job(
        _model(200_000, 512, 512), CompileOptions(target=TARGET), job_memory_bytes=400 << 20
    )
    assert job.state is State.FAILED
    assert "FARRIER_JOB_MEMORY_BYTES" in job.error["hint"]
